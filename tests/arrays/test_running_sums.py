"""Sums over what runs at once, against a clock that ticks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.lookup.sm_activity import RunningSums

_END = 30
_intervals = st.lists(
    st.tuples(st.integers(0, 15), st.integers(0, 9), st.integers(-2, 5)), max_size=8
)


@given(_intervals)
def test_levels_and_integrals_are_those_of_single_ticks(intervals):
    start, dur, value = np.reshape(np.array(intervals, dtype=np.int64), (-1, 3)).T
    sums = RunningSums(start.astype(np.float64), (start + dur).astype(np.float64))
    ticks = np.zeros(_END, dtype=np.int64)
    for begin, length, one in intervals:
        ticks[begin : begin + length] += one

    level = sums.of(value)
    integral = sums.integral(level)

    assert sums.time.tolist() == sorted([*start.tolist(), *(start + dur).tolist()])
    for at in range(max(len(sums.time) - 1, 0)):
        begin, end = int(sums.time[at]), int(sums.time[at + 1])
        assert end == begin or set(ticks[begin:end].tolist()) == {level[at]}
    assert [ticks[: int(time)].sum() for time in sums.time] == integral.tolist()
    assert sums.over_each(integral).tolist() == [
        ticks[begin : begin + length].sum() for begin, length, _ in intervals
    ]
