"""Looking up rows, where -1 stands for none."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import I64

_AT_ONCE = 1 << 16
"""Rows a block: numpy copies 32-bit rows to 64 bits, and the copy fits into the cache. Changes only
the speed."""


def gather(
    values: npt.NDArray[Any], rows: npt.NDArray[np.integer], default: object = -1
) -> npt.NDArray[Any]:
    """Values at some rows, and where the row is negative a default, cast to their type.

    Examples
    --------
    >>> gather(np.array([10, 20]), np.array([1, -1, 0])).tolist()
    [20, -1, 10]
    """
    if not len(values):
        return np.full(rows.shape, default, dtype=values.dtype)
    out = np.empty(rows.shape, dtype=values.dtype)
    every, filled = rows.reshape(-1), out.reshape(-1)
    for begin in range(0, len(every), _AT_ONCE):
        part, found = every[begin : begin + _AT_ONCE], filled[begin : begin + _AT_ONCE]
        values.take(part, mode="clip", out=found)
        found[part < 0] = default
    return out


def ranges(first: npt.NDArray[np.integer], n: npt.NDArray[np.integer]) -> I64:
    """Rows of several ranges, one after the other: of each the first, and how many.

    Examples
    --------
    >>> ranges(np.array([4, 0]), np.array([2, 1])).tolist()
    [4, 5, 0]
    """
    return np.repeat(first - np.cumsum(n) + n, n) + np.arange(n.sum())
