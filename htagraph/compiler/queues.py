"""QUEUE: a launch waits for room in the launch queue.

A device holds about 1,022 launches that have not started. One more blocks its call until some work
starts.
"""

from __future__ import annotations

import numpy as np

from htagraph.algorithms.codes import distinct
from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.edges import EdgeTable
from htagraph.model.rules import Rule

FULL_QUEUE = 1_000
"""Outstanding launches with which a device's queue counts as full (measured: about 1,022;
``tests/compiler/test_queues.py``)."""

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
