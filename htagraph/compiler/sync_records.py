"""SYNC: a stream waits for work of another stream.

::

    thread 1   [launch][record]       [wait][launch]
    stream 7       [kernel A     ]
    stream 20                    '------------>[kernel B]

Profilers record these waits only if configured to (``cuda_sync``). Without them a path takes a gap
on one stream for overhead, where the stream waited for another. Where a record is missing, weaker
evidence has to do: the order of event records and stream waits among the calls of one thread, and
time alone (`htagraph.compiler.right_before`). Edges by it are labelled inferred (`Rule.evidence`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.arrays.codes import gather, is_in
from htagraph.arrays.matching import group_starts, last_before, match_keys, running_latest
from htagraph.compiler.late_starts import most_overlap, stream_wait_edges_from
from htagraph.compiler.structure import Structure, once
from htagraph.model.api_calls import CallMeaning
from htagraph.model.arrays import I8, I64
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule

_RECORDED = {
    "Context Sync": CallMeaning.DEVICE_SYNC,
    "Stream Sync": CallMeaning.STREAM_SYNC,
    "Event Sync": CallMeaning.EVENT_SYNC,
    "Stream Wait Event": CallMeaning.STREAM_WAIT,
}


class SyncRecords(NamedTuple):
    """Sync records with the calls they belong to."""

    record: I64
    call: I64
    meaning: I8


@once
def sync_records(structure: Structure) -> SyncRecords:
    """Profiler's sync records that belong to a captured call and say what it waited for."""
    events = structure.events
    meaning_of = np.zeros(len(events.symbols), dtype=np.int8)
    for name, meaning in _RECORDED.items():
        if (code := events.symbols.code(name)) >= 0:
            meaning_of[code] = meaning
    record = np.flatnonzero((events.kind == EventKind.SYNC) & (meaning_of[events.name] > 0))
    calls = np.flatnonzero((events.kind == EventKind.RUNTIME) & (events.correlation > 0))
    found = match_keys(events.correlation[record], events.correlation[calls])
    record, found = record[found >= 0], found[found >= 0]
    return SyncRecords(record, calls[found], meaning_of[events.name[record]])


class _Marks(NamedTuple):
    """Event records that are waited for: stream, time, and the last device event before each."""

    queue: I64
    before_ns: I64
    target: I64


def _marks(structure: Structure, records: SyncRecords, rows: I64) -> _Marks:
    """Event record that each record waits for; queue and target are -1 where unknown."""
    events = structure.events
    stream = events.column("wait_on_stream")[records.record[rows]].astype(np.int64)
    marker = events.column("wait_on_event_record")[records.record[rows]].astype(np.int64)
    calls = np.flatnonzero((events.kind == EventKind.RUNTIME) & (events.correlation > 0))
    found = match_keys(marker, events.correlation[calls])
    before_ns = gather(events.ts_ns, gather(calls, found), np.iinfo(np.int64).min)
    queue = structure.find_queue(events.device[records.record[rows]].astype(np.int64), stream)
    return _Marks(queue, before_ns, structure.covered(queue, before_ns))


def _passed_on(structure: Structure, marks: _Marks, waits: _Marks) -> I64:
    """Targets of marks, or what their stream had to wait for before, if that ends later.

    In `waits`, ``queue`` and ``before_ns`` say which stream was made to wait, and when.
    """
    end_ns = structure.events.end_ns
    rows = np.flatnonzero((waits.queue >= 0) & (waits.target >= 0))
    rows = rows[np.lexsort((waits.before_ns[rows], waits.queue[rows]))]
    latest = running_latest(end_ns[waits.target[rows]], group_starts(waits.queue[rows]))
    position = last_before(waits.queue[rows], waits.before_ns[rows], marks.queue, marks.before_ns)
    pending = gather(waits.target[rows], gather(latest, position))
    is_later = (pending >= 0) & ((marks.target < 0) | (end_ns[pending] > end_ns[marks.target]))
    return np.where(is_later, pending, marks.target)


