"""A wheel with every version that is allowed, and on machines where little is.

``python -m tests.hostile.versions WHEEL [PATTERN]`` makes an environment for each line that it
prints: each Python that the wheel names, with the lowest and the newest versions of all that it
needs; each dependency and each extra at its lowest, with all others at their newest; then one
environment where a thing is missing: a home, space, rights. In each, `answers.py` says what the
first one said, or the exit code is 1. ``.ci/package`` makes the wheel, `uv` installs it, and it is
root who takes away. Each Python is the one on the path; of pyenv, several are with
``PYENV_VERSION=3.11.7:3.12.1``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.parser import Parser
from fnmatch import fnmatch
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path
from re import fullmatch
from zipfile import ZipFile

from tests.hostile import answers
from tests.hostile.confined import confined, read_only

_NOBODY = 65534


class FailedError(Exception):
    """What an environment printed instead of the answers."""


@dataclass(frozen=True)
class Wheel:
    """A wheel and its metadata."""

    path: Path

    @cached_property
    def _metadata(self) -> list[tuple[str, str]]:
        with ZipFile(self.path) as archive:
            name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
            return Parser().parsestr(archive.read(name).decode()).items()

    def _found(self, field: str, pattern: str) -> list[tuple[str, ...]]:
        matches = [fullmatch(pattern, value) for name, value in self._metadata if name == field]
        return [match.groups() for match in matches if match]

    @property
    def pythons(self) -> list[str]:
        """The versions of Python that it is for, oldest first."""
        return [name for (name,) in self._found("Classifier", r".* :: Python :: (3\.\d+)")]

    @property
    def dependencies(self) -> dict[str, str]:
        """What it needs, and the lowest version of each."""
        return dict(self._found("Requires-Dist", r"([\w-]+)>=([\d.]+)"))  # type: ignore[arg-type]

    @property
    def extras(self) -> dict[str, tuple[str, str]]:
        """The extras that change what it can do: what each needs, and its lowest version."""
        found = self._found("Requires-Dist", r"([\w-]+)>=([\d.]+); extra == '(\w+)'")
        return {extra: (name, low) for name, low, extra in found if extra in answers.EXTRAS}


@dataclass(frozen=True)
class Environment:
    """The packages installed with a wheel."""

    name: str
    python: str
    requirements: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    resolution: str = "highest"

    def make(self, wheel: Wheel, folder: Path) -> Path:
        """Install it; return its Python."""
        uv("venv", "--python", self.python, str(folder))
        python = folder / "bin" / "python"
        asked = f"{wheel.path}[{','.join(self.extras)}]" if self.extras else str(wheel.path)
        options = ("--no-build", "--resolution", self.resolution, "--python", str(python))
        uv("pip", "install", *options, asked, *self.requirements)
        return python


def environments(wheel: Wheel, pythons: dict[str, str]) -> Iterator[Environment]:
    """All of them, the one that the others are compared with first."""
    needs = wheel.dependencies
    lowest = tuple(f"{name}>={low}" for name, low in needs.items())
    for version, python in pythons.items():
        yield Environment(f"{version} newest", python)
        yield Environment(f"{version} lowest", python, lowest, resolution="lowest-direct")
    version, python = next(iter(pythons.items()))
    for name, low in needs.items():
        yield Environment(f"{version} {name} lowest", python, (f"{name}=={low}",))
    extras = wheel.extras
    for extra, (name, low) in extras.items():
        alone = (f"{name}=={low}",)
        yield Environment(f"{version} [{extra}] {name} lowest", python, alone, (extra,))
    more = tuple(f"{name}>={low}" for name, low in extras.values())
    yield Environment(f"{version} extras newest", python, (), tuple(extras))
    yield Environment(
        f"{version} extras lowest", python, lowest + more, tuple(extras), "lowest-direct"
    )


def settings(python: Path, out: Path) -> dict[str, tuple[str, dict[str, str]]]:
    """Machines where something is missing: what a shell does there first, and variables."""
    frozen, home = read_only(python.parents[1]), f"{out}.home"
    small = f"mkdir {home}; mount -t tmpfs -o size=16k tmpfs {home}"
    filled = f"{small}; cat /dev/zero 2>/dev/null >{home}/all || :"
    no_cache, no_home = "unset XDG_CACHE_HOME", "unset XDG_CACHE_HOME HOME"
    as_nobody = f"exec setpriv --reuid {_NOBODY} --regid {_NOBODY} --clear-groups"
    remount = "mount -o remount,ro,bind $at 2>/dev/null || :"
    only_out = f"mount -t tmpfs tmpfs {out}; for at in / /tmp /var/tmp /home; do {remount}; done"
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return {
        "site-packages read-only": (frozen, {}),
        "no HOME": (f"{frozen}; {read_only(Path.home())}; {no_home}", {}),
        "HOME full": (f"{no_cache}; {filled}; {frozen}", {"HOME": home}),
        "no root": (f'chmod 777 {out}; {_in_sight(python)}; {no_home}; {as_nobody} "$@"', {}),
        "read-only but the output": (f"{only_out}; cd {out}", {}),
        "ASCII": ("", ascii_only),
        "NUMBA_DISABLE_JIT": ("", {"NUMBA_DISABLE_JIT": "1"}),
    }


def _in_sight(python: Path) -> str:
    """Mounts after which anybody may run a Python that lies in the home of root."""
    where, home = python.resolve().parents[1], Path.home()
    if not where.is_relative_to(home):
        return ":"
    place = f"mount -t tmpfs -o mode=755 tmpfs {home}; mkdir -p {where}"
    inside = f"/mnt/{where.relative_to(home)}"
    return f"mount --bind {home} /mnt; {place}; mount --bind {inside} {where}; umount /mnt"


def said_by(*command: str) -> str:
    """What a command prints."""
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise FailedError(f"{command[0]}: exit code {run.returncode}\n{run.stderr}".strip())
    return run.stdout


def uv(*arguments: str) -> str:
    """What `uv` prints."""
    return said_by(sys.executable, "-m", "uv", "--quiet", *arguments)


def answered(
    python: Path, out: Path, *extras: str, mounts: str = "", env: Mapping[str, str] | None = None
) -> str:
    """What an environment answers in a new folder, on a machine with some mounts."""
    temporary = out.with_name("out.tmp")
    out.mkdir()
    temporary.mkdir()
    temporary.chmod(0o1777)
    program = shutil.copy(answers.__file__, out.parent)  # the repository may be out of sight
    for kept in python.parents[1].glob("lib/*/site-packages/htagraph/native/__pycache__/*.o"):
        kept.unlink()  # of whoever was here before
    clean = {"TMPDIR": str(temporary), "XDG_CACHE_HOME": f"{out}.cache"}
    clean |= {"PYTHONPATH": "", "HTAGRAPH_CACHE_DIR": "", "NUMBA_CACHE_DIR": ""}
    run = confined(
        mounts, program, *extras, python=python, cwd=out, env=clean | dict(env or {}), timeout_s=600
    )
    for used in out.parent.glob("out*"):
        shutil.rmtree(used)
    if run.returncode or run.stderr:
        raise FailedError(f"exit code {run.returncode}\n{run.stderr}".strip())
    return run.stdout


def versions(python: Path, names: set[str]) -> dict[str, str]:
    """The installed version of each package of some names."""
    lines = uv("pip", "freeze", "--python", str(python)).splitlines()
    found = dict(line.split("==") for line in lines if "==" in line)
    return {name: found[name] for name in sorted(names & found.keys())}


def installed_pythons(wanted: list[str]) -> dict[str, str]:
    """The interpreters of some versions of Python; a line names each missing one."""
    found = {}
    for version in wanted:
        try:
            program = shutil.which(f"python{version}") or ""
            code = "import sys; print(sys._base_executable)"  # behind a shim
            found[version] = said_by(program, "-c", code).strip()
        except (FailedError, OSError):
            print(f"{version}: no python{version} here")
    return found


@dataclass
class Table:
    """The answers, line by line, each compared with the first."""

    first: str = ""
    n_failed: int = 0

    def add(self, name: str, said: Callable[[], tuple[str, str]]) -> None:
        """Print a line: whether the answers equal the first ones, and a note."""
        start_s = time.monotonic()
        try:
            answer, about = said()
            self.first = self.first or answer
            verdict = "equal" if answer == self.first else f"OTHER: {self._unlike(answer)};"
        except (FailedError, subprocess.TimeoutExpired) as error:
            verdict, about = "FAILED:", str(error).splitlines()[-1]
            print(error, file=sys.stderr)
        self.n_failed += verdict != "equal"
        print(f"{name:32} {time.monotonic() - start_s:3.0f} s  {verdict} {about}", flush=True)

    def _unlike(self, answer: str) -> str:
        """The first line that differs from the first answers."""
        lines = zip_longest(self.first.splitlines(), answer.splitlines(), fillvalue="")
        there, here = next(pair for pair in lines if pair[0] != pair[1])
        return f"{here.strip()}, not {there.strip()}"


def main(path: str, pattern: str = "*") -> int:
    """Print the table; the exit code."""
    wheel, table = Wheel(Path(path).resolve()), Table()
    names = {*wheel.dependencies, *(name for name, _ in wheel.extras.values())}
    every = list(environments(wheel, installed_pythons(wheel.pythons)))
    newest: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        work, out = Path(folder), Path(folder) / "out"
        work.chmod(0o755)  # for nobody

        def of_environment(one: Environment) -> tuple[str, str]:
            python = one.make(wheel, work / one.name.replace(" ", "-"))
            said, found = answered(python, out, *one.extras), versions(python, names)
            unlike = [f"{name} {found[name]}" for name in found if found[name] != newest.get(name)]
            newest.update(found if not newest else {})
            return said, " ".join(unlike)

        def of_setting(mounts: str, env: Mapping[str, str]) -> tuple[str, str]:
            return answered(python, out, mounts=mounts, env=env), ""

        for one in every:
            if one is every[0] or fnmatch(one.name, pattern):
                table.add(one.name, partial(of_environment, one))
        python = work / every[0].name.replace(" ", "-") / "bin" / "python"
        for name, (mounts, env) in settings(python, out).items():
            if fnmatch(name, pattern):
                table.add(name, partial(of_setting, mounts, env))
    return bool(table.n_failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
