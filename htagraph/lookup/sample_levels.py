"""Samples as levels: each moment has the value of the nearest sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from htagraph.model.arrays import F64, I64
from htagraph.model.samples import SampleTable, Series


class Levels(NamedTuple):
    """Values of one series over time.

    Parameters
    ----------
    ts_ns : ndarray of shape (n,), dtype=int64, unit=ns
        When each sample was taken.
    bound_ns : ndarray of shape (n + 1,), dtype=int64, unit=ns
        Where each value begins, and where the last one ends: half way between samples.
    """

    series: Series
    ts_ns: I64
    bound_ns: I64
    value: F64


class Stretches(NamedTuple):
    """A series in stretches of time.

    Parameters
    ----------
    covered_ns : ndarray of shape (n,), dtype=int64, unit=ns
        The part of each stretch that has samples.
    mean, low, high : ndarray of shape (n,), dtype=float64
        Over that part, weighted by time; NaN if it is empty.
    """

    n_samples: I64
    covered_ns: I64
    mean: F64
    low: F64
    high: F64


def sample_levels(
    samples: SampleTable, is_wanted: Callable[[Series], bool] = lambda _: True
) -> Iterator[Levels]:
    """Levels of each series that is wanted and has samples.

    The first and the last level extend half the median distance of samples beyond their sample; a
    single one, by the uncertainty of its time.

    Examples
    --------
    >>> table = SampleTable.of([(Series("power.draw"), [10, 20, 40], [1.0, 2.0, 3.0])])
    >>> [level.bound_ns.tolist() for level in sample_levels(table)]
    [[5, 15, 30, 45]]
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
    """A series in stretches of time, which may overlap.

    Examples
    --------
    >>> table = SampleTable.of([(Series("power.draw"), [10, 20, 40], [1.0, 2.0, 3.0])])
    >>> over(next(sample_levels(table)), np.array([10, 90]), np.array([20, 99])).mean.tolist()
    [1.5, nan]
    """
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
