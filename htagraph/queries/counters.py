"""What changes over time: launches outstanding on each stream, and the bandwidth of copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.intervals import sum_by_code
from htagraph.algorithms.matching import group_starts
from htagraph.errors import QueryError
from htagraph.lookup.queues import queues
from htagraph.model.answers import COUNTERS, QUEUE_BLOCKED
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.window import Window

__all__ = ["COUNTER_NAMES", "counters", "queue_blocked"]

I64 = npt.NDArray[np.int64]

_BYTES_PER_S = 1_000_000_000


class _Steps(NamedTuple):
    """By how much a counter of a lane changes when; lanes are dense."""

    lane: I64
    ts_ns: I64
    change: I64
    device: I64
    stream: I64
    name: npt.NDArray[np.object_]
    unit: int


def _queue_steps(dag: Dag) -> _Steps:
    """Return +1 when a launch call begins and -1 when its first work starts, per stream."""
    by, events = queues(dag, "stream"), dag.events
    work = np.flatnonzero(dag.launch >= 0)
    work = work[np.lexsort((events.ts_ns[work], by.of_event[work], dag.launch[work]))]
    work = work[group_starts(dag.launch[work], by.of_event[work])] if len(work) else work
    lane = by.of_event[work]
    return _Steps(
        lane=np.concatenate([lane, lane]),
        ts_ns=np.concatenate([events.ts_ns[dag.launch[work]], events.ts_ns[work]]),
        change=np.repeat(np.array([1, -1], dtype=np.int64), len(work)),
        device=by.device,
        stream=by.stream,
        name=np.full(len(by), "queue_length", dtype=object),
        unit=1,
    )


def _bandwidth_steps(dag: Dag) -> _Steps:
    """Return plus and minus the bandwidth of each copy or fill at its start and end, per device and direction."""
    events = dag.events
    work = np.flatnonzero(
        np.isin(events.kind, (EventKind.MEMCPY, EventKind.MEMSET)) & (events.dur_ns > 0)
    )
    recorded = events.column("memory_bandwidth", -1.0)[work].astype(np.float64)
    n_bytes = events.column("bytes", -1)[work].astype(np.float64)
    rate = np.where(recorded >= 0, recorded, n_bytes / events.dur_ns[work])
    known = (recorded >= 0) | (n_bytes >= 0)
    work = work[known]
    # Whole bytes per second, so that what a copy adds it also takes away exactly.
    whole = np.rint(rate[known] * _BYTES_PER_S).astype(np.int64)
    texts = np.array([text.partition(" (")[0] for text in events.symbols.texts], dtype=object)
    names, label = np.unique(texts[events.name[work]].astype(str), return_inverse=True)
    packed, lane = np.unique(
        events.device[work].astype(np.int64) * max(len(names), 1) + label, return_inverse=True
    )
    device, name = np.divmod(packed, max(len(names), 1))
    return _Steps(
        lane=np.concatenate([lane, lane]),
        ts_ns=np.concatenate([events.ts_ns[work], events.end_ns[work]]),
        change=np.concatenate([whole, -whole]),
        device=device,
        stream=np.full(len(packed), -1, dtype=np.int64),
        name=names.astype(object)[name],
        unit=_BYTES_PER_S,
    )


COUNTER_NAMES: dict[str, Callable[[Dag], _Steps]] = {
    "queue_length": _queue_steps,
    "memory_bandwidth": _bandwidth_steps,
}
"""What can be counted."""


class _Levels(NamedTuple):
    """Values of the lanes from one change to the next, within a window."""

    lane: I64
    start_ns: I64
    end_ns: I64
    value: I64


def _levels(steps: _Steps, window: Window) -> _Levels:
    """Return the values between changes; what happens at one instant is one change."""
    order = np.lexsort((steps.ts_ns, steps.lane))
    lane, ts_ns = steps.lane[order], steps.ts_ns[order]
    total = np.cumsum(steps.change[order])
    last = np.flatnonzero(np.append(group_starts(lane, ts_ns)[1:], True)) if len(lane) else order
    lane, start, value = lane[last], ts_ns[last], total[last]
    changes = np.flatnonzero(group_starts(lane) | (value != np.roll(value, 1)))
    lane, start, value = lane[changes], start[changes], value[changes]
    follows = np.append(lane[1:] == lane[:-1], False)[: len(lane)]
    end = np.where(follows, np.roll(start, -1), np.maximum(window.end_ns, start))
    inside = (end > window.start_ns) & (start < window.end_ns)
    start, end = np.maximum(start[inside], window.start_ns), np.minimum(end[inside], window.end_ns)
    return _Levels(lane[inside], start, end, value[inside])


def counters(dag: Dag, window: Window, *, name: str = "queue_length") -> pd.DataFrame:
    """Return the changes of a counter: launched and not yet started per stream, or the bandwidth of copies per device.

    ::

        cpu 1    | [launch][launch]
        stream 7 |     [a     ]    [b   ]
        queue    |0[1 ][0 ][1  ][0

    Parameters
    ----------
    dag : Dag
    window : Window
    name : {"queue_length", "memory_bandwidth"}
        A launch counts from the start of its call to the start of its first work, a graph of many
        kernels as one. Bandwidth is summed over the copies of one direction that run at once, in
        1e9 bytes per second.

    Returns
    -------
    DataFrame, schema `answers.COUNTERS`
        By device and stream, in order of time. The level at the start of the window comes first
        where something happened before.

    Raises
    ------
    QueryError
        If there is no such counter.
    """
    if name not in COUNTER_NAMES:
        raise QueryError(
            f"there is no counter {name!r}.", hint=f"one of {', '.join(COUNTER_NAMES)}."
        )
    steps = COUNTER_NAMES[name](dag)
    found = _levels(steps, window)
    return COUNTERS.frame(
        {
            "ts_ns": found.start_ns,
            "dur_ns": found.end_ns - found.start_ns,
            "device": steps.device[found.lane],
            "stream": steps.stream[found.lane],
            "name": steps.name[found.lane],
            "value": found.value / steps.unit,
        }
    )


def queue_blocked(dag: Dag, window: Window, *, max_queue_length: int = 1_024) -> pd.DataFrame:
    """Return for how long the launch queue of each stream was full, and how long launch calls were blocked for it.

    Parameters
    ----------
    dag : Dag
    window : Window
    max_queue_length : int, default=1_024
        Launches outstanding from which the queue of a stream counts as full.

    Returns
    -------
    DataFrame, schema `answers.QUEUE_BLOCKED`
        One row per stream that has work. A call is blocked if it returned only when work started
        and made room.
    """
    steps = _queue_steps(dag)
    found = _levels(steps, window)
    full = found.value >= max_queue_length
    full_ns = sum_by_code(
        found.lane[full], (found.end_ns - found.start_ns)[full], len(steps.device)
    )
    by, events, edges = queues(dag, "stream"), dag.events, dag.edges
    blocked = edges.head[edges.kind == EdgeKind.QUEUE] >> 1
    work = np.flatnonzero(np.isin(dag.launch, blocked) & (dag.launch >= 0))
    call, first = np.unique(dag.launch[work], return_index=True)
    begin = np.clip(events.ts_ns[call], window.start_ns, window.end_ns)
    end = np.clip(events.end_ns[call], window.start_ns, window.end_ns)
    lane = by.of_event[work[first]]
    inside = end > begin
    return QUEUE_BLOCKED.frame(
        {
            "device": by.device,
            "stream": by.stream,
            "full_ns": full_ns,
            "full_share": full_ns / max(window.dur_ns, 1),
            "n_blocked": np.bincount(lane[inside], minlength=len(by)),
            "blocked_ns": sum_by_code(lane[inside], (end - begin)[inside], len(by)),
        }
    )
