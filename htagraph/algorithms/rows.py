"""Rows of a lane: intervals that overlap partially get separate rows, so that each row nests.

::

    lane   [A      ]           row 0   [A      ]
               [B      ]       row 1       [B      ]
                 [C]           row 0     nests in A: [C]

First fit, as in the coloring of interval graphs; but a row also holds what nests in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.model.arrays import I32, I64
from htagraph.native.passes import compiled


class Rows(NamedTuple):
    """A row for each interval, and the boundaries in the order in which a viewer reads them.

    Parameters
    ----------
    row : ndarray of shape (n,), dtype=int32
        Row within the lane; intervals of one lane and row are disjoint or nested.
    boundary : ndarray of shape (2 * n,), dtype=int64
        ``2 * i`` for the start and ``2 * i + 1`` for the end of interval ``i``; by lane, and in
        order on each row.
    """

    row: I32
    boundary: I64


@compiled
def _fill(
    order: I64,
    lane: I32,
    span: tuple[I64, I64],
    row: I32,
    boundary: I64,
    below: I64,
    top: I64,
) -> None:
    """Put each interval on the first row whose open intervals all enclose it.

    `below` takes the interval under each, -1 for none; `top` the innermost open one of each row.
    """
    start, end = span
    n = len(order)
    n_rows = 0
    out = 0
    for position in range(n + 1):
        i = order[position] if position < n else -1
        if i < 0 or (position > 0 and lane[i] != lane[order[position - 1]]):
            for r in range(n_rows):
                while top[r] >= 0:
                    boundary[out] = 2 * top[r] + 1
                    out += 1
                    top[r] = below[top[r]]
            n_rows = 0
        if i < 0:
            break
        r = 0
        while True:
            if r == n_rows:
                top[r] = -1
                n_rows += 1
            while top[r] >= 0 and end[top[r]] <= start[i]:
                boundary[out] = 2 * top[r] + 1
                out += 1
                top[r] = below[top[r]]
            if top[r] < 0 or end[top[r]] >= end[i]:
                break
            r += 1
        row[i] = r
        below[i] = top[r]
        top[r] = i
        boundary[out] = 2 * i
        out += 1


def rows(lane: I32, start: I64, end: I64) -> Rows:
    """Rows on which intervals nest strictly, as few as first fit needs; ``start <= end``.

    Examples
    --------
    >>> lane = np.zeros(3, dtype=np.int32)
    >>> rows(lane, np.array([0, 4, 6]), np.array([9, 13, 8])).row.tolist()
    [0, 1, 0]
    """
    n = len(start)
    order = np.lexsort((np.arange(n), -end, start, lane)).astype(np.int64)
    row = np.zeros(n, dtype=np.int32)
    boundary = np.empty(2 * n, dtype=np.int64)
    lanes = np.ascontiguousarray(lane, dtype=np.int32)
    span = np.ascontiguousarray(start), np.ascontiguousarray(end)
    below, top = np.empty((2, n), dtype=np.int64)
    _fill(order, lanes, span, row, boundary, below, top)
    return Rows(row, boundary)
