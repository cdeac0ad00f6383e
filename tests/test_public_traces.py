"""Public traces are fetched from the repositories in the registry, and have its checksums."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests import public_traces
from tests.public_traces import PUBLIC_TRACES, PublicTrace, fetch

CONTENT = b'{"traceEvents": []}'


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and writes no log."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of a folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def trace(path: str, content: bytes = CONTENT) -> PublicTrace:
    """A trace of a repository, which is served at its `path`."""
    sha256 = hashlib.sha256(content).hexdigest()
    return PublicTrace("job/rank0.json", sha256, len(content), "repo", "MIT", path, "main")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is served as a repository; traces are fetched into another."""
    pytest.importorskip("pooch")
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.setattr(public_traces, "FOLDER", tmp_path / "traces")
    with served(folder) as address:
        monkeypatch.setattr(PublicTrace, "url", property(lambda one: f"{address}/{one.path}"))
        yield folder


def test_a_trace_is_fetched_to_its_name(repository):
    """Folders are made."""
    (repository / "x.json").write_bytes(CONTENT)
    one = trace("x.json")

    fetch(one)

    assert one.file.read_bytes() == CONTENT


def test_a_trace_in_an_archive_is_taken_out_of_it(repository):
    """By its file name, in any folder."""
    with tarfile.open(repository / "all.tar.gz", "w:gz") as archive:
        for name, content in {"deep/other.json": b"", "deep/rank0.json": CONTENT}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    one = trace("all.tar.gz")

    fetch(one)

    assert one.file.read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["x.json", "all.tar.gz"])
def test_another_content_is_refused(repository, name):
    """A repository may have changed the file."""
    (repository / "x.json").write_bytes(b"another")
    with tarfile.open(repository / "all.tar.gz", "w:gz") as archive:
        archive.add(repository / "x.json", "rank0.json")
    one = trace(name)

    with pytest.raises(ValueError, match=r"hash|checksum"):
        fetch(one)

    assert not one.file.exists()


def test_traces_that_are_here_are_those_of_the_registry():
    """Tests expect certain answers to them."""
    here = [one for one in PUBLIC_TRACES if one.file.is_file()]

    assert [
        one.name
        for one in here
        if hashlib.sha256(one.file.read_bytes()).hexdigest() != one.sha256
        or one.file.stat().st_size != one.size
    ] == []


def test_every_trace_names_its_repository_and_licence():
    """And lies in a place of its own."""
    names = [one.name for one in PUBLIC_TRACES]

    assert len(set(names)) == len(names)
    assert all(one.repository.count("/") == 1 and one.licence for one in PUBLIC_TRACES)
