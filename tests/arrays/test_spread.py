"""Descendants and ancestors, against rustworkx."""

from __future__ import annotations

import numpy as np
import rustworkx
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.reach import ancestors, descendants

_N_NODES = 7


@given(
    edges=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), max_size=14),
    seeds=st.sets(st.integers(0, 6)),
)
def test_marks_spread_over_allowed_edges_in_either_direction(edges, seeds):
    """Nodes are numbered against their topological order."""
    edges = sorted(
        ((max(a, b), min(a, b), allowed) for a, b, allowed in edges if a != b),
        key=lambda edge: edge[1],
    )
    graph = rustworkx.PyDiGraph()
    graph.add_nodes_from(range(_N_NODES))
    graph.add_edges_from_no_data([(a, b) for a, b, allowed in edges if allowed])
    offsets = np.searchsorted([b for _, b, _ in edges], np.arange(_N_NODES + 1)).astype(np.int64)
    columns = (
        np.arange(_N_NODES, dtype=np.int32)[::-1].copy(),
        offsets,
        np.array([a for a, _, _ in edges], dtype=np.int32),
        np.array([allowed for *_, allowed in edges], dtype=bool),
        np.isin(np.arange(_N_NODES), list(seeds)),
    )
    for spread, oracle in (
        (descendants, rustworkx.descendants),
        (ancestors, rustworkx.ancestors),
    ):
        expected = seeds.union(*(oracle(graph, seed) for seed in seeds))
        assert set(np.flatnonzero(spread(*columns)).tolist()) == expected
