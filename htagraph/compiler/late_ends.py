"""Late ends: device work that is recorded as running when what waited for it has begun.

Profilers take the time of an end a little late, by up to about two microseconds, or round it. A
dependency is then hidden: by the clock, its head starts first. Every rule that needs work to have
ended allows for a part of the launch latency. The edge hangs on the start of the source, and what
ran until then is its lag::

    stream 7    [A         ]
                |==========>|          the recorded end of A lies behind the start of B
    stream 20              [B      ]
"""

from __future__ import annotations

import numpy as np

from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.arrays import I64
from htagraph.model.edges import EdgeTable
from htagraph.model.rules import Rule

_MOST_FACTOR = 2
"""Part of the launch latency by which an end can be late; longer overlaps are real (chosen)."""
_USUAL_FACTOR = 4
"""Part of the launch latency by which ends usually are late (chosen)."""


def most_overlap(structure: Structure) -> int:
    """Most by which an end can be late, in ns."""
    return structure.calibration.launch_latency_ns // _MOST_FACTOR


def usual_overlap(structure: Structure) -> int:
    """How late ends usually are, in ns: at least the resolution of the times, if that is short."""
    usual = structure.calibration.launch_latency_ns // _USUAL_FACTOR
    return max(usual, min(structure.resolution_ns, most_overlap(structure)))


def stream_wait_edges_from(structure: Structure, rule: Rule, source: I64, waiter: I64) -> EdgeTable:
    """Edges from the work that a stream waited for to the work that waited.

    They run from its end; from its start if the end is late. Ends that are later than that run
    backward, and are set aside with their skew.
    """
    events = structure.events
    overlap = events.end_ns[source] - events.ts_ns[waiter]
    late = (
        (overlap > 0)
        & (overlap <= most_overlap(structure))
        & (events.ts_ns[source] <= events.ts_ns[waiter])
    )
    return EdgeTable.of(
        rule,
        np.where(late, start_node(source), end_node(source)),
        start_node(waiter),
        lag_ns=np.where(late, events.ts_ns[waiter] - events.ts_ns[source], 0),
        event=np.where(late, source, waiter),
    )
