"""Late ends: device work that is recorded as running when what waited for it has begun.

Profilers take the time of an end a little late, by up to about two microseconds, or round it. A
dependency is then hidden: by the clock, its head starts first. How late ends are is learnt from
certain dependencies, and every rule that needs work to have ended allows for it. The
edge hangs on the start of the source, and what ran until then is its lag::

    stream 7    [A         ]
                |==========>|          the recorded end of A lies behind the start of B
    stream 20              [B      ]
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.matching import running_latest
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind
from htagraph.model.rules import Rule

__all__ = ["most_overlap", "stream_wait_edges_from", "with_late_ends"]

I64 = npt.NDArray[np.int64]

_MOST_FACTOR = 2
"""Part of the launch floor by which an end can be late; longer overlaps are real (chosen)."""
_GUESS_FACTOR = 4
"""Part of the launch floor by which ends are late where too few overlaps tell (chosen)."""
_ENOUGH = 20
"""Overlaps, or stream waits, that are enough to tell (chosen)."""
_PERCENTILE = 90
"""Of the overlaps of certain dependencies (chosen)."""


def most_overlap(structure: Structure) -> int:
    """Most by which an end can be late: a part of the launch floor; longer overlaps are real."""
    return structure.calibration.launch_floor_ns // _MOST_FACTOR


def _overlaps_in_order(structure: Structure) -> I64:
    """By how much queued work of a stream begins before the recorded end of the work before it."""
    events, queue = structure.events, structure.queue
    starts = structure.queue_starts
    follows = np.flatnonzero(~starts)
    if not len(follows):
        return np.empty(0, dtype=np.int64)
    before = queue[running_latest(events.end_ns[queue], starts)[follows - 1]]
    overlap: I64 = events.end_ns[before] - events.ts_ns[queue[follows]]
    return overlap


def with_late_ends(structure: Structure, known: EdgeTable) -> Structure:
    """Structure whose calibration has how late ends are.

    It is a high percentile of the overlaps of certain dependencies: stream order, and stream
    waits. Where there are too few waits to tell, it is a guess: a small part of the launch floor.
    It is at least the resolution of the times.

    Parameters
    ----------
    known : EdgeTable
        With the stream waits that are recorded, or follow from the order of calls.
    """
    events, most = structure.events, most_overlap(structure)
    between = known.take((known.kind == EdgeKind.SYNC) & events.is_device[known.head >> 1])
    waits = events.end_ns[between.tail >> 1] - events.ts_ns[between.head >> 1]
    overlaps = np.concatenate([waits, _overlaps_in_order(structure)])
    overlaps = overlaps[(overlaps > 0) & (overlaps <= most)]
    enough = len(overlaps) >= _ENOUGH or (len(waits) >= _ENOUGH)
    learnt = int(np.percentile(overlaps, _PERCENTILE, method="lower")) if len(overlaps) else 0
    if not enough:
        learnt = max(learnt, structure.calibration.launch_floor_ns // _GUESS_FACTOR)
    resolution = structure.resolution_ns
    late_end = max(learnt, resolution if resolution <= most else 0)
    calibration = replace(structure.calibration, late_end_ns=late_end)
    return structure.calibrated(calibration)


def stream_wait_edges_from(
    structure: Structure,
    rule: Rule | npt.NDArray[np.int8],
    source: I64,
    waiter: I64,
    *,
    lag_ns: npt.ArrayLike = 0,
) -> EdgeTable:
    """Edges from the work that a stream waited for to the work that waited.

    They run from its end; from its start if the end is late. Ends that are later than that run
    backward, and are set aside with their skew.

    Parameters
    ----------
    rule : Rule, or ndarray of shape (n,), dtype=int8
    source, waiter : ndarray of shape (n,), dtype=int64
    lag_ns : array_like, default=0, unit=ns
        Of the edges from ends.
    """
    events = structure.events
    overlap = events.end_ns[source] - events.ts_ns[waiter]
    most = max(most_overlap(structure), structure.calibration.late_end_ns)
    late = (overlap > 0) & (overlap <= most) & (events.ts_ns[source] <= events.ts_ns[waiter])
    return EdgeTable.of(
        rule,
        np.where(late, start_node(source), end_node(source)),
        start_node(waiter),
        lag_ns=np.where(late, events.ts_ns[waiter] - events.ts_ns[source], lag_ns),
        event=np.where(late, source, waiter),
    )
