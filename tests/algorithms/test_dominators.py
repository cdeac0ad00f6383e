"""Nodes that come before or after each other node."""

from __future__ import annotations

import numpy as np
import pytest
import rustworkx
from hypothesis import given
from hypothesis import strategies as st

from htagraph.algorithms.dominators import dominators

_N = 9
_edges = st.lists(
    st.tuples(st.integers(0, _N - 1), st.integers(0, _N - 1)).filter(
        lambda edge: edge[0] < edge[1]
    ),
    max_size=20,
)


@pytest.mark.skipif(not hasattr(rustworkx, "immediate_dominators"), reason="needs rustworkx 0.16")
@given(edges=_edges)
def test_they_are_the_dominators_of_the_transitive_reduction(edges):
    """As rustworkx finds both, with one source before all roots and one sink after all leaves."""
    closed = [*edges, *((_N, node) for node in range(_N)), *((node, _N + 1) for node in range(_N))]
    graph = rustworkx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(range(_N + 2))
    graph.add_edges_from_no_data([*closed, (_N, _N + 1)])
    reduced, number = rustworkx.transitive_reduction(graph)
    above = rustworkx.immediate_dominators(reduced, number[_N])
    found, node = set(), above[number[_N + 1]]
    while node != number[_N]:
        found.add(node)
        node = above[node]
    tail, head = np.array(edges, dtype=np.int64).reshape(-1, 2).T

    passed = np.flatnonzero(dominators(tail, head, _N)).tolist()

    assert {number[node] for node in passed} == found
