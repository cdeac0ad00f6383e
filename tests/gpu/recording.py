"""Captures of the programs of this room, all written by htagraph's own handler."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from torch.profiler import profile, schedule

import htagraph as hg
from tests.gpu.machine import Machine

_WAIT, _WARM_UP = 1, 2

Step = Callable[[], object]


def record_steps(machine: Machine, out: Path, name: str, step: Step, *, n_steps: int = 4) -> Path:
    """The trace of some steps; each ends when the device is done."""
    plan = schedule(wait=_WAIT, warmup=_WARM_UP, active=n_steps, repeat=1)
    ready = hg.handler(out / name, report=False)
    with profile(schedule=plan, on_trace_ready=ready, record_shapes=True) as profiler:
        for _ in range(_WAIT + _WARM_UP + n_steps):
            step()
            machine.wait()
            profiler.step()
    return _only_trace(out, name)


def record_block(machine: Machine, out: Path, name: str, block: Step) -> Path:
    """The trace of a block without steps."""
    with profile(on_trace_ready=hg.handler(out / name, report=False), record_shapes=True):
        block()
        machine.wait()
    return _only_trace(out, name)


def _only_trace(out: Path, name: str) -> Path:
    """The trace that the handler wrote, with a name that does not depend on the time."""
    for thread in threading.enumerate():
        if thread.name == "htagraph-capture":
            thread.join()
    (written,) = (out / name).glob("*.pt.trace.json.gz")
    kept = written.replace(out / f"{name}.pt.trace.json.gz")
    (out / name).rmdir()
    return kept
