"""Traces that arrive through pipes."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

import htagraph as hg
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
    """Compressed or not; the answer is that of the file."""
    file = tmp_path / "trace.json"
    file.write_bytes(content)
    code, out, _ = run("path", name, given=gzip.compress(content))

    assert (code, out) == run("path", str(file), given=b"")[:2]


def test_an_empty_pipe_is_one_line() -> None:
    code, _, error = run("path", "-", given=b"")

    assert (code, error.count(b"\n")) == (1, 1)
    assert error.startswith(b"error: standard input: nothing arrived.")


def test_from_python_a_pipe_is_refused(tmp_path: Path) -> None:
    """The reader reads more than once."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(TraceError, match="give its bytes"):
        hg.load(pipe)
