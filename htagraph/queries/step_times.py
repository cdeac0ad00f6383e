"""Steps: their length, the work they launch, and what each device does in them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.intervals import States, sum_by_code
from htagraph.lookup.device_states import device_states, devices_of, time_by_class
from htagraph.lookup.steps import step_at, steps_in
from htagraph.model.answers import STEP_TIMES
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.window import Window

__all__ = ["step_times"]


def step_times(dag: Dag, window: Window) -> pd.DataFrame:
    """Steps that overlap the window, each with what every device did during it.

    Returns
    -------
    DataFrame, schema `answers.STEP_TIMES`
        By time. Steps are not clipped to the window. The parts of a row add up to ``dur_ns``:
        compute, exposed communication, exposed copies, idle, as in the temporal breakdown.
    """
    steps = steps_in(dag.events, window)
    start = steps["start_ns"].to_numpy(np.int64)
    end = start + steps["dur_ns"].to_numpy(np.int64)
    devices = devices_of(dag)
    whole = Window(
        int(min(start.min(initial=dag.span.start_ns), dag.span.start_ns)),
        int(max(end.max(initial=dag.span.end_ns), dag.span.end_ns)),
        "steps",
    )
    found = device_states(dag, whole)
    parts = [_one_device(dag, found, device, steps) for device in devices.tolist()]
    parts = parts or [_no_device(start, end)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    n = max(len(devices), 1)
    rows = np.tile(np.arange(len(steps)), n)
    frame = STEP_TIMES.frame(
        {
            "step": steps["step"].to_numpy()[rows],
            "name": steps["name"].to_numpy()[rows],
            "start_ns": start[rows],
            "dur_ns": (end - start)[rows],
            "device": np.repeat(devices if len(devices) else np.array([-1]), len(steps)),
            **columns,
        }
    )
    return frame.sort_values(["step", "device"], ignore_index=True)


def _one_device(dag: Dag, found: States, device: int, steps: pd.DataFrame) -> dict[str, I64]:
    """What a device did in each step, and what was launched for it there."""
    events = dag.events
    work = np.flatnonzero((dag.launch >= 0) & (events.device == device))
    called = events.ts_ns[dag.launch[work]]
    step = step_at(steps, called)
    within, n = step >= 0, len(steps)
    start = steps["start_ns"].to_numpy(np.int64)
    parts = time_by_class(found, device, start, start + steps["dur_ns"].to_numpy(np.int64))
    return {
        "n_launches": np.bincount(step[within], minlength=n),
        "launched_ns": sum_by_code(step[within], events.dur_ns[work[within]], n),
        **{f"{name}_ns": time_ns for name, time_ns in parts.items()},
    }


def _no_device(start: I64, end: I64) -> dict[str, I64]:
    """The parts of a trace without device work: idle throughout."""
    zero = np.zeros(len(start), dtype=np.int64)
    names = ("n_launches", "launched_ns", "compute_ns", "communication_ns", "memory_ns")
    return dict.fromkeys(names, zero) | {"idle_ns": end - start}
