"""Where a series of values changes its level: a rank test at each split, and binary segmentation.

The change-point model of D. M. Hawkins and Q. Deng (Journal of Quality Technology 42, 2010): at
each split the Mann-Whitney statistic of what is before and after it, standardized; the largest one
counts if it exceeds what random orders of the values reach in 1 of 100 cases. It needs no more than
ranks, so it holds whatever the distribution, and one odd run is no change. Each side of a split is
split again; then each is placed again, between its neighbours (L. Vostrikova, Soviet Mathematics
Doklady 24, 1981).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from htagraph.model.arrays import F64, I64

FALSE_ALARMS = 0.01
"""Share of series without a change in which one is seen, however long they are: chosen, as that of
comparisons (`htagraph.arrays.welch`). ``tests/benchmarks/bench_history.py`` measures it."""

_N_ORDERS = 10_000
"""Random orders that the limit is taken from: chosen, so that 1% is known to a tenth of it."""

_AT_ONCE = 1 << 20
"""Values that are put into random order at once: a limit of memory, chosen."""


def change_points(values: F64) -> list[int]:
    """Rows at which a new level begins; none for a series without a change."""
    rank = _ranks(values)
    found = _segmented(rank, 0)
    for place in range(len(found)):
        begin, end = [0, *found, len(values)][place], [*found, len(values)][place + 1]
        if (again := _split(_ranks(values[begin:end]))) is not None:
            found[place] = begin + again
    return found


def _segmented(values: F64, offset: int) -> list[int]:
    """Splits of a part of a series, in order."""
    split = _split(_ranks(values))
    if split is None:
        return []
    before, after = values[:split], values[split:]
    return [*_segmented(before, offset), offset + split, *_segmented(after, offset + split)]


def _split(ranks: F64) -> int | None:
    """The split with the largest statistic; None if chance explains it."""
    if len(ranks) < 2:
        return None
    statistic = _statistics(ranks[np.newaxis])[0]
    best = int(statistic.argmax())
    return best + 1 if statistic[best] > _limit(len(ranks)) else None


def _ranks(values: F64) -> F64:
    """Ranks from 1; of equal values, the mean of their ranks."""
    _, code, n = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(n) - (n - 1) / 2)[code], dtype=np.float64)


def _statistics(ranks: F64) -> F64:
    """The standardized Mann-Whitney statistic at each split of each row, whatever its sign."""
    n = ranks.shape[1]
    n_before: I64 = np.arange(1, n)
    sums = np.cumsum(ranks, axis=1)[:, :-1]
    spread = np.sqrt(n_before * (n - n_before) * (n + 1) / 12)
    return np.asarray(np.abs(sums - n_before * (n + 1) / 2) / spread, dtype=np.float64)


@lru_cache(maxsize=1024)
def _limit(n: int) -> float:
    """What the largest statistic of `n` values exceeds by chance as often as is accepted."""
    source, largest = np.random.default_rng(n), []
    rows = max(_AT_ONCE // n, 1)
    for begin in range(0, _N_ORDERS, rows):
        ordered = np.tile(np.arange(1.0, n + 1), (min(rows, _N_ORDERS - begin), 1))
        largest.append(_statistics(source.permuted(ordered, axis=1)).max(axis=1))
    return float(np.quantile(np.concatenate(largest), 1 - FALSE_ALARMS, method="higher"))
