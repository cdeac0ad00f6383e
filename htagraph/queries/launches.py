"""Launches one by one: call, delay and queue; and the time in which queues were full."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.arrays.intervals import sum_by_code
from htagraph.arrays.matching import group_starts, running_latest
from htagraph.lookup.attribution import innermost, names_or_empty
from htagraph.lookup.counter_levels import counter_levels, queue_changes
from htagraph.lookup.queues import queues
from htagraph.model.answers import LAUNCH_STATS, QUEUE_BLOCKED
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.window import Window


def _busy_until(dag: Dag) -> I64:
    """End of all earlier work on the stream, for each piece of work; very early for the first."""
    events, by = dag.events, queues(dag, "stream")
    rows = np.flatnonzero(events.is_device)
    rows = rows[np.lexsort((events.end_ns[rows], events.ts_ns[rows], by.of_event[rows]))]
    starts = group_starts(by.of_event[rows])
    latest = events.end_ns[rows[running_latest(events.end_ns[rows], starts)]]
    out = np.full(len(events), np.iinfo(np.int64).min // 2, dtype=np.int64)
    follows = np.flatnonzero(~starts)
    out[rows[follows]] = latest[follows - 1]
    return out


def launch_stats(
    dag: Dag, window: Window, *, launch_cutoff_ns: int = 50_000, delay_cutoff_ns: int = 100_000
) -> pd.DataFrame:
    """API calls in the window that launched device work, one row each.

    A call launched work if they share a correlation id, whatever its name: graph launches,
    cooperative launches, copies, driver and HIP calls.

    ::

        cpu 1    | [cudaLaunchKernel]
        stream 7 |          [ earlier work   ]   [kernel      ]
                   |-launch_ns------||-queued-|  |-kernel_ns--|
                                     |--delay---|

    `window`: calls that begin in it; times are not clipped. `launch_cutoff_ns`: longer calls are
    outliers. `delay_cutoff_ns`: longer delays are outliers. By time. Device work without a recorded
    launch has no row; `quality` counts it.
    """
    events = dag.events
    work = np.flatnonzero(dag.launch >= 0)
    called = events.ts_ns[dag.launch[work]]
    work = work[(called >= window.start_ns) & (called < window.end_ns)]
    call = dag.launch[work].astype(np.int64)
    order = np.lexsort(
        (events.stream[work], events.device[work], events.end_ns[work], events.ts_ns[work], call)
    )
    work, call = work[order], call[order]
    begins = np.flatnonzero(group_starts(call)) if len(call) else order
    number = np.cumsum(group_starts(call)) - 1
    kernel_ns = sum_by_code(number, events.dur_ns[work], len(begins))
    n_kernels = np.bincount(number, minlength=len(begins))
    first, call = work[begins], call[begins]
    in_time = np.lexsort((events.correlation[call], events.end_ns[call], events.ts_ns[call]))
    first, call, kernel_ns, n_kernels = (
        column[in_time] for column in (first, call, kernel_ns, n_kernels)
    )
    launch_ns, call_end = events.dur_ns[call], events.end_ns[call]
    delay_end = np.maximum(events.ts_ns[first], call_end)
    queued_until = np.clip(_busy_until(dag)[first], call_end, delay_end)
    op = innermost(dag, call, (EventKind.OP, EventKind.ANNOTATION))
    return LAUNCH_STATS.frame(
        {
            "event": call,
            "correlation": events.correlation[call],
            "call": events.names(call),
            "op": names_or_empty(dag, op),
            "name": events.names(first),
            "device": events.device[first],
            "stream": events.stream[first],
            "ts_ns": events.ts_ns[call],
            "op_delay_ns": np.where(op >= 0, events.ts_ns[call] - events.ts_ns[op], 0),
            "launch_ns": launch_ns,
            "kernel_ns": kernel_ns,
            "launch_delay_ns": delay_end - call_end,
            "queued_ns": queued_until - call_end,
            "n_kernels": n_kernels,
            "is_short_kernel": (kernel_ns < launch_ns) & (launch_ns <= launch_cutoff_ns),
            "is_launch_outlier": launch_ns > launch_cutoff_ns,
            "is_delay_outlier": delay_end - call_end > delay_cutoff_ns,
        }
    )


def queue_blocked(dag: Dag, window: Window, *, max_queue_length: int = 1_024) -> pd.DataFrame:
    """Time in which each stream's launch queue was full, and time of blocked launch calls.

    `max_queue_length`: outstanding launches from which on a queue counts as full. One row per
    stream with work. A blocked call returned only when work started and made room.
    """
    by, events, edges = queues(dag, "stream"), dag.events, dag.edges
    track, start_ns, end_ns, value = counter_levels(queue_changes(dag), window)
    full = value >= max_queue_length
    full_ns = sum_by_code(track[full], (end_ns - start_ns)[full], len(by))
    blocked = edges.head[edges.kind == EdgeKind.QUEUE] >> 1
    work = np.flatnonzero(np.isin(dag.launch, blocked) & (dag.launch >= 0))
    call, first = np.unique(dag.launch[work], return_index=True)
    begin = np.clip(events.ts_ns[call], window.start_ns, window.end_ns)
    end = np.clip(events.end_ns[call], window.start_ns, window.end_ns)
    queue = by.of_event[work[first]]
    inside = end > begin
    return QUEUE_BLOCKED.frame(
        {
            "device": by.device,
            "stream": by.stream,
            "full_ns": full_ns,
            "full_share": full_ns / max(window.dur_ns, 1),
            "n_blocked": np.bincount(queue[inside], minlength=len(by)),
            "blocked_ns": sum_by_code(queue[inside], (end - begin)[inside], len(by)),
        }
    )
