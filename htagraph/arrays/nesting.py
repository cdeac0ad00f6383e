"""Nesting of intervals on lanes: boundaries in order, who is innermost, and who encloses whom.

::

    lane   |[A      [B  ]   ]   [C]        boundaries: A< B< B> A> C< C>
             A A A A B B B A A   - C       innermost after each: A B A - C -

Intervals of one lane may overlap partially (real threads do): innermost is then the one that
started last and has not ended. One sweep over the boundaries with a stack finds it.

API calls are timed by another clock than operators: an operator may seem to begin microseconds
before the call in front of it returns. So a call is no parent of what overhangs it; the parent is
what encloses both.

::

    lane   |[A               ]             C overhangs the API call B
           |   [B     ]                    parents: B in A, C in A, D in C
           |       [C   [D] ]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.arrays.inner import called, inlined
from htagraph.arrays.passes import compiled
from htagraph.model.arrays import I8, I32, I64, Bools

_RUN = 16
"""Intervals that are sorted by insertion, before runs are merged. Changes only the speed."""


class Nesting(NamedTuple):
    """Boundaries of intervals in order, and what holds between them."""

    # Of shape (2 * n,). ``2 * i`` for the start and ``2 * i + 1`` for the end of interval ``i``; by
    # lane, then in order.
    boundary: I32
    # Of shape (2 * n,). The interval that is innermost from each boundary to the next of its lane,
    # -1 for none.
    innermost: I32
    # The interval that was innermost when each one started, -1 for none. Passed over are those that
    # it overhangs and that are calls.
    parent: I32
    first: I64  # Of shape (n_lanes + 1,). Boundaries of a lane are ``first[lane]:first[lane + 1]``.


class _Intervals(NamedTuple):
    """Intervals; of equal ones, the outer one has the lower rank, then the lower number."""

    start: I64
    end: I64
    rank: I8
    number: I64


@inlined
def _is_before(a: int, b: int, of: _Intervals, by_start: I32, of_ends: bool) -> bool:
    """Whether interval `a` starts before `b`; of ends, these are places in `by_start`."""
    before = False
    if of_ends:
        end_a, end_b = of.end[by_start[a]], of.end[by_start[b]]
        before = end_a < end_b or (end_a == end_b and a > b)
    elif of.start[a] != of.start[b]:
        before = of.start[a] < of.start[b]
    elif of.end[a] != of.end[b]:
        before = of.end[a] > of.end[b]
    elif len(of.rank) > 0 and of.rank[a] != of.rank[b]:
        before = of.rank[a] < of.rank[b]
    elif len(of.number) > 0:
        before = of.number[a] < of.number[b]
    return before


@called
def _sort(
    items: I32, begin: int, end: int, spare: I32, of: _Intervals, by_start: I32, of_ends: bool
) -> None:
    """Sort what is nearly in order: short runs by insertion, then merged where needed."""
    for low in range(begin, end, _RUN):
        for position in range(low + 1, min(low + _RUN, end)):
            item, at = items[position], position
            while at > low and _is_before(item, items[at - 1], of, by_start, of_ends):
                items[at] = items[at - 1]
                at -= 1
            items[at] = item
    width = _RUN
    while width < end - begin:
        for low in range(begin, end - width, 2 * width):
            middle, high = low + width, min(low + 2 * width, end)
            if not _is_before(items[middle], items[middle - 1], of, by_start, of_ends):
                continue
            for position in range(low, middle):
                spare[position] = items[position]
            left, right, out = low, middle, low
            while left < middle:
                if right < high and _is_before(items[right], spare[left], of, by_start, of_ends):
                    items[out] = items[right]
                    right += 1
                else:
                    items[out] = spare[left]
                    left += 1
                out += 1
        width *= 2


@compiled
def _count(rows: I32, lane: I32, first: I64) -> None:
    """Count the intervals of each lane, at the place after its own."""
    for row in rows:
        first[lane[row] + 1] += 1


@compiled
def _by_start(
    rows: I32, lane: I32, of: _Intervals, lanes: tuple[I64, I64], by_start: I32, spare: I32
) -> None:
    """Fill intervals by lane and start, outer ones first.

    `lanes` is where each lane begins, twice.
    """
    first, following = lanes
    for row in rows:
        by_start[following[lane[row]]] = row
        following[lane[row]] += 1
    for number in range(len(first) - 1):
        _sort(by_start, first[number], first[number + 1], spare, of, by_start, False)


@compiled
def _by_end(by_start: I32, of: _Intervals, first: I64, last: I64, by_end: I32, spare: I32) -> None:
    """Fill intervals of some length by lane and end, inner ones first, and where each lane ends.

    A stack gives those that nest in order already.
    """
    n = 0
    for number in range(len(first) - 1):
        begin, depth = n, 0
        for place in range(first[number], first[number + 1]):
            row = by_start[place]
            while depth > 0 and of.end[by_start[spare[depth - 1]]] <= of.start[row]:
                depth -= 1
                by_end[n] = spare[depth]
                n += 1
            if of.end[row] > of.start[row]:
                spare[depth] = place
                depth += 1
        while depth > 0:
            depth -= 1
            by_end[n] = spare[depth]
            n += 1
        last[number] = n
        _sort(by_end, begin, n, spare, of, by_start, True)
        for position in range(begin, n):
            by_end[position] = by_start[by_end[position]]


@compiled
def _merge(
    by_start: I32, by_end: I32, of: _Intervals, first: I64, last: I64, boundary: I32
) -> None:
    """Fill boundaries from intervals in the order of their starts, and those of some length by end.

    What ends up to a time comes before what starts then; what has no length ends at once.
    """
    out, done = 0, 0
    for number in range(len(first) - 1):
        for place in range(first[number], first[number + 1]):
            row = by_start[place]
            while done < last[number] and of.end[by_end[done]] <= of.start[row]:
                boundary[out] = 2 * by_end[done] + 1
                out += 1
                done += 1
            boundary[out] = 2 * row
            out += 1
            if of.end[row] <= of.start[row]:
                boundary[out] = 2 * row + 1
                out += 1
        while done < last[number]:
            boundary[out] = 2 * by_end[done] + 1
            out += 1
            done += 1


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
    depth_hint: tuple[I8, I64] | None = None,
    is_call: Bools | None = None,
    rows: npt.NDArray[np.integer] | None = None,
) -> Nesting:
    """Boundaries of intervals in order and their nesting.

    At one instant, intervals that end there come first (inner before outer), then those that start
    (outer before inner); an interval of no length ends right after its start. ``O(n)`` where
    intervals come in the order of their starts and nest, else ``O(n log n)``. `start`, `end`:
    ``start <= end``. `depth_hint`: of equal intervals, the one of lower rank is the outer one, then
    that of the smaller number; by default the one that comes first. `is_call`: intervals that are
    never the parent of one that overhangs them and is no call itself. `rows` of shape (k,):
    intervals to nest, ascending; all by default. The others have no boundaries.
    """
    n = len(start)
    chosen = np.arange(n, dtype=np.int32) if rows is None else rows.astype(np.int32)
    lane = np.ascontiguousarray(lane, dtype=np.int32)
    rank, number = (np.empty(0, dtype=np.int8), np.empty(0, dtype=np.int64))
    if depth_hint is not None:
        rank, number = depth_hint
    start, end, number = (
        np.ascontiguousarray(each, dtype=np.int64) for each in (start, end, number)
    )
    of = _Intervals(start, end, rank, number)
    first = np.zeros(int(lane.max(initial=-1)) + 2, dtype=np.int64)
    _count(chosen, lane, first)
    np.cumsum(first, out=first)
    last, following = np.empty_like(first), first.copy()
    by_start, by_end, spare = (np.empty(len(chosen), dtype=np.int32) for _ in range(3))
    _by_start(chosen, lane, of, (first, following), by_start, spare)
    _by_end(by_start, of, first, last, by_end, spare)
    boundary, innermost = (np.empty(2 * len(chosen), dtype=np.int32) for _ in range(2))
    _merge(by_start, by_end, of, first, last, boundary)
    del by_start, by_end
    calls = np.zeros(n, dtype=np.bool_) if is_call is None else is_call
    parent, is_ended = np.full(n, -1, dtype=np.int32), np.zeros(n, dtype=np.bool_)
    _sweep(boundary, lane, of.end, calls, innermost, parent, spare, is_ended)
    return Nesting(boundary, innermost, parent, 2 * first)
