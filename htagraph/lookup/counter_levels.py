"""Counters over time, from one change to the next; bandwidth of copies and fills."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.arrays.matching import group_starts
from htagraph.lookup.queues import queues
from htagraph.model.arrays import F64, I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind, among
from htagraph.model.symbols import alphabetical
from htagraph.model.window import Window

_US_NS = 1_000
"""A unit: what older profilers cut durations to."""
_TOLERANCE = 0.01
"""Share by which a recorded bandwidth may differ from bytes by duration: profilers round it.
Chosen: test_bandwidths draws copies on both sides."""
_FEWEST_DURATIONS = 3
"""Durations that must differ before one factor between both counts as systematic: cutting to whole
microseconds changes each by another factor; two may agree by chance (test_bandwidths)."""


class Bandwidths(NamedTuple):
    """Bandwidth of each copy or fill for which it is known."""

    event: I64
    rate: F64  # Bytes per nanosecond, which is 1e9 bytes per second
    # n_fit, n_compared: recorded bandwidths that fit bytes and duration, and all for which both are
    # known
    n_fit: int
    n_compared: int
    # Recorded bandwidth of the median copy as a share of bytes by duration; 1 if unknown
    factor: float
    is_as_recorded: bool  # Whether recorded values were used although bytes are known


def bandwidths(dag: Dag) -> Bandwidths:
    """Bandwidth of each copy or fill that takes time.

    Bytes by duration is exact where durations are in nanoseconds. Older profilers computed the
    bandwidth first and then cut durations to whole microseconds: there the recorded value is
    better, unless all are off by one factor, or one by more than such a cut explains.
    """
    events = dag.events
    work = np.flatnonzero(
        among(events.kind, (EventKind.MEMCPY, EventKind.MEMSET)) & (events.dur_ns > 0)
    )
    dur_ns = events.dur_ns[work]
    recorded = events.column("memory_bandwidth", -1.0)[work].astype(np.float64)
    n_bytes = events.column("bytes", -1)[work].astype(np.float64)
    computed = n_bytes / dur_ns
    both = np.flatnonzero((recorded >= 0) & (n_bytes > 0))
    ratio = recorded[both] / computed[both]
    is_cut = not bool((events.dur_ns[events.is_device] % _US_NS).any())
    cut_ns = _US_NS if is_cut else 0
    shortest = np.maximum(dur_ns[both] - cut_ns, 1)
    fits = (ratio >= (1 - _TOLERANCE) * dur_ns[both] / (dur_ns[both] + cut_ns)) & (
        ratio <= (1 + _TOLERANCE) * dur_ns[both] / shortest
    )
    factor = float(np.median(ratio)) if len(both) else 1.0
    is_one_factor = (
        len(np.unique(dur_ns[both])) >= _FEWEST_DURATIONS
        and bool((np.abs(ratio - factor) <= _TOLERANCE * factor).all())
        and abs(factor - 1) > _TOLERANCE
    )
    n_fit = 0 if is_one_factor else int(fits.sum())
    is_as_recorded = is_cut and 2 * n_fit >= max(len(both), 1)
    prefers_recorded = (recorded >= 0) & (is_as_recorded | (n_bytes < 0))
    rate = np.where(prefers_recorded, recorded, computed)
    known = (recorded >= 0) | (n_bytes >= 0)
    return Bandwidths(work[known], rate[known], n_fit, len(both), factor, is_as_recorded)


_BYTES_PER_S = 1_000_000_000
"""A unit: one byte per nanosecond. Only the rounding of a value depends on it."""


class CounterChanges(NamedTuple):
    """When, and by how much, the counter of each track changes."""

    # track, ts_ns, change: tracks are numbered from 0
    track: I64
    ts_ns: I64
    change: I64
    # device, stream: of shape (n_tracks,). `stream` is -1 for a counter of the whole device.
    device: I64
    stream: I64
    name: Texts  # Of shape (n_tracks,). What is counted.
    unit: int  # Change that counts as 1


def queue_changes(dag: Dag) -> CounterChanges:
    """Launches outstanding per stream: +1 when a call begins, -1 when its work starts.

    A graph launch counts as one, until its first kernel starts.
    """
    by, events = queues(dag, "stream"), dag.events
    work = np.flatnonzero(dag.launch >= 0)
    work = work[np.lexsort((events.ts_ns[work], by.of_event[work], dag.launch[work]))]
    work = work[group_starts(dag.launch[work], by.of_event[work])] if len(work) else work
    track = by.of_event[work]
    return CounterChanges(
        track=np.concatenate([track, track]),
        ts_ns=np.concatenate([events.ts_ns[dag.launch[work]], events.ts_ns[work]]),
        change=np.repeat(np.array([1, -1], dtype=np.int64), len(work)),
        device=by.device,
        stream=by.stream,
        name=np.full(len(by), "queue_length", dtype=object),
        unit=1,
    )


def bandwidth_changes(dag: Dag, *, by_stream: bool = False) -> CounterChanges:
    """Bandwidth of each copy or fill, per device and direction, and per stream if `by_stream`."""
    events, found = dag.events, bandwidths(dag)
    work = found.event
    # Whole bytes per second: sums of floats would not return to exactly 0.
    whole = np.rint(found.rate * _BYTES_PER_S).astype(np.int64)
    symbols, at = np.unique(events.name[work], return_inverse=True)
    texts = events.symbols.array[symbols].tolist()
    names, label = alphabetical(text.partition(" (")[0] for text in texts)
    stream = events.stream[work].astype(np.int64) if by_stream else np.full(len(work), -1)
    keys = np.stack([events.device[work].astype(np.int64), stream, label[at]])
    (device, stream, name), track = np.unique(keys, axis=1, return_inverse=True)
    return CounterChanges(
        track=np.concatenate([track, track]),
        ts_ns=np.concatenate([events.ts_ns[work], events.end_ns[work]]),
        change=np.concatenate([whole, -whole]),
        device=device,
        stream=stream,
        name=names[name],
        unit=_BYTES_PER_S,
    )


def counter_levels(changes: CounterChanges, window: Window) -> tuple[I64, I64, I64, I64]:
    """Track, start, end and value from one change to the next; those at one instant are one."""
    order = np.lexsort((changes.ts_ns, changes.track))
    track, ts_ns = changes.track[order], changes.ts_ns[order]
    total = np.cumsum(changes.change[order])
    last = np.flatnonzero(np.append(group_starts(track, ts_ns)[1:], True)) if len(track) else order
    track, start, value = track[last], ts_ns[last], total[last]
    moves = np.flatnonzero(group_starts(track) | (value != np.roll(value, 1)))
    track, start, value = track[moves], start[moves], value[moves]
    follows = np.append(track[1:] == track[:-1], False)[: len(track)]
    end = np.where(follows, np.roll(start, -1), np.maximum(window.end_ns, start))
    inside = (end > window.start_ns) & (start < window.end_ns)
    start, end = np.maximum(start[inside], window.start_ns), np.minimum(end[inside], window.end_ns)
    return track[inside], start, end, value[inside]
