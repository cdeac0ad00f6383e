"""The profiler's own records of waits (``cuda_sync``, off by default), joined with the calls they belong to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.matching import match_keys
from htagraph.compiler.structure import Structure
from htagraph.model.api_calls import CallMeaning
from htagraph.model.kinds import EventKind

__all__ = ["SyncRecords", "recorded_targets", "sync_records"]

I64 = npt.NDArray[np.int64]

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
    meaning: npt.NDArray[np.int8]


def sync_records(structure: Structure) -> SyncRecords:
    """Return the profiler's sync records that belong to a captured call."""
    events = structure.events
    meaning_of = np.zeros(len(events.symbols), dtype=np.int8)
    for name, meaning in _RECORDED.items():
        if (code := events.symbols.code(name)) >= 0:
            meaning_of[code] = meaning
    record = np.flatnonzero((events.kind == EventKind.SYNC) & (events.correlation > 0))
    calls = np.flatnonzero((events.kind == EventKind.RUNTIME) & (events.correlation > 0))
    found = match_keys(events.correlation[record], events.correlation[calls])
    record, found = record[found >= 0], found[found >= 0]
    return SyncRecords(record, calls[found], meaning_of[events.name[record]])


def recorded_targets(structure: Structure, records: SyncRecords, rows: I64) -> I64:
    """Return the last device event before the event record that each record waits for, -1 where unknown."""
    events = structure.events
    stream = events.column("wait_on_stream")[records.record[rows]].astype(np.int64)
    marker = events.column("wait_on_event_record")[records.record[rows]].astype(np.int64)
    calls = np.flatnonzero((events.kind == EventKind.RUNTIME) & (events.correlation > 0))
    found = match_keys(marker, events.correlation[calls])
    known = (found >= 0) & (marker > 0)
    before_ns = np.where(known, events.ts_ns[calls[np.maximum(found, 0)]] if len(calls) else 0, np.iinfo(np.int64).min)
    queue = structure.find_queue(events.device[records.record[rows]].astype(np.int64), stream)
    return np.where(known & (queue >= 0), structure.covered(queue, before_ns), -1)
