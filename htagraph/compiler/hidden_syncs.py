"""HIDDEN_SYNC: a host thread waits for device work in a gap, and no call says so.

``cudaEventElapsedTime`` fails unless both of its events have completed, so its caller waited for
the later one before; profilers leave ``cudaEventSynchronize`` out. A gap right before it that ends
with device work is that wait.

::

    thread 1   [launch][record]              [cudaEventElapsedTime]
    stream 7       [kernel                ]  |
                                          '->'
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import last_before
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.api_calls import CallMeaning
from htagraph.model.edges import EdgeTable
from htagraph.model.rules import Rule

__all__ = ["hidden_sync_edges"]

I64 = npt.NDArray[np.int64]

_USUAL_FACTOR = 2


def _gaps_before(structure: Structure, calls: I64) -> tuple[I64, I64]:
    """Calls with nothing recorded right before them on their thread, and since when."""
    between = structure.boundaries
    place = np.full(2 * len(structure.events), -1, dtype=np.int32)
    place[between.node] = np.arange(len(between), dtype=np.int32)
    before = place[start_node(calls)].astype(np.int64) - 1
    is_gap = gather(between.is_followed & structure.is_idle, before, default=False)
    return calls[is_gap], between.ts_ns[before[is_gap]]


def _last_record_ns(structure: Structure, meanings: npt.NDArray[np.int8], calls: I64) -> I64:
    """Time of the last event record of a thread before each call, of the call if there is none."""
    events = structure.events
    marks = np.flatnonzero(meanings == CallMeaning.EVENT_RECORD)
    marks = marks[np.lexsort((events.ts_ns[marks], events.lane[marks]))]
    lane = events.lane
    mark = last_before(lane[marks], events.ts_ns[marks], lane[calls], events.ts_ns[calls])
    return np.where(mark >= 0, gather(events.ts_ns, gather(marks, mark)), events.ts_ns[calls])


def hidden_sync_edges(structure: Structure) -> EdgeTable:
    """Edges from device work to the end of the gap in which a thread waited for it.

    The work ends inside the gap, no longer before its end than is usual for a return, and is the
    last on its stream that had been enqueued before the last event record, or before the gap.
    Shorter gaps than that are none.
    """
    if not len(structure.queue):
        return EdgeTable()
    events, calibration = structure.events, structure.calibration
    meanings = structure.meanings
    asking = np.flatnonzero(meanings == CallMeaning.ELAPSED_TIME)
    if not len(asking):
        return EdgeTable()
    calls, since_ns = _gaps_before(structure, asking)
    usual = _USUAL_FACTOR * max(calibration.launch_usual_ns, calibration.stream_usual_ns)
    until_ns = events.ts_ns[calls]
    is_long = until_ns - since_ns > usual
    calls, since_ns, until_ns = calls[is_long], since_ns[is_long], until_ns[is_long]
    n_queues = int(structure.queue_starts.sum())
    queue = np.tile(np.arange(n_queues), len(calls))
    given = [
        structure.covered(queue, np.repeat(before_ns, n_queues)).reshape(len(calls), n_queues)
        for before_ns in (_last_record_ns(structure, meanings, calls), since_ns)
    ]
    work = np.concatenate(given, axis=1)
    end_ns = events.end_ns[work]
    fits = (work >= 0) & (end_ns >= since_ns[:, None]) & (end_ns <= until_ns[:, None])
    fits &= until_ns[:, None] - end_ns <= usual
    found = np.flatnonzero(fits.any(axis=1))
    last = np.where(fits, end_ns, np.iinfo(np.int64).min).argmax(axis=1)[found]
    return EdgeTable.of(
        Rule.HOST_WAITS_FOR_KERNEL,
        end_node(work[found, last]),
        start_node(calls[found]),
        event=calls[found],
    )
