"""Joins on integer arrays: by key, by the last before a time, and by running maximum."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.native.passes import compiled

__all__ = ["group_starts", "last_before", "match_keys", "running_latest"]

I64 = npt.NDArray[np.int64]


def match_keys(keys: I64, table_keys: I64) -> I64:
    """Position of the first occurrence of each key in a table, -1 where it is absent.

    Parameters
    ----------
    keys : ndarray of shape (n,), dtype=int64
    table_keys : ndarray of shape (m,), dtype=int64
        Need not be sorted nor unique.

    Returns
    -------
    ndarray of shape (n,), dtype=int64

    Examples
    --------
    >>> match_keys(np.array([7, 8, 9]), np.array([9, 7, 7])).tolist()
    [1, -1, 0]
    """
    if not len(table_keys):
        return np.full(len(keys), -1, dtype=np.int64)
    order = np.argsort(table_keys, kind="stable")
    position = np.minimum(np.searchsorted(table_keys[order], keys), len(order) - 1)
    found = order[position]
    return np.where(table_keys[found] == keys, found, -1)


def last_before(group: I64, time: I64, query_group: I64, query_time: I64) -> I64:
    """Position of the last row before each query, in the query's group; -1 for none.

    Before means ``row time < query time``.

    Parameters
    ----------
    group, time : ndarray of shape (n,), dtype=int64
        Rows, sorted by group, then time.
    query_group, query_time : ndarray of shape (q,), dtype=int64

    Returns
    -------
    ndarray of shape (q,), dtype=int64

    Examples
    --------
    >>> group, time = np.array([1, 1, 2]), np.array([10, 20, 5])
    >>> last_before(group, time, np.array([1, 1, 2, 3]), np.array([20, 21, 5, 9])).tolist()
    [0, 1, -1, -1]
    """
    if not len(group) or not len(query_group):
        return np.full(len(query_group), -1, dtype=np.int64)
    n, q = len(group), len(query_group)
    # One sort of rows and queries together; a query comes before the rows of its own time.
    order = np.lexsort(
        (
            np.concatenate([np.ones(n, dtype=np.int8), np.zeros(q, dtype=np.int8)]),
            np.concatenate([time, query_time]),
            np.concatenate([group, query_group]),
        )
    )
    is_row = order < n
    seen = np.cumsum(is_row) - 1
    position = np.empty(q, dtype=np.int64)
    position[order[~is_row] - n] = seen[~is_row]
    inside = position >= 0
    inside[inside] = group[position[inside]] == query_group[inside]
    return np.where(inside, position, -1)


def group_starts(*keys: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Whether a new group starts at each row of sorted columns.

    Examples
    --------
    >>> group_starts(np.array([1, 1, 2, 2]), np.array([0, 0, 0, 5])).tolist()
    [True, False, True, True]
    """
    n = len(keys[0])
    starts = np.zeros(n, dtype=bool)
    if n:
        starts[0] = True
        for key in keys:
            starts[1:] |= key[1:] != key[:-1]
    return starts


@compiled
def _running_latest(value: I64, starts: npt.NDArray[np.bool_], best: I64) -> None:
    """Fill the position of the largest value so far in the group, the later one on a tie."""
    current = 0
    for row in range(len(value)):
        if starts[row] or value[row] >= value[current]:
            current = row
        best[row] = current


def running_latest(value: I64, starts: npt.NDArray[np.bool_]) -> I64:
    """Position of the largest value so far in its group, for each row; the later of equal ones.

    Parameters
    ----------
    value : ndarray of shape (n,), dtype=int64
    starts : ndarray of shape (n,), dtype=bool
        Where groups start; the first row does.

    Examples
    --------
    >>> running_latest(np.array([5, 3, 9, 1]), np.array([True, False, False, True])).tolist()
    [0, 0, 2, 3]
    """
    best = np.empty(len(value), dtype=np.int64)
    _running_latest(np.ascontiguousarray(value), np.ascontiguousarray(starts), best)
    return best
