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

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from htagraph.arrays.codes import gather, is_in
from htagraph.arrays.matching import last_before, match_keys
from htagraph.compiler.structure import Structure, end_node, once, start_node
from htagraph.compiler.sync_records import SyncRecords, recorded_targets, sync_records
from htagraph.errors import TraceLimitError
from htagraph.model.api_calls import CallMeaning
from htagraph.model.arrays import I8, I64, Bools
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EventKind, among
from htagraph.model.rules import Rule

_STAGED_AT_ONCE = 65_536
"""Bytes of pageable memory that CUDA takes over at once, so that the call does not wait for the
device ("API synchronization behavior" in its documentation). In public traces whose device clock
needs no shift, 168 of 170 such copies begin after their calls."""

_MOST_PAIRS = 1 << 26
"""A limit of memory: calls times streams, 512 MiB. Beyond, a trace is refused; real ones have some
thousands."""


def _nearest_end(structure: Structure, call: I64, candidates: I64) -> I64:
    """Candidate that ends last of those that end while each call runs, -1 for none.

    Where clocks are known to overlap, one may end later by as much; then the nearest to the call's
    end is taken. `candidates` of shape (n, k): device events, -1 for none.
    """
    events, overlap_ns = structure.events, structure.calibration.clock_overlap_ns
    left = events.end_ns[call][:, None] - events.end_ns[candidates]
    fits = (candidates >= 0) & (left >= -overlap_ns) & (left <= events.dur_ns[call][:, None])
    distance = np.where(fits, np.abs(left), np.iinfo(np.int64).max)
    best = distance.argmin(axis=1)
    rows = np.arange(len(call))
    return np.where(fits[rows, best], candidates[rows, best], -1)


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


def _begun_before(structure: Structure, work: I64, until_ns: I64) -> I64:
    """Each device event, or the one on its stream that begins last before a time; -1 for none."""
    rows, events = structure.queue, structure.events
    group, of = structure.queue_id[rows], structure.queue_id[work]
    position = last_before(group, events.ts_ns[rows], of, until_ns)
    begun = gather(rows, position)
    return np.where(events.ts_ns[work] < until_ns, work, begun)


def _host_wait_edges(
    structure: Structure, device_event: I64, call: I64, rule: Rule
) -> Iterator[EdgeTable]:
    """Edges from the end of device work to the end of the call that waited for it.

    Where the work ends later, by no more than clocks are known to overlap, the edge comes from its
    start, or from the work before it on its stream. Copies may end later by any time.
    """
    events, overlap_ns = structure.events, structure.calibration.clock_overlap_ns
    work, call = device_event[device_event >= 0], call[device_event >= 0]
    end_ns, until_ns = events.end_ns, events.end_ns[call]
    overlaps = end_ns[work] > until_ns
    if rule is not Rule.SYNCHRONOUS_COPY:
        overlaps &= end_ns[work] - until_ns <= overlap_ns
    begun = _begun_before(structure, work[overlaps], until_ns[overlaps])
    work[np.flatnonzero(overlaps)[begun >= 0]] = begun[begun >= 0]
    cut = overlaps & (events.ts_ns[work] < until_ns) & (end_ns[work] > until_ns)
    yield EdgeTable.of(rule, end_node(work[~cut]), end_node(call[~cut]), event=call[~cut])
    yield EdgeTable.of(
        rule,
        start_node(work[cut]),
        end_node(call[cut]),
        lag_ns=until_ns[cut] - events.ts_ns[work[cut]],
        event=work[cut],
    )


