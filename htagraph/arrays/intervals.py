"""Sets of intervals on a line: unions, what runs at once, how much lies before a time, and rows.

A sweep line: one sort of all boundaries, then running counts (Bentley, "Algorithms for Klee's
rectangle problems", 1977). Intervals are half-open, ``[start, end)``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.arrays.passes import compiled
from htagraph.errors import GraphError
from htagraph.model.arrays import I32, I64

_AT_ONCE = 1 << 18
"""Rows a block: numpy copies them to 64 bits twice. Changes only memory and speed."""
_EXACT_IN_FLOAT = 2.0**52
"""Sums of integers up to here are exact in float64, which is several times faster."""
_DENSE = 4
"""Table rows per code up to which marking is faster than sorting; either gives the same. Chosen."""


class Intervals(NamedTuple):
    """Intervals of several groups, by group, then in order."""

    group: I64
    start: I64
    end: I64


class States(NamedTuple):
    """Consecutive stretches of time in which nothing begins or ends, and what runs in each.

    Bit ``b`` of `mask` is set where an interval of class ``b`` runs; it is never 0.
    """

    group: I64
    start: I64
    end: I64
    mask: I64

    @property
    def dur(self) -> I64:
        """Length of each stretch."""
        return self.end - self.start


def _sorted_boundaries(group: I64, start: I64, end: I64) -> tuple[I64, I64, I64, I64]:
    """Group, time, step (+1, -1) and interval of each boundary, starts before ends."""
    n = len(start)
    time = np.concatenate([start, end])
    groups = np.concatenate([group, group])
    step = np.repeat(np.array([1, -1], dtype=np.int64), n)
    # A stable sort keeps the starts, which stand first, before the ends of the same time.
    order = np.argsort(time, kind="stable")
    if n and (group != group[0]).any():
        order = order[np.argsort(groups[order], kind="stable")]
    return groups[order], time[order], step[order], order % max(n, 1)


def union(group: I64, start: I64, end: I64) -> Intervals:
    """Union of the intervals of each group: intervals that neither overlap nor touch.

    ::

        [a    ]    [c ]
           [b    ]     [d]         ->    [       ]  [    ]

    ``start <= end``; empty intervals count for nothing.
    """
    groups, time, step, _ = _sorted_boundaries(group, start, end)
    depth = np.cumsum(step)
    first = np.flatnonzero((step > 0) & (depth == 1))
    last = np.flatnonzero(depth == 0)
    kept = time[last] > time[first]
    return Intervals(groups[first[kept]], time[first[kept]], time[last[kept]])


def gaps(busy: Intervals, group: I64, start_ns: int, end_ns: int) -> Intervals:
    """Gaps that a union leaves in ``[start_ns, end_ns)``, in each of some ascending groups."""
    begin = np.concatenate([np.full(len(group), start_ns), busy.end])
    stop = np.concatenate([busy.start, np.full(len(group), end_ns)])
    begin_order = np.lexsort((begin, np.concatenate([group, busy.group])))
    stop_order = np.lexsort((stop, np.concatenate([busy.group, group])))
    owner = np.concatenate([group, busy.group])[begin_order]
    begin, stop = begin[begin_order], stop[stop_order]
    kept = stop > begin
    return Intervals(owner[kept], begin[kept], stop[kept])


def states(group: I64, start: I64, end: I64, bit: npt.NDArray[np.integer], n_bits: int) -> States:
    """Classes that run at once, as stretches that tile the union of each group.

    ::

        bit 0  [a    ]
        bit 1     [b    ]      ->   mask 1 | 3 | 2

    `bit` is the class of each interval, below `n_bits`.
    """
    groups, time, step, interval = _sorted_boundaries(group, start, end)
    bits = bit[interval] if len(bit) else interval
    mask = np.zeros(len(time), dtype=np.int64)
    for position in range(n_bits):
        running = np.cumsum(np.where(bits == position, step, 0))
        mask |= (running > 0).astype(np.int64) << position
    rows = np.flatnonzero((mask[:-1] > 0) & (time[1:] > time[:-1]))
    return States(groups[rows], time[rows], time[rows + 1], mask[rows])


class Cover:
    """How much of a set of disjoint intervals lies before a time.

    `start`, `end`: one group of a union, in order.
    """

    def __init__(self, start: I64, end: I64) -> None:
        self._start, self._end = start, end
        self._before = np.concatenate([[0], np.cumsum(end - start)]).astype(np.int64)

    def before(self, time: I64) -> I64:
        """Length of the set before each time."""
        if not len(self._start):
            return np.zeros(len(time), dtype=np.int64)
        begun = np.searchsorted(self._start, time, side="right")
        last = np.maximum(begun - 1, 0)
        beyond = np.where(begun > 0, np.maximum(self._end[last] - time, 0), 0)
        return self._before[begun] - beyond

    def free_from(self, time: I64) -> I64:
        """First time at or after each that is not in the set."""
        if not len(self._start):
            return time
        last = np.maximum(np.searchsorted(self._start, time, side="right") - 1, 0)
        inside = (self._start[last] <= time) & (time < self._end[last])
        return np.where(inside, self._end[last], time)

    def within(self, start: I64, end: I64) -> I64:
        """Length of the set in each ``[start, end)``."""
        return self.before(end) - self.before(start)


def sum_by_code(code: npt.NDArray[np.integer], value: I64, n_codes: int) -> I64:
    """Exact integer sum of values per code."""
    out = np.zeros(n_codes, dtype=np.int64)
    at_once = max(_AT_ONCE, n_codes)
    for begin in range(0, len(value), at_once):
        of, part = code[begin : begin + at_once], value[begin : begin + at_once]
        if float(np.abs(part).sum(dtype=np.float64)) < _EXACT_IN_FLOAT:
            out += np.bincount(of, weights=part, minlength=n_codes).astype(np.int64)
        else:
            np.add.at(out, of, part)
    return out


def distinct(code: npt.NDArray[np.integer], n_codes: int) -> tuple[I64, I64]:
    """The codes that occur, ascending, and which of them each is; codes are below `n_codes`."""
    if n_codes > _DENSE * len(code):  # a table of all codes would be larger than what is there
        found, place = np.unique(code, return_inverse=True)
        return found.astype(np.int64), place.astype(np.int64)
    occurs = np.zeros(n_codes, dtype=bool)
    occurs[code] = True
    found = np.flatnonzero(occurs)
    return found, (np.cumsum(occurs) - 1)[code]


def check_tiling(
    what: str,
    start: I64,
    end: I64,
    windows: tuple[npt.ArrayLike, npt.ArrayLike],
    of: npt.NDArray[np.integer] | None = None,
) -> None:
    """Raise unless pieces tile their window, or each its own of several.

    `what`: name of what should tile. `windows`: starts and ends. `of`: number of the window of each
    piece, ascending; default: all of the first.
    """
    window_start, window_end = (np.atleast_1d(np.asarray(side, dtype=np.int64)) for side in windows)
    group = np.zeros(len(start), dtype=np.int8) if of is None else of
    number = np.arange(len(window_start))
    first, last = np.searchsorted(group, number), np.searchsorted(group, number, side="right")
    tiled = window_start == window_end
    some = np.flatnonzero(last > first)
    begins, ends = start[first[some]], end[last[some] - 1]
    tiled[some] = (begins == window_start[some]) & (ends == window_end[some])
    torn = 1 + np.flatnonzero(start[1:] != end[:-1])
    tiled[group[torn[group[torn] == group[torn - 1]]]] = False
    if not tiled.all():
        worst = int(np.argmin(tiled))
        raise not_tiled(what, int(window_start[worst]), int(window_end[worst]))


def not_tiled(what: str, start_ns: int, end_ns: int) -> GraphError:
    """The error for pieces that do not tile their window."""
    return GraphError(
        f"{what} does not tile the window from {start_ns:,} to {end_ns:,} ns.",
        hint="this is a defect of htagraph; please report it with the trace.",
    )


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


def rows(lane: I32, start: I64, end: I64) -> tuple[I32, I64]:
    """Rows on which intervals nest strictly, as few as first fit needs; ``start <= end``.

    ::

        lane   [A      ]           row 0   [A      ]
                   [B      ]       row 1       [B      ]
                     [C]           row 0     nests in A: [C]

    Returns the row of each within its lane, and the boundaries as a viewer reads them: by lane, and
    in order on each row; ``2 * i`` for the start and ``2 * i + 1`` for the end of interval ``i``.
    """
    n = len(start)
    order = np.lexsort((np.arange(n), -end, start, lane)).astype(np.int64)
    row = np.zeros(n, dtype=np.int32)
    boundary = np.empty(2 * n, dtype=np.int64)
    lanes = np.ascontiguousarray(lane, dtype=np.int32)
    span = np.ascontiguousarray(start), np.ascontiguousarray(end)
    below, top = np.empty((2, n), dtype=np.int64)
    _fill(order, lanes, span, row, boundary, below, top)
    return row, boundary
