"""Runs that die while they are sampled: they end as without, and what they leave can be read."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import htagraph as hg

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="signals")]

COMPUTES = """
import ctypes, os, signal, sys, threading, time
from htagraph.capture.sampler import Sampler
sampler = Sampler(0.2)
if sys.argv[1] == "sampled":
    sampler.start()
def compute(n=0):
    end = time.perf_counter() + 0.1
    while time.perf_counter() < end:
        n += 1
threading.Thread(target=compute, daemon=True).start()
compute()
"""
ENDS = {
    "returns": ("pass", 0),
    "exception": ("raise ZeroDivisionError('planted')", 1),
    "exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(4)", 4),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(9)", -signal.SIGTERM),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "crash in C": ("ctypes.string_at(0)", -signal.SIGSEGV),
    "abort": ("os.abort()", -signal.SIGABRT),
    "exec": ("os.execv('/bin/sh', ['sh', '-c', 'exit 5'])", 5),
}


def ended(program: str, *words: str) -> tuple[int, str]:
    """Exit code, and what was printed as an error."""
    command = [sys.executable, "-W", "ignore", "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("end", ENDS)
def test_a_run_ends_as_without_samples(end: str) -> None:
    """With the same exit code and the same traceback."""
    program, code = COMPUTES + ENDS[end][0], ENDS[end][1]

    sampled = ended(program, "sampled")

    assert sampled[0] == code
    assert sampled == ended(program, "plain")


WRITES = """
import json, sys, time
from htagraph.capture.sampler import Sampler
sampler = Sampler()
def f(n):
    return f(n - 1) if n else None
sampler.start()
time.sleep(0.05)
sampler.stop()
if not sampler.n_samples:
    sys.exit(9)
row = sampler._runs[:8]
for number in range(250_000):
    sampler._runs.extend(row)
print("begins", flush=True)
sampler.write_into(sys.argv[1])
print("ended", flush=True)
"""


def test_a_run_that_is_killed_while_it_writes_leaves_a_trace_that_can_be_read(tmp_path: Path):
    """All that the profiler wrote, and no samples or some."""
    n_killed = 0
    for wait_s in (0.05, 0.2, 0.5, 1):
        file = tmp_path / "trace.json"
        op = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1, "dur": 3}
        file.write_text(json.dumps({"baseTimeNanoseconds": 0, "traceEvents": [op]}))
        command = [sys.executable, "-W", "ignore", "-c", WRITES, str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            assert run.stdout.readline() == "begins\n"
            time.sleep(wait_s)
            run.kill()
            n_killed += "ended" not in run.stdout.read()

        events = hg.load(file).recording.events
        assert (events.names() == "op").sum() == 1
    assert n_killed > 0


TRAINS = """
import ctypes, os, signal, sys, time
import torch
import htagraph as hg
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
with hg.profile(sys.argv[1], steps=3, report=False) as profiler:
    for step in range(12):
        model(torch.randn(16, 64)).sum().backward()
        if step == 4:
            END
        profiler.step()
"""


@pytest.mark.torch
@pytest.mark.parametrize("end", [end for end in ENDS if end != "returns"])
def test_a_training_that_dies_leaves_a_trace_or_none(tmp_path: Path, end: str) -> None:
    """In the second of three steps. With an exception, the block writes what it has."""
    pytest.importorskip("torch")
    statement, code = ENDS[end]

    found, error = ended(TRAINS.replace("END", "; ".join(statement.split("\n"))), str(tmp_path))

    assert found == code
    assert ("ZeroDivisionError: planted" in error) is (end == "exception")
    assert "sampler" not in error
    for file in tmp_path.glob("*.json*"):
        assert len(hg.load(file).recording.events) > 0
    assert bool(list(tmp_path.glob("*.gz"))) is (end in {"exception", "exit"})
