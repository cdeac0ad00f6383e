"""Rows on which intervals nest strictly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.intervals import rows

INTERVALS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 8)), max_size=40
)


@given(INTERVALS)
def test_a_viewer_that_matches_ends_to_the_last_begin_finds_every_interval(
    drawn: list[tuple[int, int, int]],
) -> None:
    """Law: a stack that reads the boundaries of each row gives back the intervals, in order."""
    lane = np.array([lane for lane, _, _ in drawn], dtype=np.int32)
    start = np.array([start for _, start, _ in drawn], dtype=np.int64)
    end = start + np.array([dur for _, _, dur in drawn], dtype=np.int64)
    layered = rows(lane, start, end)
    stacks: dict[tuple[int, int], list[int]] = {}
    now: dict[tuple[int, int], int] = {}
    closed = []
    for boundary in layered.boundary.tolist():
        interval, is_end = divmod(boundary, 2)
        row = (int(lane[interval]), int(layered.row[interval]))
        time = int((end if is_end else start)[interval])
        assert now.get(row, 0) <= time
        now[row] = time
        if is_end:
            assert stacks[row].pop() == interval
            closed.append(interval)
        else:
            stacks.setdefault(row, []).append(interval)
    assert sorted(closed) == list(range(len(drawn)))
    assert (np.diff(lane[layered.boundary >> 1]) >= 0).all()


def test_intervals_that_nest_take_one_row() -> None:
    """Calls of a well-behaved thread; touching is not overlapping."""
    lane = np.zeros(4, dtype=np.int32)
    layered = rows(lane, np.array([0, 2, 4, 10]), np.array([10, 4, 8, 12]))
    assert layered.row.tolist() == [0, 0, 0, 0]


def test_a_row_is_free_again_when_its_intervals_have_ended() -> None:
    """Overlapping kernels alternate between two rows."""
    lane = np.zeros(4, dtype=np.int32)
    layered = rows(lane, np.array([0, 9, 19, 29]), np.array([10, 20, 30, 40]))
    assert layered.row.tolist() == [0, 1, 0, 1]
