"""Samples of other instruments as levels: each moment has the value of the nearest sample."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from htagraph.lookup.queues import devices_of
from htagraph.model.arrays import F64, I64
from htagraph.model.dag import Dag
from htagraph.model.names import MEMORY_CLOCK, SM_CLOCK
from htagraph.model.samples import SampleTable, Series


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
