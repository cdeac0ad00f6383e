"""What edges join, whichever way they point."""

from __future__ import annotations

import numpy as np
import rustworkx
from hypothesis import given
from hypothesis import strategies as st

from htagraph.algorithms.components import components

_N = 12
_nodes = st.integers(0, _N - 1)


@given(edges=st.lists(st.tuples(_nodes, _nodes), max_size=16))
def test_components_are_those_of_rustworkx_by_their_smallest_node(edges):
    """In whatever order and direction edges come."""
    graph = rustworkx.PyDiGraph()
    graph.add_nodes_from(range(_N))
    graph.add_edges_from_no_data(edges)
    expected = np.arange(_N)
    for members in rustworkx.weakly_connected_components(graph):
        expected[list(members)] = min(members)
    tail, head = np.array(edges, dtype=np.int32).reshape(-1, 2).T.copy()

    assert components(tail, head, _N).tolist() == expected.tolist()
