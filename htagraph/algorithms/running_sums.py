"""Sums over what runs at once, as steps over time, and their integrals: a sweep line."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import F64, I64


class RunningSums:
    """Sums over intervals that run at once.

    Parameters
    ----------
    start, end : ndarray of shape (n,), dtype=float64
        ``start <= end``.

    Examples
    --------
    Two intervals overlap from 2 to 3; the second counts double.

    >>> sums = RunningSums(np.array([0.0, 2.0]), np.array([3.0, 5.0]))
    >>> level = sums.of(np.array([1, 2]))
    >>> level.tolist()
    [1, 3, 2]
    >>> sums.integral(level).tolist()
    [0.0, 2.0, 5.0, 9.0]
    >>> sums.over_each(sums.integral(level)).tolist()
    [5.0, 7.0]
    """

    def __init__(self, start: F64, end: F64) -> None:
        both = np.concatenate([start, end])
        self._order = np.argsort(both, kind="stable")
        self.time = both[self._order]
        """Instants at which something starts or ends, ascending."""
        self._place = np.empty(len(both), dtype=np.int64)
        self._place[self._order] = np.arange(len(both))

    def of(self, values: I64) -> I64:
        """Sum of the values of what runs, from each instant to the next."""
        steps = np.concatenate([values, -values])[self._order]
        total: I64 = np.cumsum(steps)[:-1]
        return total

    def integral(self, level: npt.NDArray[np.number | np.bool_]) -> F64:
        """Integral, up to each instant, of what has a value from each instant to the next."""
        return np.concatenate([[0.0], np.cumsum(level * np.diff(self.time))])[: len(self.time)]

    def over_each(self, integral: F64) -> F64:
        """Part of an integral that lies in each interval."""
        first, last = np.split(self._place, 2)
        return integral[last] - integral[first]
