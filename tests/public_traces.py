"""Traces of public repositories that tests and benchmarks use.

``python -m tests.public_traces`` fetches them, ``python -m tests.public_traces --list`` prints each
with its repository, licence and whether it is here. They lie in the folder that the environment
variable HTAGRAPH_TRACES names, by default ``~/.cache/htagraph-traces``. Nothing else fetches them:
tests that need one that is not here are left out, and pytest's last line says how many.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(
    os.environ.get("HTAGRAPH_TRACES") or Path.home() / ".cache" / "htagraph-traces"
).resolve()
"""Where the public traces are, or would be."""

_REGISTRY = Path(__file__).parent / "data" / "public_traces.toml"


@dataclass(frozen=True)
class PublicTrace:
    """A file of a public repository."""

    name: str
    sha256: str
    size: int
    repository: str
    licence: str
    path: str | None = None
    """In its repository; absent if unknown."""
    commit: str | None = None

    @property
    def url(self) -> str | None:
        """Where GitHub serves the file, or the archive that holds it."""
        if self.path is None:
            return None
        return f"https://raw.githubusercontent.com/{self.repository}/{self.commit}/{self.path}"

    @property
    def file(self) -> Path:
        """Where it is, or would be, on this machine."""
        return FOLDER / self.name


def _registered() -> tuple[PublicTrace, ...]:
    repositories = tomllib.loads(_REGISTRY.read_text())["repository"]
    return tuple(
        PublicTrace(**file, repository=repository["name"], licence=repository["licence"])
        for repository in repositories
        for file in repository["file"]
    )


PUBLIC_TRACES = _registered()


def is_here(name: str) -> bool:
    """Whether all public traces are here that have this name, or are in a folder of this name."""
    files = [
        trace.file
        for trace in PUBLIC_TRACES
        if trace.name == name or trace.name.startswith(f"{name}/")
    ]
    assert files, f"{name} is not in {_REGISTRY}"
    return all(file.is_file() for file in files)


def fetch(trace: PublicTrace) -> None:
    """Download a trace; a file with another checksum is refused."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    if trace.path is None or not trace.path.endswith(".tar.gz"):
        pooch.retrieve(trace.url, trace.sha256, trace.file.name, trace.file.parent)
        return
    archive = pooch.retrieve(trace.url, None, Path(trace.path).name, FOLDER / "archives")
    with tarfile.open(archive) as members:
        member = next(one for one in members if Path(one.name).name == trace.file.name)
        data = members.extractfile(member).read()
    if hashlib.sha256(data).hexdigest() != trace.sha256:
        raise ValueError(f"{trace.name} in {trace.url} has another checksum")
    trace.file.parent.mkdir(parents=True, exist_ok=True)
    trace.file.write_bytes(data)


def main() -> int:
    """Fetch what is missing, or list everything."""
    parser = argparse.ArgumentParser(description="Fetch the public traces that tests use.")
    parser.add_argument("--list", action="store_true", help="list them, fetch nothing")
    if parser.parse_args().list:
        for trace in PUBLIC_TRACES:
            state = "here" if trace.file.is_file() else "missing"
            print(f"{state:7} {trace.size:9,} {trace.name}  {trace.repository} {trace.licence}")
        return 0
    n_failed = 0
    for trace in PUBLIC_TRACES:
        if trace.file.is_file():
            continue
        if trace.url is None:
            print(f"{trace.name}: its place in {trace.repository} is unknown; copy it to {FOLDER}")
            continue
        try:
            fetch(trace)
        except (OSError, ValueError, StopIteration) as error:
            n_failed += 1
            print(f"{trace.name}: {type(error).__name__}: {trace.url}")
    n_here = sum(trace.file.is_file() for trace in PUBLIC_TRACES)
    print(f"{n_here} of {len(PUBLIC_TRACES)} public traces are in {FOLDER}")
    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
