"""Fewer marks than data: joined marks keep their total time and extremes, and are counted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.codes import largest
from htagraph.algorithms.intervals import sum_by_code
from htagraph.model.arrays import F64, I64

Codes = npt.NDArray[np.integer]


class Blocks(NamedTuple):
    """A path as blocks: a segment, or the time of one code in neighboring short segments.

    Parameters
    ----------
    start_ns, span_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Place of the block; `span_ns` is the length of all that was joined.
    dur_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Time of the code in it: adds up to the path.
    segment : ndarray of shape (n,), dtype=int64
        Row of the segment, -1 for joined ones.
    """

    start_ns: I64
    span_ns: I64
    dur_ns: I64
    code: I64
    segment: I64
    n_segments: I64


def thin_path(start_ns: I64, dur_ns: I64, code: Codes, *, max_single: int) -> Blocks:
    """A path as blocks: the longest segments stay single, the others are joined between them.

    Parameters
    ----------
    start_ns, dur_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Segments without gaps.
    code : ndarray of shape (n,), dtype=int
        What each is spent on, from 0.
    max_single : int
        Number of single segments; all stay single if there are at most twice as many.
    """
    n = len(start_ns)
    if n <= 2 * max_single:
        ones = np.ones(n, dtype=np.int64)
        return Blocks(start_ns, dur_ns, dur_ns, code.astype(np.int64), np.arange(n), ones)
    single = np.zeros(n, dtype=bool)
    single[largest(dur_ns, max_single)] = True
    begins = single | np.concatenate([[True], single[:-1]])
    first, n_each = np.flatnonzero(begins), int(code.max()) + 1
    key = (np.cumsum(begins, dtype=np.int32) - 1) * n_each + code
    n_codes = len(first) * n_each
    time, count = sum_by_code(key, dur_ns, n_codes), np.bincount(key, minlength=n_codes)
    drawn = np.flatnonzero(time)
    span = np.add.reduceat(dur_ns, first)
    of_group = drawn // n_each
    segment = np.where(single[first], first, -1)[of_group]
    return Blocks(
        start_ns[first][of_group],
        span[of_group],
        time[drawn],
        drawn % n_each,
        segment,
        count[drawn],
    )


class Line(NamedTuple):
    """A level over time, as the points where it changes."""

    ts_ns: I64
    value: F64
    is_thinned: bool


def thin_line(ts_ns: I64, dur_ns: I64, value: F64, *, max_points: int) -> Line:
    """A level over time with fewer points; the highest of each interval is kept."""
    if not len(ts_ns):
        return Line(ts_ns, value, is_thinned=False)
    end = int(ts_ns[-1] + dur_ns[-1])
    if len(ts_ns) <= max_points:
        return Line(np.append(ts_ns, end), np.append(value, value[-1]), is_thinned=False)
    width = max(-(-(end - int(ts_ns[0])) // max_points), 1)
    bucket = (ts_ns - ts_ns[0]) // width
    first = np.flatnonzero(np.diff(bucket, prepend=-1))
    highest = np.maximum.reduceat(value, first)
    # The level that holds at the start of an interval belongs to it, too.
    before = np.concatenate([[value[0]], value[np.maximum(first[1:] - 1, 0)]])
    starts = ts_ns[0] + bucket[first] * width
    highest = np.where(ts_ns[first] > starts, np.maximum(highest, before), highest)
    return Line(np.append(starts, end), np.append(highest, highest[-1]), is_thinned=True)
