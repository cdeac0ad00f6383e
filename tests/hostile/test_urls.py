"""A URL is what a user types with ``://``: what a folder holds makes no request."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.readers.discover import find_traces

pytest.importorskip("fsspec", reason="needs fsspec")

TRACE = hg.demo_trace("none")


class Server(ThreadingHTTPServer):
    """A server of one folder that notes what it is asked for."""

    def __init__(self, folder: Path) -> None:
        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def parse_request(self) -> bool:
                asked.append(self.raw_requestline.decode())
                return super().parse_request()

        self.asked: list[str] = []
        asked = self.asked
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of a folder with a trace."""
    folder = tmp_path / "served"
    folder.mkdir()
    shutil.copyfile(TRACE, folder / "x.json.gz")
    with Server(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def archive(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An unpacked archive, the working directory: its folders are named like URLs."""
    secret = tmp_path / "secret"
    secret.mkdir()
    shutil.copyfile(hg.demo_trace("dataloader"), secret / "y.json.gz")
    archive = tmp_path / "archive"
    for name in (f"http:/127.0.0.1:{server.server_port}/x.json.gz", f"file:/{secret}/y.json.gz"):
        (archive / name).parent.mkdir(parents=True)
        shutil.copyfile(TRACE, archive / name)
    monkeypatch.chdir(archive)
    return archive


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "htagraph.cli.start", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "arguments",
    [
        ("report", ".", "--capture", "1", "--no-files"),
        ("info", "**/x.json.gz"),
    ],
)
def test_a_folder_named_like_a_url_is_a_folder(
    arguments: tuple[str, ...], archive: Path, server: Server
) -> None:
    """`report .` sent nine requests, and read what a folder `file:` names elsewhere."""
    done = run(*arguments)

    assert server.asked == []
    assert "Traceback" not in done.stderr


def test_what_is_found_in_a_folder_is_read_there(archive: Path, server: Server) -> None:
    """By all ways to name files, and the traces are those of the folder."""
    of_here = hg.load(TRACE).events
    for where in (".", "**/*.json.gz", [*Path().rglob("*.json.gz")]):
        found = find_traces(where)

        assert len(found) == 2
        assert all(path.is_relative_to(archive) for path in found)
        assert [hg.load(path).events.equals(of_here) for path in found] == [True, True]
    assert server.asked == []


def test_a_url_with_one_slash_is_a_path(archive: Path, server: Server) -> None:
    here, gone = (f"http:/127.0.0.1:{server.server_port}/{name}.json.gz" for name in "xz")

    assert run("info", here).returncode == 0
    assert "no such file" in run("info", gone).stderr
    assert server.asked == []


def test_a_url_that_is_typed_is_asked_for(server: Server, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="fsspec needs it for http")
    url = f"http://127.0.0.1:{server.server_port}/x.json.gz"
    done = run("info", url)

    assert (done.returncode, done.stderr) == (0, "")
    assert any("x.json.gz" in line for line in server.asked)
