"""Columns of numbers: rows of them, where -1 stands for none, which occur, and statistics.

A table with a place for each small number answers in one pass, without a sort or a hash.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import F64, I64, Bools

Table = TypeVar("Table", bound=NamedTuple)

_AT_ONCE = 1 << 16
"""Rows a block: numpy copies 32-bit rows to 64 bits, and the copy fits into the cache. Changes only
the speed."""


def gather(
    values: npt.NDArray[Any], rows: npt.NDArray[np.integer], default: object = -1
) -> npt.NDArray[Any]:
    """Values at some rows, and where the row is negative a default, cast to their type."""
    if not len(values):
        return np.full(rows.shape, default, dtype=values.dtype)
    out = np.empty(rows.shape, dtype=values.dtype)
    every, filled = rows.reshape(-1), out.reshape(-1)
    for begin in range(0, len(every), _AT_ONCE):
        part, found = every[begin : begin + _AT_ONCE], filled[begin : begin + _AT_ONCE]
        values.take(part, mode="clip", out=found)
        found[part < 0] = default
    return out


def take(table: Table, rows: npt.NDArray[np.integer] | Bools) -> Table:
    """Some rows of a table of columns, by positions or a mask."""
    return table._make(column[rows] for column in table)


def ranges(first: npt.NDArray[np.integer], n: npt.NDArray[np.integer]) -> I64:
    """Rows of several ranges, one after the other: of each the first, and how many."""
    return np.repeat(first - np.cumsum(n) + n, n) + np.arange(n.sum())


Codes = npt.NDArray[np.integer]

_SPARSE = 16
"""Places of a table for each row, beyond which a sort is faster. Changes only the speed."""


def marked(codes: Codes, n: int) -> Bools:
    """Whether each number below `n` occurs."""
    found = np.zeros(n, dtype=bool)
    found[codes] = True
    return found


def distinct(codes: Codes) -> I64:
    """Numbers that occur, each once, ascending; none may be negative."""
    return np.flatnonzero(marked(codes, int(codes.max(initial=-1)) + 1))


def is_in(codes: Codes, wanted: Codes) -> Bools:
    """Whether each number is wanted; none may be negative."""
    n = max(int(codes.max(initial=-1)), int(wanted.max(initial=-1))) + 1
    return gather(marked(wanted, n), codes)


def largest(values: npt.NDArray[Any], n: int) -> I64:
    """Rows of the largest values, the largest first; of equal ones, the first first."""
    if not 0 < n < len(values):
        return np.argsort(-values, kind="stable")[:n]
    least = np.partition(values, len(values) - n)[len(values) - n]
    rows = np.flatnonzero(values >= least)
    return rows[np.argsort(-values[rows], kind="stable")[:n]]


def n_alike(codes: Codes) -> I64:
    """How often the number of each row occurs; none may be negative."""
    if codes.max(initial=0) <= _SPARSE * len(codes):
        return np.bincount(codes)[codes]
    _, place, n = np.unique(codes, return_inverse=True, return_counts=True)
    found: I64 = n[place]
    return found


def as_narrow(codes: Codes) -> Codes:
    """The same numbers, in 16 bits if they fit: numpy sorts these by radix, four times as fast."""
    fits = codes.min(initial=0) >= 0 and codes.max(initial=0) < 1 << 16
    return codes.astype(np.uint16) if fits else codes


def lower_medians(group: Codes, values: npt.NDArray[Any]) -> I64:
    """The row of the (lower) median value in the group of each row; no group is negative."""
    order = np.lexsort((values, group))
    begins = np.flatnonzero(np.diff(group[order], prepend=-1))
    sizes = np.diff(begins, append=len(order))
    median = np.empty(len(group), dtype=np.int64)
    median[order] = np.repeat(order[begins + (sizes - 1) // 2], sizes)
    return median


class Distribution(NamedTuple):
    """Statistics of the values of each group, groups ascending."""

    group: I64
    n: I64
    total: I64
    mean: F64
    deviation: F64  # Of a sample; 0 of one value
    smallest: I64
    largest: I64
    first: I64  # Position of a smallest value
    quantiles: I64  # Of shape (n_quantiles, n_groups)

    @property
    def spread(self) -> dict[str, npt.NDArray[Any]]:
        """The statistics besides number and sum, by the names of columns; quantiles if any."""
        ends = {"min_ns": self.smallest, "max_ns": self.largest}
        quantiles = dict(zip(("p50_ns", "p90_ns", "p99_ns"), self.quantiles, strict=False))
        return {"mean_ns": self.mean, "std_ns": self.deviation, **ends, **quantiles}


QUANTILES = (0.5, 0.9, 0.99)
"""Those that columns are named after."""


def distribution(group: I64, value: I64, quantiles: tuple[float, ...] = ()) -> Distribution:
    """Statistics of the values of each group, by one sort.

    A quantile is one of the values, the largest at or below its rank: integers stay integers.
    """
    order = np.lexsort((value, group))
    groups, values = group[order], value[order]
    begins = np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))
    n = np.diff(np.append(begins, len(groups)))
    total = np.add.reduceat(values, begins) if len(groups) else values
    mean = total / np.maximum(n, 1)
    square = (values - np.repeat(mean, n)) ** 2
    variance = np.add.reduceat(square, begins) / np.maximum(n - 1, 1) if len(groups) else mean
    ranks = np.array([begins + ((n - 1) * q).astype(np.int64) for q in quantiles], np.int64)
    ranks = ranks.reshape(len(quantiles), len(n))
    ends = values[begins], values[begins + n - 1], order[begins]
    return Distribution(groups[begins], n, total, mean, np.sqrt(variance), *ends, values[ranks])
