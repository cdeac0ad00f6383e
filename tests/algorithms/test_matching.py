"""Joins by time agree with what a search of all rows finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.algorithms.codes import distinct, is_in
from htagraph.algorithms.matching import last_before

_POINTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6)), max_size=12)


@given(rows=_POINTS, queries=_POINTS)
def test_the_last_row_before_a_time_is_found_whatever_the_order_of_the_queries(rows, queries):
    """In order, each query goes on from the one before; out of order, it starts anew."""
    rows.sort()
    columns = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    asked = np.array(queries, dtype=np.int64).reshape(-1, 2).T
    fits = [
        [at for at, (group, time) in enumerate(rows) if group == of and time < until]
        for of, until in queries
    ]
    assert last_before(*columns, *asked).tolist() == [max(each, default=-1) for each in fits]


@given(codes=st.lists(st.integers(0, 9)), wanted=st.lists(st.integers(0, 9)))
def test_marks_answer_what_sorted_sets_do(codes, wanted):
    """Numbers that occur, and which are wanted."""
    column, some = (np.array(each, dtype=np.int32) for each in (codes, wanted))
    assert distinct(column).tolist() == np.unique(column).tolist()
    assert is_in(column, some).tolist() == np.isin(column, some).tolist()
