"""Many walks at once, against one at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.algorithms.binding import walk_back
from htagraph.algorithms.walks import walks_back
from htagraph.compiler.passes import compile_events
from tests.synth.simulator import simulate
from tests.synth.strategies import programs


@given(program=programs(max_blocks=2), data=st.data())
def test_walks_together_are_walks_one_by_one(program, data):
    """Same edges, in the other direction; each ends at the tail of its first edge."""
    dag = compile_events(simulate(program).events)
    times = dag.events.node_ts_ns
    node = np.array(
        data.draw(st.lists(st.sampled_from(dag.order.tolist()), max_size=6)), dtype=np.int64
    )
    until = times[node] - data.draw(st.integers(0, 200_000))
    found = walks_back(node, until, dag.binding, dag.edges.tail, times)
    for walk, (start, until_ns) in enumerate(zip(node.tolist(), until.tolist(), strict=True)):
        edges = walk_back(start, dag.binding, dag.edges.tail, times, until_ns=until_ns)

        assert found.edge[found.walk == walk][::-1].tolist() == edges.tolist()
        assert found.last[walk] == (dag.edges.tail[edges[0]] if len(edges) else start)


def test_no_walks_have_no_edges():
    """Nothing was asked."""
    none = np.empty(0, dtype=np.int64)
    found = walks_back(none, none, np.empty(0, np.int32), np.empty(0, np.int32), none)

    assert (len(found.walk), len(found.last)) == (0, 0)
