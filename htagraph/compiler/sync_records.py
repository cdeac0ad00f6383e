"""The profiler's own records of waits (``cuda_sync``, off by default), with their calls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts, last_before, match_keys, running_latest
from htagraph.compiler.structure import Structure, once
from htagraph.model.api_calls import CallMeaning
from htagraph.model.arrays import I8, I64
from htagraph.model.kinds import EventKind

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
