"""Steps: their length, the work they launch, and what each device does in them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.intervals import States, sum_by_code
from htagraph.lookup.device_states import device_states, devices_of, time_by_class
from htagraph.lookup.done_steps import done_steps
from htagraph.lookup.steps import last_begun, step_events
from htagraph.model.answers import STEP_TIMES
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.window import Window


def step_times(dag: Dag, window: Window) -> pd.DataFrame:
    """Steps that overlap the window, each with what every device did during it.

    A step lasts from when the one before was done until all its work is done.

    Returns
    -------
    DataFrame, schema `answers.STEP_TIMES`
        By time. Steps are not clipped to the window. The parts of a row add up to ``dur_ns``:
        compute, exposed communication, exposed copies, idle, as in the temporal breakdown.
    """
    steps = done_steps(dag)
    begun = (steps.start_ns < window.end_ns) & (steps.end_ns > window.start_ns)
    number = np.flatnonzero(begun)
    start, end = steps.start_ns[number], steps.end_ns[number]
    devices, span = devices_of(dag), dag.span
    whole = Window(
        int(min(start.min(initial=span.start_ns), span.start_ns)),
        int(max(end.max(initial=span.end_ns), span.end_ns)),
        "steps",
    )
    found = device_states(dag, whole)
    parts = [
        _launched(dag, device, number) | _states(found, device, start, end)
        for device in devices.tolist()
    ] or [_no_device(start, end)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    rows = np.tile(number, len(parts))
    frame = STEP_TIMES.frame(
        {
            "step": rows,
            "name": steps.names[rows],
            "start_ns": steps.start_ns[rows],
            "dur_ns": steps.lengths_ns[rows],
            "device": np.repeat(devices if len(devices) else np.array([-1]), len(number)),
            **columns,
        }
    )
    return frame.sort_values(["step", "device"], ignore_index=True)


def _launched(dag: Dag, device: int, number: I64) -> dict[str, I64]:
    """What was launched for a device in the host ranges of some steps."""
    events, (rows, _) = dag.events, step_events(dag.events)
    work = np.flatnonzero((dag.launch >= 0) & (events.device == device))
    step = last_begun(events.ts_ns[rows], events.end_ns[rows], events.ts_ns[dag.launch[work]])
    within, n = step >= 0, len(rows)
    return {
        "n_launches": np.bincount(step[within], minlength=n)[number],
        "launched_ns": sum_by_code(step[within], events.dur_ns[work[within]], n)[number],
    }


def _states(found: States, device: int, start: I64, end: I64) -> dict[str, I64]:
    """What a device did in some steps."""
    parts = time_by_class(found, device, start, end)
    return {f"{name}_ns": time_ns for name, time_ns in parts.items()}


def _no_device(start: I64, end: I64) -> dict[str, I64]:
    """The parts of a trace without device work: idle throughout."""
    zero = np.zeros(len(start), dtype=np.int64)
    names = ("n_launches", "launched_ns", "compute_ns", "communication_ns", "memory_ns")
    return dict.fromkeys(names, zero) | {"idle_ns": end - start}
