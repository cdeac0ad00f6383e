"""What edges join, whichever way they point."""

from __future__ import annotations

import numpy as np
import pytest
import rustworkx
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays import reach as components_room
from htagraph.arrays.reach import components

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


class _Counted(list[int]):
    """Numbers that count how often they are asked for."""

    n = 0

    def __getitem__(self, node: int) -> int:  # type: ignore[override]
        self.n += 1
        return super().__getitem__(node)


@pytest.mark.parametrize("ends", [(999, 0), (0, 999)])
def test_a_long_path_becomes_shorter_whenever_it_is_walked(ends):
    """A thousand nodes, joined from the last one back, and a thousand edges between both ends."""
    path = [(node - 1, node) for node in range(999, 0, -1)]
    tail, head = zip(*path, *[ends] * 1000, strict=True)
    root = _Counted(range(1000))

    components_room._join.__wrapped__(tail, head, root)  # type: ignore[attr-defined]

    assert root == [0] * 1000
    assert root.n < 20_000
