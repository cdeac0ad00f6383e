"""Nesting of intervals on lanes: boundaries in order, who is innermost, and who encloses whom.

::

    lane   |[A      [B  ]   ]   [C]        boundaries: A< B< B> A> C< C>
             A A A A B B B A A   - C       innermost after each: A B A - C -

Intervals of one lane may overlap partially (real threads do): innermost is then the one that
started last and has not ended, which is what a person reads off a timeline. One sweep over the
boundaries with a stack finds it.

Some intervals cannot call what outlasts them, such as API calls: operators are timed by another
clock, and one may seem to begin microseconds before the call in front of it returns. Such an
interval is no parent of what overhangs it; the parent is what encloses both.

::

    lane   |[A               ]             C overhangs the API call B
           |   [B     ]                    parents: B in A, C in A, D in C
           |       [C   [D] ]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.native.passes import compiled

__all__ = ["Nesting", "nest"]

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Nesting(NamedTuple):
    """Boundaries of intervals in order, and what holds between them.

    Parameters
    ----------
    boundary : ndarray of shape (2 * n,), dtype=int32
        ``2 * i`` for the start and ``2 * i + 1`` for the end of interval ``i``; by lane, then in
        order.
    innermost : ndarray of shape (2 * n,), dtype=int32
        The interval that is innermost from each boundary to the next of its lane, -1 for none.
    parent : ndarray of shape (n,), dtype=int32
        The interval that was innermost when each one started, -1 for none. Passed over are those
        that it overhangs and that are calls.
    """

    boundary: I32
    innermost: I32
    parent: I32


@compiled
def _merge(begun: I64, ended: I64, lane: I32, start: I64, end: I64, boundary: I32) -> None:
    """Fill boundaries from intervals in the order of their starts, and those of some length by end.

    What ends up to a time comes before what starts then; what has no length ends at once.
    """
    out, done = 0, 0
    for interval in begun:
        while done < len(ended) and (
            lane[ended[done]] < lane[interval]
            or (lane[ended[done]] == lane[interval] and end[ended[done]] <= start[interval])
        ):
            boundary[out] = 2 * ended[done] + 1
            out += 1
            done += 1
        boundary[out] = 2 * interval
        out += 1
        if end[interval] <= start[interval]:
            boundary[out] = 2 * interval + 1
            out += 1
    for interval in ended[done:]:
        boundary[out] = 2 * interval + 1
        out += 1


@compiled
def _sweep(
    boundary: I32,
    lane: I32,
    end: I64,
    is_call: Bools,
    innermost: I32,
    parent: I32,
    stack: I32,
    ended: Bools,
) -> None:
    """Fill innermost and parent by a stack pass; ended intervals are popped when they surface.

    What overhangs a call is pushed onto it and outlasts it, so each call is passed over once.
    """
    depth = 0
    last_lane = -1
    for position in range(len(boundary)):
        interval = boundary[position] >> 1
        if lane[interval] != last_lane:
            depth = 0
            last_lane = lane[interval]
        if boundary[position] & 1:
            ended[interval] = True
            while depth > 0 and ended[stack[depth - 1]]:
                depth -= 1
        else:
            above = depth
            while above > 0 and (
                ended[stack[above - 1]]
                or (
                    is_call[stack[above - 1]]
                    and not is_call[interval]
                    and end[interval] > end[stack[above - 1]]
                )
            ):
                above -= 1
            parent[interval] = stack[above - 1] if above > 0 else -1
            stack[depth] = interval
            depth += 1
        innermost[position] = stack[depth - 1] if depth > 0 else -1


def nest(
    lane: I32,
    start: I64,
    end: I64,
    depth_hint: I64 | None = None,
    is_call: Bools | None = None,
) -> Nesting:
    """Boundaries of intervals in order and their nesting.

    At one instant, intervals that end there come first (inner before outer), then those that start
    (outer before inner); an interval of no length ends right after its start.

    Parameters
    ----------
    lane : ndarray of shape (n,), dtype=int32
    start, end : ndarray of shape (n,), dtype=int64
        ``start <= end``.
    depth_hint : ndarray of shape (n,), dtype=int64, optional
        Of equal intervals, the one with the smaller hint is the outer one; by default the one that
        comes first.
    is_call : ndarray of shape (n,), dtype=bool, optional
        Intervals that are never the parent of one that overhangs them and is no call itself.

    Returns
    -------
    Nesting

    Notes
    -----
    ``O(n log n)`` for the sorts; the passes take about 10 ns a boundary.

    Examples
    --------
    >>> lane = np.zeros(3, dtype=np.int32)
    >>> nesting = nest(lane, np.array([0, 3, 12]), np.array([10, 6, 14]))
    >>> nesting.boundary.tolist(), nesting.innermost.tolist(), nesting.parent.tolist()
    ([0, 2, 3, 1, 4, 5], [0, 1, 0, -1, 2, -1], [-1, 0, -1])
    """
    n = len(start)
    hint = np.arange(n) if depth_hint is None else depth_hint
    outer_first = np.lexsort((hint, -end, start, lane))
    inner_first = outer_first[::-1]
    inner_first = inner_first[(end > start)[inner_first]]
    ended = inner_first[np.lexsort((end[inner_first], lane[inner_first]))]
    lane = np.ascontiguousarray(lane, dtype=np.int32)
    start, end = np.ascontiguousarray(start), np.ascontiguousarray(end)
    found = Nesting(*(np.empty(size, dtype=np.int32) for size in (2 * n, 2 * n, n)))
    calls = np.zeros(n, dtype=np.bool_) if is_call is None else is_call
    _merge(outer_first, ended, lane, start, end, found.boundary)
    stack, is_ended = np.empty(n, dtype=np.int32), np.zeros(n, dtype=np.bool_)
    _sweep(found.boundary, lane, end, calls, found.innermost, found.parent, stack, is_ended)
    return found
