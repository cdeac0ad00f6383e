"""Looking up rows of which some are -1: nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["gather"]

_AT_ONCE = 1 << 16
"""Rows that numpy makes 64 bits wide at once: a copy of few, which stays in the cache."""


def gather(
    values: npt.NDArray[Any], rows: npt.NDArray[np.integer], default: object = -1
) -> npt.NDArray[Any]:
    """Values at some rows, and a default where the row is -1.

    Parameters
    ----------
    values : ndarray of shape (n,)
    rows : ndarray of shape (k,), dtype=int
        Negative for none.
    default : object, default=-1
        Taken for these; cast to the type of the values.

    Returns
    -------
    ndarray of shape (k,)
        Of the type of `values`.

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
