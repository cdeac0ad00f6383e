"""STREAM: work of one stream runs in order."""

from __future__ import annotations

import numpy as np

from htagraph.algorithms.matching import running_latest
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.edges import EdgeTable
from htagraph.model.rules import Rule


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
