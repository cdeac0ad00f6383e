"""Traces that come through pipes."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.cli import pipes
from htagraph.errors import TraceError
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX"),
]


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small trace."""
    file = tmp_path_factory.mktemp("trace") / "rank0.json"
    return simulate(training_rank(steps=1, layers=1)).write(file).read_bytes()


def run(*arguments: str, given: bytes) -> tuple[int, bytes, bytes]:
    """A command with some standard input."""
    command = [sys.executable, "-m", "htagraph", *arguments, "--quiet"]
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_is_a_trace(name: str, content: bytes, tmp_path: Path) -> None:
    """Packed or not; the answer is that of the file."""
    file = tmp_path / "trace.json"
    file.write_bytes(content)
    code, out, _ = run("path", name, given=gzip.compress(content))

    assert (code, out) == run("path", str(file), given=b"")[:2]


def test_a_report_on_standard_input_may_be_made_anew(content: bytes, tmp_path: Path) -> None:
    """Nobody can tell one input from another: as with ``>``, the last one stays."""
    codes = [run("report", "-", "--out", str(tmp_path), given=content)[0] for _ in range(2)]

    assert codes == [0, 0]


def test_an_empty_pipe_is_said_to_be_empty() -> None:
    code, _, error = run("path", "-", given=b"")

    assert (code, error.count(b"\n")) == (1, 1)
    assert error.startswith(b"error: standard input: nothing came through it.")


def test_a_pipe_that_nobody_writes_to_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "_PATIENCE_S", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(TraceError, match="nothing came through it"):
        pipes.from_pipe(pipe)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs POSIX")
def test_a_device_that_never_ends_is_not_kept() -> None:
    """It filled the disk."""
    with pytest.raises(TraceError, match="is a device, not a trace"):
        pipes.from_pipe(Path("/dev/zero"))


def test_from_python_a_pipe_is_refused(tmp_path: Path) -> None:
    """What is read is read more than once."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(TraceError, match="give its bytes"):
        hg.load(pipe)