class _Waits(NamedTuple):
    """Calls with the device work that each may wait for, -1 for none."""

    work: I64
    call: I64

    @classmethod
    def concat(cls, parts: Iterable[_Waits]) -> _Waits:
        """Rows of several tables."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _recorded_syncs(structure: Structure, records: SyncRecords, meanings: I8) -> _Waits:
    """Synchronizations that a record names."""
    events = structure.events
    stream_rows = np.flatnonzero(records.meaning == CallMeaning.STREAM_SYNC)
    record, call = records.record[stream_rows], records.call[stream_rows]
    queue = structure.find_queue(events.device[record].astype(np.int64), events.stream[record])
    # An event query also leaves an "Event Sync" record, but does not wait.
    waits = (records.meaning == CallMeaning.EVENT_SYNC) & (
        meanings[records.call] == CallMeaning.EVENT_SYNC
    )
    event_rows = np.flatnonzero(waits)
    target = recorded_targets(structure, records, event_rows)
    context = records.call[records.meaning == CallMeaning.DEVICE_SYNC]
    return _Waits.concat(
        [
            _Waits(structure.covered(queue, events.ts_ns[call]), call),
            _Waits(target, records.call[event_rows]),
            _device_syncs(structure, context),
        ]
    )


def _device_syncs(structure: Structure, calls: I64) -> _Waits:
    """Calls with the work that ends last of all enqueued before them, on every stream."""
    work = _all_queues(structure, calls)
    return _Waits(work.ravel(), np.repeat(calls, work.shape[1]))


class _Copies(NamedTuple):
    """Copies whose calls may wait for them."""

    work: I64
    call: I64
    is_staged: Bools
    """Whether all of the copy is staged at once, so that its call does not wait."""
    is_held: Bools
    """Whether the call had to wait for the copy, which began before the call returned."""
    is_certain: Bools
    """Whether the call had to wait for the end of the copy."""


@once
def _waiting_copies(structure: Structure) -> _Copies:
    """Copies that may hold their calls.

    Synchronous copies between host and device hold them, and asynchronous ones from or to pageable
    memory. From pageable memory, the call returns once the last part is staged, before the copy has
    ended. Other copies to the host (``aten::item``) may hold them, unless it is pinned there.
    """
    events, launch, names = structure.events, structure.launch, structure.events.symbols
    copies = np.flatnonzero((events.kind == EventKind.MEMCPY) & (launch >= 0))
    copies = copies[structure.meanings[launch[copies]] == CallMeaning.COPY]
    call = launch[copies]

    def is_named(pattern: str) -> Bools:
        named: Bools = names.searched(pattern)[events.name[copies]]
        return named

    pageable, pinned = is_named("Pageable"), is_named("Pinned")
    from_host, to_host = is_named("HtoD|HostToDevice"), is_named("DtoH|DeviceToHost")
    synchronous = ~names.searched("Async")[events.name[call]]
    n_bytes = events.column("bytes")[copies]
    staged = pageable & from_host & (n_bytes > 0) & (n_bytes <= _STAGED_AT_ONCE)
    holds = (pageable | synchronous) & (to_host | from_host) & ~staged
    is_held = holds & (events.ts_ns[copies] < events.end_ns[call])
    is_certain = (holds & to_host) | (is_held & ~pageable)
    may_wait = pageable | synchronous | (to_host & ~pinned)
    columns = copies, call, staged, is_held, is_certain
    return _Copies(*(column[may_wait] for column in columns))


def _synchronous_copies(structure: Structure) -> _Waits:
    """Copies and their own calls, where the call waited: until the copy began, or had ended."""
    events, overlap_ns = structure.events, structure.calibration.clock_overlap_ns
    copies = _waiting_copies(structure)
    late_ns = events.end_ns[copies.work] - events.end_ns[copies.call]
    ended = late_ns <= np.where(copies.is_certain, overlap_ns, 0)
    waits = copies.is_held | (ended & ~copies.is_staged)
    return _Waits(copies.work[waits], copies.call[waits])


def _syncs_of_copies(structure: Structure, meanings: I8) -> _Waits:
    """Waits for a stream right after a call that enqueued a copy: for that copy.

    So PyTorch reads values (``aten::item``) where a copy does not hold its call.
    """
    events = structure.events
    copies = _waiting_copies(structure)
    calls = np.flatnonzero(events.kind == EventKind.RUNTIME)
    calls = calls[np.lexsort((events.ts_ns[calls], events.lane[calls]))]
    is_pair = (meanings[calls[1:]] == CallMeaning.STREAM_SYNC) & (
        events.lane[calls[1:]] == events.lane[calls[:-1]]
    )
    copied = match_keys(calls[:-1][is_pair], copies.call)
    return _Waits(gather(copies.work, copied), calls[1:][is_pair])


def certain_waits(structure: Structure) -> tuple[I64, I64]:
    """Device work that the thread of a call enqueued, and the call, which returned after it.

    Only what is recorded, or follows from what the call means.
    """
    events, launch = structure.events, structure.launch
    meanings = structure.meanings
    copies = _waiting_copies(structure)
    records = sync_records(structure)
    syncs = np.flatnonzero(meanings == CallMeaning.DEVICE_SYNC)
    syncs = syncs[~is_in(syncs, records.call)]
    work, call = _Waits.concat(
        [
            _Waits(copies.work[copies.is_certain], copies.call[copies.is_certain]),
            _syncs_of_copies(structure, meanings),
            _recorded_syncs(structure, records, meanings),
            _device_syncs(structure, syncs),
        ]
    )
    is_one_device = len(np.unique(events.device[structure.queue])) < 2
    known = (work >= 0) & (is_one_device | (meanings[call] != CallMeaning.DEVICE_SYNC))
    known &= (launch[work] >= 0) & (events.lane[launch[work]] == events.lane[call])
    return work[known], call[known]


def sync_edges(structure: Structure) -> EdgeTable:
    """Edges from the last device event that a blocking host call covers to the end of the call.

    Work that ends after a recorded wait is kept, to be rejected with its skew.
    """
    if not len(structure.queue):
        return EdgeTable()
    meanings = structure.meanings
    records = sync_records(structure)
    may_wait = (
        CallMeaning.DEVICE_SYNC,
        CallMeaning.STREAM_SYNC,
        CallMeaning.EVENT_SYNC,
        CallMeaning.FREE,
    )
    calls = np.flatnonzero(among(meanings, may_wait))
    calls = calls[~is_in(calls, records.call)]
    by_semantics = _Waits(_nearest_end(structure, calls, _all_queues(structure, calls)), calls)
    return EdgeTable.concat(
        edges
        for waits, rule in (
            (_recorded_syncs(structure, records, meanings), Rule.SYNC_RECORD),
            (by_semantics, Rule.CALL_SEMANTICS),
            (_synchronous_copies(structure), Rule.SYNCHRONOUS_COPY),
        )
        for edges in _host_wait_edges(structure, waits.work, waits.call, rule)
    )