def recorded_targets(structure: Structure, records: SyncRecords, rows: I64) -> I64:
    """Device event that ends last of all that each record waits for, -1 where unknown.

    That is the last one before the event record on its stream, or what that stream had itself been
    made to wait for: an event passes on the waits of its stream, through each stream once.
    """
    events = structure.events
    stream_waits = np.flatnonzero(records.meaning == CallMeaning.STREAM_WAIT)
    record, call = records.record[stream_waits], records.call[stream_waits]
    waiting = structure.find_queue(events.device[record].astype(np.int64), events.stream[record])
    marks = _marks(structure, records, stream_waits)
    target = marks.target
    for _ in range(len(structure.enqueued_bounds) - 1):
        further = _passed_on(structure, marks, _Marks(waiting, events.ts_ns[call], target))
        if np.array_equal(further, target):
            break
        target = further
        marks = marks._replace(target=target)
    return _passed_on(
        structure, _marks(structure, records, rows), _Marks(waiting, events.ts_ns[call], target)
    )


def _recorded_stream_waits(structure: Structure, records: SyncRecords) -> tuple[I64, I64]:
    """Device event before each event record, and the first one after each stream wait."""
    events = structure.events
    rows = np.flatnonzero(records.meaning == CallMeaning.STREAM_WAIT)
    target = recorded_targets(structure, records, rows)
    record, call = records.record[rows], records.call[rows]
    queue = structure.find_queue(events.device[record].astype(np.int64), events.stream[record])
    waiter = structure.first_after(queue, events.ts_ns[call])
    known = (target >= 0) & (waiter >= 0)
    return target[known], waiter[known]


def _inferred_stream_waits(structure: Structure, meanings: I8, known: I64) -> tuple[I64, I64]:
    """The same for waits without a record, by the order of calls on one thread.

    The wait follows the latest event record of its thread. The record is on the stream of the last
    launch before it, the wait on the stream of the next launch after it. Only pairs that cross
    streams forward in time are kept.
    """
    events = structure.events

    def sequence(rows: I64) -> I64:
        return rows[np.lexsort((events.ts_ns[rows], events.lane[rows]))]

    waits = np.flatnonzero(meanings == CallMeaning.STREAM_WAIT)
    waits = sequence(waits[~is_in(waits, known)])
    marks = sequence(np.flatnonzero(meanings == CallMeaning.EVENT_RECORD))
    launches = sequence(np.flatnonzero(structure.is_launch))
    lane = events.lane
    mark = last_before(lane[marks], events.ts_ns[marks], lane[waits], events.ts_ns[waits])
    waits, mark = waits[mark >= 0], marks[mark[mark >= 0]]
    before = last_before(lane[launches], events.ts_ns[launches], lane[mark], events.ts_ns[mark])
    after = (
        last_before(lane[launches], events.ts_ns[launches], lane[waits], events.ts_ns[waits]) + 1
    )
    inside = (before >= 0) & (after < len(launches))
    waits, mark, before, after = waits[inside], mark[inside], before[inside], after[inside]
    inside = lane[launches[after]] == lane[waits]
    mark, before, after = mark[inside], launches[before[inside]], launches[after[inside]]
    first_work = np.full(len(events), -1, dtype=np.int32)
    queue = structure.queue[structure.launch[structure.queue] >= 0]
    by_start = queue[np.lexsort((events.ts_ns[queue],))][::-1]
    first_work[structure.launch[by_start]] = by_start
    source_queue, waiter = structure.queue_id[first_work[before]], first_work[after]
    target = structure.covered(source_queue, events.ts_ns[mark])
    kept = (target >= 0) & (structure.queue_id[waiter] != source_queue)
    kept &= events.end_ns[target] <= events.ts_ns[waiter] + most_overlap(structure)
    return target[kept], waiter[kept]


def stream_wait_edges(structure: Structure) -> EdgeTable:
    """Edges from the work that a stream waited for to the first work after the wait."""
    records = sync_records(structure)
    recorded = _recorded_stream_waits(structure, records)
    known = records.call[records.meaning == CallMeaning.STREAM_WAIT]
    ordered = _inferred_stream_waits(structure, structure.meanings, known)
    rules = (Rule.SYNC_RECORD, Rule.RECORD_AND_WAIT_ORDER)
    return EdgeTable.concat(
        stream_wait_edges_from(structure, rule, source, waiter)
        for (source, waiter), rule in zip((recorded, ordered), rules, strict=True)
    )
