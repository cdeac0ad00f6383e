"""Joins on integer arrays: by key, by the last before a time, and by running maximum."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.arrays.codes import gather, ranges
from htagraph.arrays.passes import compiled
from htagraph.model.arrays import I64, Bools


def match_keys(keys: I64, table_keys: I64) -> I64:
    """Position of the first occurrence of each key in an unsorted table, -1 where it is absent."""
    if not len(table_keys):
        return np.full(len(keys), -1, dtype=np.int64)
    order = np.argsort(table_keys, kind="stable")
    position = np.minimum(np.searchsorted(table_keys[order], keys), len(order) - 1)
    found = order[position]
    return np.where(table_keys[found] == keys, found, -1)


@compiled
def _last_before(group: I64, time: I64, query_group: I64, query_time: I64, position: I64) -> None:
    """Fill the position of the last row before each query.

    The search starts where the query before ended, in doubling steps: sorted queries take one pass.
    """
    n = len(group)
    low, last_group, last_time = 0, query_group[0], query_time[0]
    for query in range(len(query_group)):
        in_group, until = query_group[query], query_time[query]
        if in_group < last_group or (in_group == last_group and until < last_time):
            low = 0
        last_group, last_time = in_group, until
        step, high = 1, low
        while high < n and (
            group[high] < in_group or (group[high] == in_group and time[high] < until)
        ):
            low = high + 1
            high += step
            step *= 2
        high = min(high, n)
        while low < high:
            middle = (low + high) >> 1
            if group[middle] < in_group or (group[middle] == in_group and time[middle] < until):
                low = middle + 1
            else:
                high = middle
        position[query] = low - 1 if low > 0 and group[low - 1] == in_group else -1


def last_before(
    group: npt.NDArray[np.integer],
    time: I64,
    query_group: npt.NDArray[np.integer],
    query_time: I64,
) -> I64:
    """Position of the last row with ``time < query_time`` in the query's group; -1 for none.

    Rows are sorted by group, then time.
    """
    position = np.full(len(query_group), -1, dtype=np.int64)
    if len(group) and len(query_group):
        columns = (group, time, query_group, query_time)
        groups, times, of, until = (np.ascontiguousarray(each, dtype=np.int64) for each in columns)
        _last_before(groups, times, of, until, position)
    return position


def cut_at(rows: tuple[I64, I64], group: I64, start: I64, end: I64) -> tuple[I64, I64, I64, I64]:
    """Stretches, each of a group, cut at the times of its rows; empty pieces are left out.

    `rows`: group and time, sorted by both. Of each piece: its stretch, the last row until it begins
    (-1 for none), its start and its end.
    """
    of, time = rows
    first = np.maximum(last_before(of, time, group, start + 1), np.searchsorted(of, group) - 1)
    last = np.maximum(last_before(of, time, group, end), first)
    stretch = np.repeat(np.arange(len(group)), last - first + 1)
    row = ranges(first, last - first + 1)
    begin = np.where(row == first[stretch], start[stretch], gather(time, row))
    until = np.where(row == last[stretch], end[stretch], gather(time, row + 1))
    row = np.where(gather(of, row) == group[stretch], row, -1)
    full = np.flatnonzero(until > begin)
    return stretch[full], row[full], begin[full], until[full]


@compiled
def _last_of_groups(
    group: I64, until: I64, older: I64, newer: I64, last: I64, position: I64
) -> None:
    """Fill the last rows; groups are a list, linked both ways, the one of the last row first."""
    end, row = len(last), 0
    for query in range(len(until)):
        while row < until[query]:
            one = group[row]
            if last[one] >= 0:
                older[newer[one]] = older[one]
                newer[older[one]] = newer[one]
            older[one] = older[end]
            newer[one] = end
            newer[older[end]] = one
            older[end] = one
            last[one] = row
            row += 1
        one = older[end]
        for place in range(position.shape[1]):
            if one == end:
                break
            position[query, place] = last[one]
            one = older[one]


def last_of_groups(group: I64, until: I64, most: int) -> I64:
    """Last row of each group among the first ``until`` rows, ascending; -1 for none.

    The last row first; of more groups than `most`, those whose last rows come last.
    """
    n = int(group.max(initial=-1)) + 1
    older, newer = (np.full(n + 1, n, dtype=np.int64) for _ in range(2))
    last = np.full(n, -1, dtype=np.int64)
    position = np.full((len(until), min(n, most)), -1, dtype=np.int64)
    _last_of_groups(group.astype(np.int64), until, older, newer, last, position)
    return position


def group_starts(*keys: npt.NDArray[np.integer]) -> Bools:
    """Whether a new group starts at each row of sorted columns."""
    n = len(keys[0])
    starts = np.zeros(n, dtype=bool)
    if n:
        starts[0] = True
        for key in keys:
            starts[1:] |= key[1:] != key[:-1]
    return starts


@compiled
def _running_latest(value: I64, starts: Bools, best: I64) -> None:
    """Fill the position of the largest value so far in the group, the later one on a tie."""
    current = 0
    for row in range(len(value)):
        if starts[row] or value[row] >= value[current]:
            current = row
        best[row] = current


def running_latest(value: I64, starts: Bools) -> I64:
    """Position of the largest value so far in its group, for each row; ties go to the later one.

    `starts` says where groups start; the first row does.
    """
    best = np.empty(len(value), dtype=np.int64)
    _running_latest(np.ascontiguousarray(value), np.ascontiguousarray(starts), best)
    return best
