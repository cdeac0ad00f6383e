"""Nesting of intervals that overlap without nesting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.nesting import nest


def _parents(*intervals: tuple[int, int, str]) -> list[int]:
    """Parent of each interval of one thread; those named ``call`` cannot hold what overhangs."""
    start, end, what = zip(*intervals, strict=True)
    return nest(
        np.zeros(len(start), dtype=np.int32),
        np.array(start, dtype=np.int64),
        np.array(end, dtype=np.int64),
        is_call=np.array([name == "call" for name in what]),
    ).parent.tolist()


def test_a_call_that_an_operator_overhangs_is_not_its_parent():
    """The parent is what encloses both; what the operator calls is still its own."""
    assert _parents((0, 30, "op"), (2, 12, "call"), (10, 25, "op"), (11, 13, "call")) == [
        -1,
        0,
        0,
        2,
    ]


def test_all_calls_that_an_operator_overhangs_are_passed_over():
    """A runtime call and the driver call inside of it."""
    assert _parents((0, 30, "op"), (2, 12, "call"), (3, 11, "call"), (10, 25, "op")) == [
        -1,
        0,
        1,
        0,
    ]


def test_a_call_holds_what_ends_inside_of_it():
    """An annotation within a call, and a call that outlasts a call, which has the same clock."""
    assert _parents((0, 20, "call"), (5, 20, "op")) == [-1, 0]
    assert _parents((0, 20, "call"), (5, 25, "call")) == [-1, 0]


def test_what_ended_below_is_no_parent():
    """The first operator has ended when the third starts, though the call hides its end."""
    assert _parents((0, 8, "op"), (5, 12, "call"), (10, 25, "op")) == [-1, 0, -1]


_INTERVALS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(0, 3)), max_size=8
)


@given(intervals=_INTERVALS)
def test_boundaries_come_as_one_sort_would_have_them(intervals):
    """By lane and time: first what ends (inner ones first), then what starts (outer ones first)."""
    _check_boundaries(intervals)


@pytest.mark.parametrize("longest", [3, 40, 1000])
def test_many_intervals_in_any_order_are_sorted_as_few_are(longest):
    """In the order of their starts but for some, which overlap with few others, or with most."""
    drawn = np.random.default_rng(longest)
    start = np.sort(drawn.integers(0, 1000, 500))
    start[drawn.integers(0, 500, 50)] = drawn.integers(0, 1000, 50)
    columns = (drawn.integers(0, 3, 500), start, drawn.integers(0, longest, 500))
    _check_boundaries(np.stack(columns, axis=1).tolist())


@given(intervals=_INTERVALS, data=st.data())
def test_innermost_and_parent_are_those_of_a_search(intervals, data):
    """What started last and has not ended; a call is no parent of an operator that overhangs it."""
    n = len(intervals)
    columns = np.array(intervals, dtype=np.int64).reshape(-1, 3).T
    lane, start, end = columns[0].astype(np.int32), columns[1], columns[1] + columns[2]
    bits = st.lists(st.booleans(), min_size=n, max_size=n)
    is_call, chosen = (np.array(data.draw(bits), dtype=bool) for _ in range(2))

    found = nest(lane, start, end, is_call=is_call, rows=np.flatnonzero(chosen))

    parent, running, at = np.full(n, -1), [], -1
    for boundary, innermost in zip(found.boundary.tolist(), found.innermost.tolist(), strict=True):
        interval, is_end = divmod(boundary, 2)
        running, at = (running if lane[interval] == at else []), lane[interval]
        if is_end:
            running.remove(interval)
        else:
            above = [
                one
                for one in running
                if not (is_call[one] and not is_call[interval] and end[interval] > end[one])
            ]
            parent[interval] = above[-1] if above else -1
            running.append(interval)
        assert innermost == (running[-1] if running else -1)
    assert found.parent.tolist() == parent.tolist()
    in_lane = [int((lane[chosen] < number).sum()) for number in range(max(lane, default=-1) + 2)]
    assert found.first.tolist() == [2 * before for before in in_lane]


@given(n=st.integers(1, 5), data=st.data())
def test_of_equal_intervals_the_one_of_lower_rank_then_number_is_the_outer_one(n, data):
    lane, time = np.zeros(n, dtype=np.int32), np.zeros(n, dtype=np.int64)
    rank = data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    number = data.draw(st.permutations(range(n)))

    hint = np.array(rank, dtype=np.int8), np.array(number, dtype=np.int64)
    parent = nest(lane, time, time + 9, hint).parent.tolist()

    order = sorted(range(n), key=lambda i: (rank[i], number[i]))
    assert [parent[one] for one in order] == [-1, *order[:-1]]


def _check_boundaries(intervals):
    spans = [(lane, start, start + length) for lane, start, length in intervals]
    by_start = sorted(range(len(spans)), key=lambda i: (*spans[i][:2], -spans[i][2], i))
    rank = {interval: place for place, interval in enumerate(by_start)}
    keys = []
    for i, (lane, start, end) in enumerate(spans):
        keys.append((lane, start, 2 * rank[i], 2 * i))
        keys.append((lane, end, -rank[i] - 1 if end > start else 2 * rank[i] + 1, 2 * i + 1))
    lane, start, end = (
        (np.array(column) for column in zip(*spans, strict=True))
        if spans
        else ((np.empty(0, dtype=np.int64),) * 3)
    )
    assert nest(lane, start, end).boundary.tolist() == [key[-1] for key in sorted(keys)]
