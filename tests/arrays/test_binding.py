"""Binding edges and topological orders, against a search of all edges."""

from __future__ import annotations

import numpy as np
import pytest
import rustworkx
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.binding import bind, topological_order

_N_NODES = 6
_edges = st.lists(
    st.tuples(*(st.integers(0, last) for last in (_N_NODES - 1, _N_NODES - 1, 2, 3))), max_size=12
)
_numbers = st.lists(st.integers(0, 3), min_size=_N_NODES, max_size=_N_NODES)


@pytest.mark.parametrize("nodes_of_one", [1, 2])
@given(edges=_edges, times=_numbers, tiebreak=_numbers)
def test_the_last_arrival_binds_and_ties_go_by_time_kind_and_rank(
    nodes_of_one, edges, times, tiebreak
):
    """Ranks are of nodes or, two nodes each, of events; the first of equal edges stays."""
    tail, head, kind, lag = (np.array(column) for column in np.reshape(edges, (-1, 4)).T)
    rank, node_ts = np.array(tiebreak[: _N_NODES // nodes_of_one]), 10 * np.array(times)

    binding = bind(
        tail.astype(np.int32), head.astype(np.int32), kind.astype(np.int8), lag, node_ts, rank
    )

    for node in range(_N_NODES):
        into = [
            (node_ts[a] + by, node_ts[a], of, rank[a // nodes_of_one], -row)
            for row, (a, b, of, by) in enumerate(edges)
            if b == node
        ]
        best = max(into, default=None)
        assert binding[node] == (-1 if best is None else -best[-1])


@pytest.mark.parametrize(("ranks", "best"), [((7, 5), 0), ((5, 7), 1), ((7, 7), 0)])
@pytest.mark.parametrize("nodes_of_one", [1, 2])
def test_of_edges_alike_but_for_their_tails_the_one_of_larger_rank_binds(nodes_of_one, ranks, best):
    """Node 4 and node 6 lead to node 9; all are at one time."""
    rank = np.arange(10 // nodes_of_one)[::-1].copy()
    rank[[4 // nodes_of_one, 6 // nodes_of_one]] = ranks
    tail, head = np.array([4, 6], dtype=np.int32), np.array([9, 9], dtype=np.int32)
    same = np.zeros(2, dtype=np.int8), np.zeros(2, dtype=np.int64)

    binding = bind(tail, head, *same, np.zeros(10, dtype=np.int64), rank)

    assert binding[9] == best


@given(edges=st.lists(st.tuples(*[st.integers(0, _N_NODES - 1)] * 2), max_size=10), times=_numbers)
def test_a_topological_order_keeps_time_and_edges_that_take_none(edges, times):
    """Edges among nodes on, or behind, a cycle are named; nodes may be a part of all."""
    edges = [(a, b) for a, b in edges if times[a] <= times[b]]
    tail, head = (np.array(side, dtype=np.int32) for side in np.reshape(edges, (-1, 2)).T)
    is_node = np.arange(_N_NODES) > 0

    order, cyclic = topological_order(tail, head, np.array(times), is_node)

    instant = [(a, b) for a, b in edges if times[a] == times[b]]
    graph = rustworkx.PyDiGraph()
    graph.add_nodes_from(range(_N_NODES))
    graph.add_edges_from_no_data(instant)
    circles = {
        node
        for group in rustworkx.strongly_connected_components(graph)
        for node in group
        if len(group) > 1 or (node, node) in instant
    }
    behind = circles.union(*(rustworkx.descendants(graph, node) for node in circles))
    assert cyclic.tolist() == [
        times[a] == times[b] and a in behind and b in behind for a, b in edges
    ]
    assert sorted(order.tolist()) == np.flatnonzero(is_node).tolist()
    assert [times[node] for node in order] == sorted(
        times[node] for node in np.flatnonzero(is_node)
    )
    place = {node: at for at, node in enumerate(order.tolist())}
    assert all(
        place[a] < place[b] for a, b in edges if min(a, b) > 0 and b not in behind and a != b
    )


def test_an_edge_that_leads_to_a_cycle_is_not_on_it():
    """0 leads to the cycle of 1 and 2, which leads to 3."""
    tail, head = (np.array(side, dtype=np.int32) for side in ([0, 1, 2, 2], [1, 2, 1, 3]))

    _, cyclic = topological_order(tail, head, np.zeros(4, np.int64))

    assert cyclic.tolist() == [False, True, True, True]
