"""Edges by head, against a stable sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.by_head import EdgeColumns, InOrder, by_head

_table = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)), max_size=8)


def _columns(rows: list[tuple[int, int, int]], first: int) -> EdgeColumns:
    """Edges by tail, head and kind, whose other columns say which they are."""
    tail, head, kind = np.reshape(np.array(rows, dtype=np.int64), (-1, 3)).T
    number = np.arange(first, first + len(rows))
    return EdgeColumns.of([tail, head, kind, number, number, number % 100])


def _check(tables: list[list[tuple[int, int, int]]]) -> None:
    firsts = np.cumsum([0, *map(len, tables)])
    found = by_head([_columns(rows, first) for rows, first in zip(tables, firsts, strict=False)])

    rows = [(*row, number) for number, row in enumerate(row for rows in tables for row in rows)]
    rows.sort(key=lambda row: (row[1], row[2], row[0], row[3]))
    columns = np.reshape(np.array(rows, dtype=np.int64), (-1, 4)).T
    for of, expected in zip(found, (*columns, columns[3], columns[3] % 100), strict=True):
        assert of.tolist() == expected.tolist()


@given(st.lists(_table, max_size=3))
def test_edges_are_in_the_order_of_a_graph(tables):
    """Head, kind, tail; equal ones in the order of the tables."""
    _check(tables)


def test_heads_of_very_many_edges_are_sorted_as_others():
    drawn = np.random.default_rng(1).integers(0, [9, 3, 3], (200, 3))

    _check([[tuple(row) for row in drawn.tolist()]])


def test_edges_of_chains_need_no_columns():
    """Nodes 0, 2, 5 in order and 1, 3: edges after those of tables, with the time between as lag.

    The second edge waits, so its lag is 0.
    """
    rule, first, times = np.array([7, 9, 0, 7, 0], np.int8), np.array([0, 3, 5]), 10 * np.arange(6)
    nodes, events = np.array([0, 2, 5, 1, 3], np.int32), np.array([4, -1, 0, 6, 0], np.int32)

    found = by_head(
        [_columns([(1, 2, 1), (4, 5, 0)], 50)], InOrder(nodes, events, rule, first, times, 1, 9)
    )

    assert np.array(found[:2]).T.tolist() == [[0, 2], [1, 2], [1, 3], [4, 5], [2, 5]]
    assert found.kind.tolist() == [1, 1, 1, 0, 1]
    assert found.lag_ns.tolist() == [20, 50, 20, 51, 0]
    assert found.event.tolist() == [4, 50, 6, 51, -1]
    assert found.rule.tolist() == [7, 50, 7, 51, 9]
