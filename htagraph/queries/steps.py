"""Steps and devices: how long steps are, which are typical, what devices do, why they are idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import QUANTILES, distribution, gather
from htagraph.arrays.intervals import Intervals, sum_by_code
from htagraph.arrays.matching import group_starts
from htagraph.errors import GraphError
from htagraph.explain.idle_parts import (
    NO_EVENT_NAMES,
    IdleCause,
    IdleParts,
    idle_gaps,
    idle_parts,
    part_names,
)
from htagraph.explain.odd_steps import odd_step_reasons
from htagraph.lookup.attribution import frames_at, names_or_empty
from htagraph.lookup.done_steps import done_steps
from htagraph.lookup.queues import CLASSES, NEVER, device_states, devices_of, queues, time_by_class
from htagraph.lookup.steady_steps import steady_steps
from htagraph.lookup.steps import last_begun, step_events
from htagraph.lookup.windowed import device_work
from htagraph.model.answers import (
    IDLE_CATEGORIES,
    IDLE_INTERVALS,
    IDLE_TIME,
    STEADY_STATE,
    STEP_TIMES,
    TEMPORAL_BREAKDOWN,
)
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.schema import categorical
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


Codes = npt.NDArray[np.integer]


def idle_time(dag: Dag, window: Window, *, per: str = "device") -> pd.DataFrame:
    """Idle time of each device, or stream, by what it waited for; it adds up to all idle time.

    `htagraph.explain.idle_parts` describes how causes are found; `idle_intervals` lists intervals.
    `per`: a device is idle when none of its streams runs anything. Largest first within a device or
    stream.
    """
    by = queues(dag, per)
    gap = idle_gaps(dag, window, by)
    ended_by = by.next_work(dag, gap.group, gap.end)
    blocks = [_sums(dag, gap, parts) for parts in idle_parts(dag, window, gap, ended_by)]
    none = (np.empty(0, dtype=np.int64),) * 7
    columns = [np.concatenate(parts) for parts in zip(none, *blocks, strict=True)]
    code, rows = _groups(columns[:-2])
    time, n_gaps = (sum_by_code(code, column, len(rows)) for column in columns[-2:])
    queue, cause, op, name, frame_name = (column[rows] for column in columns[:-2])
    total = sum_by_code(queue, time, len(by))
    if not np.array_equal(total, sum_by_code(gap.group, gap.end - gap.start, len(by))):
        raise GraphError(f"the causes of idle time in {window.name!r} do not add up to it.")
    texts = np.append(dag.events.symbols.array, "")
    out = IDLE_TIME.frame(
        {
            "device": by.device[queue],
            "stream": by.stream[queue],
            "cause": categorical(cause, IdleCause.labels()),
            "op": texts[op],
            "name": np.where(name >= 0, texts[name], NO_EVENT_NAMES[cause]),
            "frame": texts[frame_name],
            "n_gaps": n_gaps,
            "idle_ns": time,
            "idle_share": time / np.maximum(total[queue], 1),
        }
    )
    order_by = ["device", "stream", "idle_ns", "cause", "op", "name", "frame"]
    return out.sort_values(
        order_by, ascending=[True, True, False, True, True, True, True], ignore_index=True
    )


def _groups(keys: Sequence[Codes]) -> tuple[I64, I64]:
    """Group of each row by its keys, from -1, and a row of each group."""
    code = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        code *= int(key.max(initial=-1)) + 2
        code += key + 1
        code = pd.factorize(code)[0]
    rows = np.empty(int(code.max(initial=-1)) + 1, dtype=np.int64)
    rows[code] = np.arange(len(code))
    return code, rows


def _sums(dag: Dag, gap: Intervals, parts: IdleParts) -> tuple[I64, ...]:
    """Queue, cause, operator, name and frame of parts, with their time and number of intervals."""
    name, op = part_names(dag, parts)
    frame_name = gather(dag.events.name, frames_at(dag, parts.lane, parts.start_ns))
    keys: list[Codes] = [gap.group[parts.interval], parts.cause, op, name, frame_name]
    code, rows = _groups(keys)
    of_intervals = code * len(gap.start)
    of_intervals += parts.interval
    of_intervals.sort()
    of_intervals = of_intervals[group_starts(of_intervals)] // max(len(gap.start), 1)
    return (
        *(key[rows].astype(np.int64) for key in keys),
        sum_by_code(code, parts.end_ns - parts.start_ns, len(rows)),
        np.bincount(of_intervals, minlength=len(rows)),
    )


def idle_intervals(dag: Dag, window: Window, *, per: str = "device") -> pd.DataFrame:
    """Every idle interval, tiled by what the device waited for.

    Binding edges are followed back from the work that ends the interval until the interval begins.
    The last interval of the window is explained by the work after it.

    ::

        cpu 1    | [aten::mul [launch]]      host gap      [aten::add [launch >a]]
        stream 7 | [mul       ]                                          [add <a ]
        idle     |             [.........untraced_code........][..host..][la]

    `per`: a device is idle when none of its streams runs anything. In order of time within each
    device or stream.
    """
    by = queues(dag, per)
    gap = idle_gaps(dag, window, by)
    ended_by = by.next_work(dag, gap.group, gap.end)
    parts = IdleParts.joined(idle_parts(dag, window, gap, ended_by))
    name, op = part_names(dag, parts)
    texts = np.append(dag.events.symbols.array, "")
    queue = gap.group[parts.interval]
    return IDLE_INTERVALS.frame(
        {
            "interval": parts.interval,
            "device": by.device[queue],
            "stream": by.stream[queue],
            "start_ns": parts.start_ns,
            "dur_ns": parts.end_ns - parts.start_ns,
            "cause": categorical(parts.cause, IdleCause.labels()),
            "event": parts.event,
            "op": texts[op],
            "name": np.where(parts.event >= 0, texts[name], NO_EVENT_NAMES[parts.cause]),
            "frame": names_or_empty(dag, frames_at(dag, parts.lane, parts.start_ns)),
            "ended_by": ended_by[parts.interval],
        }
    )


_CATEGORIES = ("host_wait", "kernel_wait", "other")


def idle_categories(dag: Dag, window: Window, *, kernel_wait_ns: int = 30_000) -> pd.DataFrame:
    """Gaps of each stream in three categories: ``host_wait``, ``kernel_wait`` and other.

    A gap is a ``host_wait`` if the work that ends it was launched after the gap began, else a
    ``kernel_wait`` if it is short, else other. Only time between two kernels is a gap, not that
    before the first or after the last. `kernel_wait_ns`: gaps shorter than this are kernel waits.
    Three rows per stream that has work in the window; all is 0 of a category without gaps.
    """
    by = queues(dag, "stream")
    work, queue, latest = by.in_order(device_work(dag, window))
    follows = np.flatnonzero(latest > NEVER)
    before, later = latest[follows], work.event[follows]
    length = work.start_ns[follows] - before
    launched = gather(dag.events.ts_ns, dag.launch[later], NEVER)
    category = np.where(launched > before, 0, np.where(length < kernel_wait_ns, 1, 2))
    is_gap = length > 0
    n, lanes = len(_CATEGORIES), np.unique(queue)
    found = distribution((queue[follows] * n + category)[is_gap], length[is_gap], QUANTILES)
    row = np.repeat(lanes, n) * n + np.tile(np.arange(n), len(lanes))

    def of_row(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        out = np.zeros(len(by) * n, dtype=values.dtype)
        out[found.group] = values
        return out[row]

    time = of_row(found.total)
    total = time.reshape(-1, n).sum(axis=1).repeat(n)
    return IDLE_CATEGORIES.frame(
        {
            "device": by.device[row // n],
            "stream": by.stream[row // n],
            "category": categorical(row % n, _CATEGORIES),
            "n_gaps": of_row(found.n),
            "idle_ns": time,
            "idle_share": time / np.maximum(total, 1),
            **{name: of_row(values) for name, values in found.spread.items()},
        }
    )
