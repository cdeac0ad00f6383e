"""SYNC: a stream waits for work of another stream.

::

    thread 1   [launch][record]       [wait][launch]
    stream 7       [kernel A     ]
    stream 20                    '------------>[kernel B]

Profilers do not record these waits unless asked to, and without them a path goes wrong without a
word: it takes a gap on one stream for overhead, where work of another stream was waited for. So
there are three kinds of evidence, the weaker only where the stronger is missing: a record of the
profiler; the order of event records and stream waits among the calls of one thread; and time
alone: work that was ready stood still until all that another stream had been given before it had
ended. The last two are inferred, and labelled so (`Rule.evidence`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.matching import last_before, running_latest
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.compiler.sync_records import SyncRecords, recorded_targets, sync_records
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.edges import EdgeTable
from htagraph.model.rules import Rule

__all__ = ["stream_wait_edges"]

I64 = npt.NDArray[np.int64]

_UNKNOWN = np.iinfo(np.int64).min
_LATEST = 1 << 62
"""No time of a trace lies beyond, so that differences of two fit in int64; sums need not."""


def _recorded_stream_waits(structure: Structure, records: SyncRecords) -> tuple[I64, I64]:
    """Device event before each event record, and the first one after each stream wait."""
    events = structure.events
    rows = np.flatnonzero(records.meaning == CallMeaning.STREAM_WAIT)
    target = recorded_targets(structure, records, rows)
    record, call = records.record[rows], records.call[rows]
    queue = structure.find_queue(events.device[record].astype(np.int64), events.stream[record])
    waiter = np.where(queue >= 0, structure.first_after(queue, events.ts_ns[call]), -1)
    known = (target >= 0) & (waiter >= 0)
    return target[known], waiter[known]


def _inferred_stream_waits(
    structure: Structure, meanings: npt.NDArray[np.int8], known: I64
) -> tuple[I64, I64]:
    """The same for waits without a record, by the order of calls on one thread.

    The wait follows the latest event record of its thread. The record is on the stream of the last
    launch before it, the wait on the stream of the next launch after it. Only pairs that cross
    streams forward in time are kept.
    """
    events = structure.events
    launches = np.unique(structure.launch[structure.launch >= 0])

    def sequence(rows: I64) -> I64:
        return rows[np.lexsort((events.ts_ns[rows], events.lane[rows]))]

    waits = sequence(np.setdiff1d(np.flatnonzero(meanings == CallMeaning.STREAM_WAIT), known))
    marks = sequence(np.flatnonzero(meanings == CallMeaning.EVENT_RECORD))
    launches = sequence(launches)
    lane = events.lane.astype(np.int64)
    mark = last_before(lane[marks], events.ts_ns[marks], lane[waits], events.ts_ns[waits])
    waits, mark = waits[mark >= 0], marks[mark[mark >= 0]]
    before = last_before(lane[launches], events.ts_ns[launches], lane[mark], events.ts_ns[mark])
    after = (
        last_before(lane[launches], events.ts_ns[launches], lane[waits], events.ts_ns[waits]) + 1
    )
    inside = (before >= 0) & (after < len(launches))
    waits, mark, before, after = waits[inside], mark[inside], before[inside], after[inside]
    inside = lane[launches[after]] == lane[waits] if len(waits) else np.zeros(0, dtype=bool)
    mark, before, after = mark[inside], launches[before[inside]], launches[after[inside]]
    first_work = np.full(len(events), -1, dtype=np.int64)
    queue = structure.queue[structure.launch[structure.queue] >= 0]
    by_start = queue[np.lexsort((events.ts_ns[queue],))][::-1]
    first_work[structure.launch[by_start]] = by_start
    source_queue, waiter = structure.queue_id[first_work[before]], first_work[after]
    target = structure.covered(source_queue, events.ts_ns[mark])
    kept = (target >= 0) & (structure.queue_id[waiter] != source_queue)
    kept &= events.end_ns[target] <= events.ts_ns[waiter]
    return target[kept], waiter[kept]


def _ready_ns(structure: Structure, source: I64, waiter: I64) -> I64:
    """Earliest start of each device event by all that is known; shape (n_events,)."""
    events, queue = structure.events, structure.queue
    floor = min(structure.calibration.launch_floor_ns, _LATEST - 1)
    ready = np.where(
        structure.launch >= 0, np.minimum(structure.launch_time_ns + floor, _LATEST), _UNKNOWN
    )
    starts = structure.queue_starts
    follows = np.flatnonzero(~starts)
    if len(follows):
        latest = running_latest(events.end_ns[queue], starts)
        ready[queue[follows]] = np.maximum(
            ready[queue[follows]], events.end_ns[queue[latest[follows - 1]]]
        )
    np.maximum.at(ready, waiter, events.end_ns[source])
    return ready


def _given_before(structure: Structure, late: I64, queue: int) -> I64:
    """Work of a stream that ends last of all enqueued there before each late work was launched."""
    return structure.covered_on(queue, structure.launch_time_ns[late])


def _covering(structure: Structure, late: I64, queue: int, ready_ns: I64) -> I64:
    """Work of a stream that ended last before each late work and ran for half of the wait.

    For late work whose launch is not known, so that what the stream had been given then is not
    known either.
    """
    events = structure.events
    rows = structure.queue[structure.queue_id[structure.queue] == queue]
    rows = rows[np.argsort(events.end_ns[rows], kind="stable")]
    position = np.searchsorted(events.end_ns[rows], events.ts_ns[late], side="right") - 1
    other = rows[np.maximum(position, 0)]
    alone_ns = np.maximum(events.ts_ns[other] - ready_ns, 0)
    covers = (position >= 0) & (alone_ns <= (events.ts_ns[late] - ready_ns) // 2)
    return np.where(covers, other, -1)


def _waits_by_time(structure: Structure, source: I64, waiter: I64) -> tuple[I64, I64]:
    """Pairs where ready work stood still until another stream had done all its earlier work.

    That is what an event recorded on the other stream and waited for does. The work must start
    within what is usual after that end.
    """
    events, calibration, device = structure.events, structure.calibration, structure.queue
    usual = max(calibration.launch_usual_ns, 2 * calibration.stream_usual_ns)
    ready = _ready_ns(structure, source, waiter)
    known = device[ready[device] > _UNKNOWN]
    late = known[events.ts_ns[known] - ready[known] > usual]
    is_launched = structure.launch[late] >= 0
    found = np.full(len(late), -1, dtype=np.int64)
    latest = np.full(len(late), _UNKNOWN)
    queue_device = events.device[structure.queue[structure.queue_starts]]
    for queue in range(len(queue_device)):
        given = _given_before(structure, late, queue)
        other = np.where(is_launched, given, _covering(structure, late, queue, ready[late]))
        end = events.end_ns[other]
        fits = (
            (other >= 0)
            & (structure.queue_id[late] != queue)
            & (events.device[late] == queue_device[queue])
        )
        fits &= (end <= events.ts_ns[late]) & (events.ts_ns[late] - end <= usual) & (end > latest)
        found[fits], latest[fits] = other[fits], end[fits]
    return found[found >= 0], late[found >= 0]


def stream_wait_edges(structure: Structure) -> EdgeTable:
    """Edges from the work that a stream waited for to the first work after the wait."""
    records = sync_records(structure)
    recorded = _recorded_stream_waits(structure, records)
    known = records.call[records.meaning == CallMeaning.STREAM_WAIT]
    ordered = _inferred_stream_waits(structure, call_meanings(structure.events), known)
    source, waiter = (np.concatenate(pair) for pair in zip(recorded, ordered, strict=True))
    forward = structure.events.end_ns[source] <= structure.events.ts_ns[waiter]
    timed = _waits_by_time(structure, source[forward], waiter[forward])
    rules = (Rule.SYNC_RECORD, Rule.RECORD_AND_WAIT_ORDER, Rule.ENDED_RIGHT_BEFORE)
    return EdgeTable.concat(
        EdgeTable.of(rule, end_node(source), start_node(waiter), event=waiter)
        for (source, waiter), rule in zip((recorded, ordered, timed), rules, strict=True)
    )
