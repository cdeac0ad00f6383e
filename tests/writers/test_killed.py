"""A writer that is killed leaves nothing half-written under the name it was asked for."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

_ENDLESS = """
import sys
from htagraph.writers.output_file import output_file

with output_file(sys.argv[1]) as file:
    while True:
        file.write(b"x" * 65536)
        print("wrote", flush=True)
"""


@pytest.mark.parametrize("name", ["trace.json", "trace.pftrace.gz", "graph.npz"])
def test_a_killed_writer_leaves_no_file(tmp_path, name):
    """The bytes go to a temporary file, which takes the name only when it is whole."""
    out = tmp_path / name
    with subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, str(out)], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"wrote\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait(timeout=60)

    assert not out.exists()


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_killed_writer_leaves_the_old_file(tmp_path, name):
    """What was there before stays as it was."""
    out = Path(tmp_path) / name
    out.write_bytes(b"old")
    with subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, str(out)], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"wrote\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait(timeout=60)

    assert out.read_bytes() == b"old"
