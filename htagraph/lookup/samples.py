"""Levels over time: samples of other instruments, queues, and the bandwidth of copies and fills.

Of samples, each moment has the value of the nearest one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from htagraph.arrays.matching import group_starts
from htagraph.lookup.queues import devices_of, queues
from htagraph.model.arrays import F64, I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind, among
from htagraph.model.names import MEMORY_CLOCK, SM_CLOCK
from htagraph.model.samples import SampleTable, Series
from htagraph.model.symbols import alphabetical
from htagraph.model.window import Window


class Levels(NamedTuple):
    """Values of one series over time."""

    series: Series
    ts_ns: I64  # When each sample was taken
    # Of shape (n + 1,). Where each value begins, and where the last one ends: half way between
    # samples.
    bound_ns: I64
    value: F64


class Stretches(NamedTuple):
    """A series in stretches of time."""

    n_samples: I64
    covered_ns: I64  # The part of each stretch that has samples
    # mean, low, high: over that part, weighted by time; NaN if it is empty
    mean: F64
    low: F64
    high: F64


def sample_levels(
    samples: SampleTable, is_wanted: Callable[[Series], bool] = lambda _: True
) -> Iterator[Levels]:
    """Levels of each series that is wanted and has samples.

    The first and the last level extend half the median distance of samples beyond their sample; a
    single one, by the uncertainty of its time.
    """
    ends = np.searchsorted(samples.series, np.arange(len(samples.all_series) + 1))
    for place, series in enumerate(samples.all_series):
        if not is_wanted(series):
            continue
        rows = slice(ends[place], ends[place + 1])
        ts_ns, value = samples.ts_ns[rows], samples.value[rows]
        known = np.isfinite(value)
        ts_ns, value = ts_ns[known], value[known]
        if not len(ts_ns):
            continue
        step, half = np.diff(ts_ns), len(ts_ns) // 2
        usual = np.partition(step, half - 1)[half - 1] if len(step) else 2 * series.uncertainty_ns
        around = max(int(usual) // 2, 1)
        middle = ts_ns[:-1] + step // 2
        bound_ns = np.concatenate([[ts_ns[0] - around], middle, [ts_ns[-1] + around]])
        yield Levels(series, ts_ns, bound_ns, value)


def over(levels: Levels, start_ns: I64, end_ns: I64) -> Stretches:
    """A series in stretches of time, which may overlap."""
    bound, value, n = levels.bound_ns, levels.value, len(levels.value)
    first = np.searchsorted(bound[1:], start_ns, side="right")
    last = np.searchsorted(bound[:-1], end_ns, side="left")
    known = (last > first) & (end_ns > start_ns)
    covered = np.minimum(end_ns, bound[-1]) - np.maximum(start_ns, bound[0])
    sums = np.concatenate([[0.0], np.cumsum(value * np.diff(bound))])
    total = _integral(levels, sums, end_ns) - _integral(levels, sums, start_ns)
    padded = np.append(value, value[-1:])
    pairs = np.stack([np.minimum(first, n - 1), np.clip(last, 1, n)], axis=1).ravel()
    low, high = (
        np.where(known, ufunc.reduceat(padded, pairs)[::2], np.nan)
        for ufunc in (np.minimum, np.maximum)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(known, total / covered, np.nan)
    taken = np.searchsorted(levels.ts_ns, end_ns) - np.searchsorted(levels.ts_ns, start_ns)
    return Stretches(taken, np.where(known, covered, 0), np.clip(mean, low, high), low, high)


def _integral(levels: Levels, sums: F64, ts_ns: I64) -> F64:
    """Integral from the first level up to some times."""
    bound, value = levels.bound_ns, levels.value
    at = np.clip(np.searchsorted(bound, ts_ns, side="right") - 1, 0, len(value) - 1)
    inside = np.clip(ts_ns, bound[at], bound[at + 1]) - bound[at]
    out: F64 = sums[at] + value[at] * inside
    return out


SAMPLED: Mapping[str, re.Pattern[str]] = {
    "gpu_utilization": re.compile(
        r"(?i)^utilization\.gpu$|_GPU_UTIL$|^GPUTL$|^GR Active|_GR_ENGINE_ACTIVE$|^GRACT$"
        r"|^sm$|^gfx_activity$"
    ),
    "sm_activity": re.compile(r"(?i)^SMs? Active|_SM_ACTIVE$|^SMACT$"),
    "sm_occupancy": re.compile(r"(?i)_SM_OCCUPANCY$|^SMOCC$|^Compute Warps in Flight"),
    "tensor_activity": re.compile(r"(?i)^Tensor Active|_PIPE_TENSOR_ACTIVE$|^TENSO$"),
}
"""Names of series of nvidia-smi, DCGM and the GPU metrics of Nsight Systems that measure what
htagraph estimates. Tensor activity is a share of cycles, not of the time of kernels."""

_PERCENT = 100.0
"""A unit: the percent that are all."""
_MOST_OF_A_RATIO = 1.5
"""A series with larger values is in percent. DCGM writes ratios, most others percents; a ratio
exceeds 1 only by rounding. Chosen: test_bandwidths has series on both sides."""


def sampled_use(
    samples: SampleTable, device: int, devices: I64, start_ns: I64, end_ns: I64
) -> dict[str, F64]:
    """Means of the samples of a device over some ranges, weighted by time, as shares of 1.

    By the names of `SAMPLED`; NaN without samples.
    """
    found = {}
    for name, pattern in SAMPLED.items():
        most = series_of(samples, device, devices, pattern)
        found[name] = np.full(len(start_ns), np.nan)
        if most is not None:
            found[name] = over(most, start_ns, end_ns).mean / full_value(most)
    return found


def series_of(
    samples: SampleTable, device: int, devices: I64, pattern: re.Pattern[str]
) -> Levels | None:
    """The series of a device with such a name, of several the one with most samples.

    If the trace has one device, a series without a device is of that one.
    """

    def fits(series: Series) -> bool:
        is_of = series.device == device or (series.device < 0 and len(devices) == 1)
        return is_of and pattern.search(series.name) is not None

    return max(sample_levels(samples, fits), key=lambda levels: len(levels.value), default=None)


def full_value(levels: Levels) -> float:
    """The value of a series that means all."""
    text = levels.series.unit + levels.series.name
    is_percent = "%" in text or levels.value.max() > _MOST_OF_A_RATIO
    return _PERCENT if is_percent else 1.0


def device_clocks(dag: Dag, device: int, work: I64) -> tuple[float, float]:
    """Mean clocks in MHz of SMs and of memory over some work of a device, NaN if not sampled."""
    devices, means = devices_of(dag), []
    start_ns, end_ns = dag.events.ts_ns[work], dag.events.end_ns[work]
    for pattern in (SM_CLOCK, MEMORY_CLOCK):
        levels = series_of(dag.events.samples, device, devices, pattern)
        mean = np.nan
        if levels is not None:
            clock = over(levels, start_ns, end_ns)
            if covered := int(clock.covered_ns.sum()):
                mean = float(np.nansum(clock.mean * clock.covered_ns) / covered)
        means.append(mean)
    return means[0], means[1]


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
