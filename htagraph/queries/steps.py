"""Steps and devices: how long steps are, which are typical, and what devices do meanwhile."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.arrays.intervals import sum_by_code
from htagraph.explain.odd_steps import odd_step_reasons
from htagraph.lookup.done_steps import done_steps
from htagraph.lookup.queues import CLASSES, device_states, devices_of, time_by_class
from htagraph.lookup.steady_steps import steady_steps
from htagraph.lookup.steps import last_begun, step_events
from htagraph.model.answers import STEADY_STATE, STEP_TIMES, TEMPORAL_BREAKDOWN
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.window import Window


def step_times(dag: Dag, window: Window) -> pd.DataFrame:
    """Steps that overlap the window, each with what every device did during it.

    A step lasts from when the one before was done until all its work is done. By time. Steps are
    not clipped to the window. The parts of a row add up to ``dur_ns``: compute, exposed
    communication, exposed copies, idle, as in the temporal breakdown.
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
        _launched(dag, device, number)
        | {f"{name}_ns": ns for name, ns in time_by_class(found, device, start, end).items()}
        for device in devices.tolist()
    ]
    if not parts:  # idle throughout
        names = ("n_launches", "launched_ns", "compute_ns", "communication_ns", "memory_ns")
        parts = [dict.fromkeys(names, np.zeros_like(start)) | {"idle_ns": end - start}]
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


def steady_state(dag: Dag, window: Window) -> pd.DataFrame:
    """Steps that overlap the window: which are steady, which represents them, how others differ.

    Steps are steady if at least three do the same work and take about as long
    (`htagraph.lookup.steady_steps` has the limits); the one of median length represents them. All
    steps of the trace are compared. By time. With fewer than three typical steps, none is steady.
    """
    steady = steady_steps(dag)
    parts, n = steady.parts, len(steady.parts.step)
    step, is_device = parts.part >> 1, dag.events.is_device[parts.event]
    period = parts.next_ns - parts.start_ns
    shown = np.flatnonzero(
        (parts.start_ns < window.end_ns) & (dag.events.end_ns[parts.step] > window.start_ns)
    )
    columns = {
        "step": np.arange(n),
        "name": dag.events.names(parts.step),
        "start_ns": parts.start_ns,
        "dur_ns": dag.events.dur_ns[parts.step],
        "period_ns": period,
        "delta_ns": steady.compared_ns - steady.compared_ns[steady.usual : steady.usual + 1],
        "n_events": np.bincount(step, minlength=n),
        "n_different": steady.n_different,
        "device_ns": sum_by_code(step[is_device], dag.events.dur_ns[parts.event[is_device]], n),
        "is_steady": steady.is_steady,
        "is_representative": steady.is_steady & (np.arange(n) == steady.usual),
        "reason": np.array(odd_step_reasons(dag, steady), dtype=object),
    }
    return STEADY_STATE.frame({name: values[shown] for name, values in columns.items()})


_PARTS = ("idle", *(member.label for member in CLASSES))


def temporal_breakdown(dag: Dag, window: Window) -> pd.DataFrame:
    """Time of each device by what it does; the parts tile the window.

    Concurrent classes count as compute before communication before memory, so communication and
    memory are exposed time, without any compute.

    ::

        stream 7   |   [gemm     ]        [copy]
        stream 9   |         [nccl   ]
        counts as  | i [compute  ][n ][i  ][m  ]

    One row per device that has work in the trace.
    """
    devices, found = devices_of(dag), device_states(dag, window)
    start, end = (np.array([at], dtype=np.int64) for at in (window.start_ns, window.end_ns))
    times = [time_by_class(found, device, start, end) for device in devices.tolist()]
    parts = {name: np.array([int(of[name][0]) for of in times], np.int64) for name in _PARTS}
    return TEMPORAL_BREAKDOWN.frame(
        {"device": devices, "window_ns": np.full(len(devices), window.dur_ns)}
        | {f"{name}_ns": ns for name, ns in parts.items()}
        | {f"{name}_share": ns / max(window.dur_ns, 1) for name, ns in parts.items()}
    )
