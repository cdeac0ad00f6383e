"""SYNC: a host call waits for device work.

Records of the profiler (``cuda_sync``, off by default) name what is waited for. Without them the
semantics of the call say what it may have waited for, and the times which of it it did: device work
that was enqueued before the call and ended while it ran.

::

    thread 1   [launch][cudaDeviceSynchronize]
    stream 7           [kernel         ]  |
                                       '->'
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.compiler.structure import Structure, end_node
from htagraph.compiler.sync_records import SyncRecords, recorded_targets, sync_records
from htagraph.errors import TraceLimitError
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule

__all__ = ["sync_edges"]

I64 = npt.NDArray[np.int64]

_MOST_PAIRS = 1 << 26


def _latest_inside(structure: Structure, call: I64, candidates: I64) -> I64:
    """Candidate that ends last of those that end while each call runs, -1 for none.

    Parameters
    ----------
    call : ndarray of shape (n,)
    candidates : ndarray of shape (n, k)
        Device events, -1 for none.
    """
    events = structure.events
    end = events.end_ns[candidates]
    inside = (
        (candidates >= 0)
        & (end >= events.ts_ns[call][:, None])
        & (end <= events.end_ns[call][:, None])
    )
    end = np.where(inside, end, np.iinfo(np.int64).min)
    best = end.argmax(axis=1)
    rows = np.arange(len(call))
    return np.where(inside[rows, best], candidates[rows, best], -1)


def _all_queues(structure: Structure, call: I64) -> I64:
    """Work that each call may wait for on every stream, shape (n_calls, n_streams)."""
    n_queues = int(structure.queue_starts.sum())
    if len(call) * n_queues > _MOST_PAIRS:
        raise TraceLimitError(
            f"{len(call):,} calls may wait for {n_queues:,} streams each, which is over "
            f"{_MOST_PAIRS:,} pairs.",
            hint="load a shorter window of the trace.",
        )
    out = np.empty((len(call), n_queues), dtype=np.int64)
    for queue in range(n_queues):
        out[:, queue] = structure.covered_on(queue, structure.events.ts_ns[call])
    return out


def _host_wait_edges(device_event: I64, call: I64, rule: Rule) -> EdgeTable:
    """Edges from the end of device work to the end of the call that waited for it."""
    known = device_event >= 0
    return EdgeTable.of(
        rule,
        end_node(device_event[known]),
        end_node(call[known]),
        event=call[known],
    )


def _recorded_syncs(
    structure: Structure, records: SyncRecords, meanings: npt.NDArray[np.int8]
) -> EdgeTable:
    """Edges of host waits that a record names.

    Work that ends after its call is kept, to be rejected with its skew.
    """
    events = structure.events
    parts = []
    stream_rows = np.flatnonzero(records.meaning == CallMeaning.STREAM_SYNC)
    record, call = records.record[stream_rows], records.call[stream_rows]
    queue = structure.find_queue(events.device[record].astype(np.int64), events.stream[record])
    parts.append(
        _host_wait_edges(structure.covered(queue, events.ts_ns[call]), call, Rule.SYNC_RECORD)
    )
    # An event query also leaves an "Event Sync" record, but does not wait.
    waits = (records.meaning == CallMeaning.EVENT_SYNC) & (
        meanings[records.call] == CallMeaning.EVENT_SYNC
    )
    event_rows = np.flatnonzero(waits)
    target = recorded_targets(structure, records, event_rows)
    parts.append(_host_wait_edges(target, records.call[event_rows], Rule.SYNC_RECORD))
    context = records.call[records.meaning == CallMeaning.DEVICE_SYNC]
    candidates = _all_queues(structure, context)
    parts += [_host_wait_edges(column, context, Rule.SYNC_RECORD) for column in candidates.T]
    return EdgeTable.concat(parts)


def _by_semantics(structure: Structure, calls: I64) -> EdgeTable:
    """Edges of host waits by what the calls mean and what ended while they ran."""
    if not len(structure.queue):
        return EdgeTable()
    return _host_wait_edges(
        _latest_inside(structure, calls, _all_queues(structure, calls)), calls, Rule.CALL_SEMANTICS
    )


def _blocking_copies(structure: Structure, meanings: npt.NDArray[np.int8]) -> EdgeTable:
    """Edges from a copy to its own call, where the call returned after the copy had ended.

    Synchronous copies wait by definition; asynchronous ones do so from or to pageable memory, and
    when they bring data back to the host (``aten::item``) unless it is pinned there.
    """
    events, launch = structure.events, structure.launch
    copies = np.flatnonzero((events.kind == EventKind.MEMCPY) & (launch >= 0))
    call = launch[copies]
    copies, call = (
        copies[meanings[call] == CallMeaning.COPY],
        call[meanings[call] == CallMeaning.COPY],
    )
    may_wait = events.symbols.mask(
        lambda name: (
            "Pageable" in name
            or (("DtoH" in name or "DeviceToHost" in name) and "Pinned" not in name)
        )
    )
    synchronous = events.symbols.mask(lambda name: "Async" not in name)
    waits = may_wait[events.name[copies]] | synchronous[events.name[call]]
    waits &= events.end_ns[copies] <= events.end_ns[call]
    return _host_wait_edges(copies[waits], call[waits], Rule.BLOCKING_COPY)


def sync_edges(structure: Structure) -> EdgeTable:
    """Edges from the last device event that a blocking host call covers to the end of the call."""
    meanings = call_meanings(structure.events)
    records = sync_records(structure)
    recorded = _recorded_syncs(structure, records, meanings)
    may_wait = (
        CallMeaning.DEVICE_SYNC,
        CallMeaning.STREAM_SYNC,
        CallMeaning.EVENT_SYNC,
        CallMeaning.FREE,
    )
    waits = np.isin(meanings, may_wait)
    without_record = np.setdiff1d(np.flatnonzero(waits), records.call)
    return EdgeTable.concat(
        [recorded, _by_semantics(structure, without_record), _blocking_copies(structure, meanings)]
    )
