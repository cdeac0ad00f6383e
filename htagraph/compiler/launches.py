"""LAUNCH: device work starts after the call that enqueued it.

SPAN: a device event ends after it has run.

STREAM: work of one stream runs in order.

QUEUE: a launch waits for room in the launch queue.

A device holds about 1,022 launches that have not started. One more blocks its call until some work
starts.
"""

from __future__ import annotations

import numpy as np

from htagraph.arrays.codes import distinct, gather
from htagraph.arrays.matching import group_starts, running_latest
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.edges import EdgeTable
from htagraph.model.rules import Rule


def launch_edges(structure: Structure) -> EdgeTable:
    """Edges from the START of each launch call to the start of each event that it enqueued.

    A kernel may start while its call still runs, so the call's end is no bound. The lag is the
    launch latency, capped by the measured delay. A graph launch has an edge to each of its kernels.
    Of this and the work before it on its stream, the later arrival binds, each with its learnt
    floor. Measured in eight traces, of 267 kernels launched while that work ended and whose stream
    arrived last: they start 1 us after that, and 3 us after their launch allows it (medians).

    ::

        thread 1   [cudaLaunchKernel]
                   |----- L0 ---->.
        stream 7                  [kernel]
    """
    events, launch = structure.events, structure.launch
    device = structure.queue[launch[structure.queue] >= 0]
    call = launch[device]
    delay = events.ts_ns[device] - events.ts_ns[call]
    rule = np.where(structure.replays[call], Rule.GRAPH_REPLAY, Rule.CORRELATION)
    lag = np.clip(delay, 0, structure.calibration.launch_latency_ns)
    return EdgeTable.of(rule, start_node(call), start_node(device), lag_ns=lag, event=device)


def span_edges(structure: Structure) -> EdgeTable:
    """Edges from start to end of each device event; their lag is the duration.

    ::

        stream 7   [kernel]
                   s ====> e
    """
    device = structure.queue
    lag = structure.events.dur_ns[device]
    return EdgeTable.of(
        Rule.DURATION,
        start_node(device),
        end_node(device),
        lag_ns=lag,
        event=device,
    )


def stream_edges(structure: Structure) -> EdgeTable:
    """Edges to each device event from the work of its stream that ends last before it.

    Where that work had ended, the edge runs from its end with the gap floor as lag. Where it still
    runs (programmatic dependent launch, hardware queues), the edge runs from its START and takes
    the time for which it ran alone, which belongs to it; no time if the later work was only
    launched while it ran, for then the launch is the cause.

    ::

        stream 7   [A    ]  [B    ]            [A     ]
                         |->|                  |==>[B    ]
                       end -> start           start -> start
    """
    events, queue = structure.events, structure.queue
    starts = structure.queue_starts
    best = running_latest(events.end_ns[queue], starts)
    follows = np.flatnonzero(~starts)
    later, earlier = queue[follows], queue[best[follows - 1]]
    gap = events.ts_ns[later] - events.end_ns[earlier]
    overlaps = gap < 0
    was_queued = structure.launched_ns(later) <= events.ts_ns[earlier]
    alone = np.where(was_queued, events.ts_ns[later] - events.ts_ns[earlier], 0)
    return EdgeTable.of(
        np.where(overlaps, Rule.STREAM_OVERLAP, Rule.STREAM_ORDER),
        np.where(overlaps, start_node(earlier), end_node(earlier)),
        start_node(later),
        lag_ns=np.where(overlaps, alone, np.clip(gap, 0, structure.calibration.stream_floor_ns)),
        event=np.where(overlaps, earlier, later),
    )


FULL_QUEUE = 1_000
"""Outstanding launches with which a device's queue counts as full (measured: about 1,022;
``tests/compiler/test_structure.py``)."""

_USUAL_PERCENTILE = 5
"""Low, as most calls of a device-bound run are blocked, and the usual ones are not (chosen; the
same test)."""

_BLOCKED_FACTOR = 3
"""A call that took as many times the usual was blocked (chosen; the same test). Shorter waits
hardly change a path."""


def queue_edges(structure: Structure) -> EdgeTable:
    """Edges from the start that made room in the queue to the end of each call that met it full.

    A call that met a full queue and did not take longer than launches do anyway was not blocked.

    ::

        thread 1   [cudaLaunchKernel          ]      1,000 launches outstanding
        stream 7   [kernel][kernel][kernel]  |
                                   '-------->'
    """
    events = structure.events
    device = structure.queue[structure.launch[structure.queue] >= 0]
    parts = [EdgeTable()]
    bounds = np.flatnonzero(group_starts(events.device[device]))
    for rows in np.split(device, bounds)[1:]:
        calls = distinct(structure.launch[rows])
        launched = np.sort(events.ts_ns[structure.launch[rows]])
        by_start = rows[np.argsort(events.ts_ns[rows], kind="stable")]
        started = events.ts_ns[by_start]
        outstanding = np.searchsorted(launched, events.ts_ns[calls]) - np.searchsorted(
            started, events.ts_ns[calls]
        )
        usual = np.percentile(events.dur_ns[calls], _USUAL_PERCENTILE)
        full = calls[(outstanding >= FULL_QUEUE) & (events.dur_ns[calls] > _BLOCKED_FACTOR * usual)]
        made_room = np.searchsorted(started, events.end_ns[full], side="right") - 1
        inside = gather(started, made_room, np.iinfo(np.int64).min) >= events.ts_ns[full]
        call, work = full[inside], by_start[made_room[inside]]
        parts.append(EdgeTable.of(Rule.QUEUE_FULL, start_node(work), end_node(call), event=call))
    return EdgeTable.concat(parts)
