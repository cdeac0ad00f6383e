"""Joins of arrays agree with what a search of all rows finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.codes import distinct, gather, is_in
from htagraph.arrays.matching import group_starts, last_before, match_keys, running_latest

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


_keys = st.lists(st.integers(0, 5), max_size=8)


@given(keys=_keys, table=_keys)
def test_a_key_is_matched_with_its_first_occurrence(keys, table):
    found = match_keys(np.array(keys, dtype=np.int64), np.array(table, dtype=np.int64))
    assert found.tolist() == [table.index(key) if key in table else -1 for key in keys]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 3)), max_size=9))
def test_groups_start_where_a_key_changes_and_have_a_largest_value_so_far(rows):
    """The later of equal ones."""
    rows.sort(key=lambda row: row[:2])
    first, second, value = np.reshape(np.array(rows, dtype=np.int64), (-1, 3)).T
    starts = group_starts(first, second)
    assert starts.tolist() == [
        not at or rows[at][:2] != rows[at - 1][:2] for at in range(len(rows))
    ]
    best = []
    for at, (*group, _) in enumerate(rows):
        so_far = [one for one in range(at + 1) if [*rows[one][:2]] == group]
        best.append(max(so_far, key=lambda one: (rows[one][2], one)))
    assert running_latest(value, starts).tolist() == best


@given(values=st.lists(st.integers(0, 99), max_size=5), rows=st.lists(st.integers(-2, 9)))
def test_rows_of_nothing_get_the_default(values, rows):
    """A column of any type; rows may have any shape."""
    rows = [row if row < len(values) else -1 for row in rows]
    column, of = np.array(values, dtype=np.int16), np.array(rows, dtype=np.int32)
    expected = [values[row] if row >= 0 else 7 for row in rows]
    assert gather(column, of, 7).tolist() == expected
    assert gather(column, of.reshape(1, -1), 7).tolist() == [expected]
    assert gather(column, of).dtype == np.int16
