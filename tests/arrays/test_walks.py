"""Walks along binding edges, against a loop over nodes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.binding import origins, walk_back, walks_back
from htagraph.compiler.passes import compile_events
from tests.synth.simulator import simulate
from tests.synth.strategies import programs


def _walked(dag, node: int, until_ns: int) -> tuple[list[int], int]:
    """Edges back from a node, latest first, and the node at which the walk ends."""
    edges = []
    while dag.binding[node] >= 0 and dag.events.node_ts_ns[node] > until_ns:
        edges.append(int(dag.binding[node]))
        node = int(dag.edges.tail[edges[-1]])
    return edges, node


@given(program=programs(max_blocks=2), data=st.data())
def test_a_walk_follows_binding_edges_back_to_its_time(program, data):
    """Many at once, and one, which has its earliest edge first."""
    dag = compile_events(simulate(program).events)
    graph = dag.binding, dag.edges.tail, dag.events.node_ts_ns
    nodes = st.lists(st.sampled_from(dag.order.tolist()), max_size=6)
    node = np.array(data.draw(nodes), dtype=np.int64)
    until = dag.events.node_ts_ns[node] - data.draw(st.integers(0, 200_000))

    found = walks_back(node, until, *graph)

    for walk, (start, until_ns) in enumerate(zip(node.tolist(), until.tolist(), strict=True)):
        edges, last = _walked(dag, start, until_ns)
        assert found.edge[found.walk == walk].tolist() == edges
        assert found.last[walk] == last
        assert walk_back(start, *graph, until_ns=until_ns).tolist() == edges[::-1]


@given(program=programs(max_blocks=2), data=st.data())
def test_an_origin_is_the_first_anchor_on_the_walk_back(program, data):
    """An anchor is its own."""
    dag = compile_events(simulate(program).events)
    anchors = data.draw(st.lists(st.sampled_from(dag.order.tolist()), max_size=5))
    is_anchor = np.isin(np.arange(len(dag.binding)), anchors)

    found = origins(dag.order, dag.binding, dag.edges.tail, is_anchor)

    for node in dag.order.tolist():
        edges, last = _walked(dag, node, -(2**62))
        met = [node, *dag.edges.tail[edges].tolist()]
        assert found[node] == next((one for one in met if is_anchor[one]), -1)
        assert last == met[-1]


def test_no_walks_have_no_edges():
    none = np.empty(0, dtype=np.int64)
    found = walks_back(none, none, np.empty(0, np.int32), np.empty(0, np.int32), none)

    assert (len(found.walk), len(found.last)) == (0, 0)
