"""A saved graph comes back as it was."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from htagraph import Trace, TraceGraph
from htagraph.errors import TraceFormatError
from htagraph.model.archive import pack
from htagraph.synth import simulate, timeline
from tests.synth.strategies import programs


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(program=programs(max_blocks=3))
def test_every_array_survives(tmp_path, program):
    """Events, edges, bindings, names: all of it."""
    graph = Trace.from_events(simulate(program).events, rank=3).compile()
    again = TraceGraph.open(graph.save(tmp_path / "graph.npz"))
    before, after = (pack(g.dag, rank=g.rank, origin=g.origin) for g in (graph, again))

    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert repr(graph) == repr(again)


def test_names_of_any_content_survive():
    """A name may hold what is no valid text."""
    from htagraph.model.archive import unpack

    graph = Trace.from_events(timeline("cpu 1 |[op  ]", names={"op": "a\ud800\n\u0000é"})).compile()
    dag, _, _ = unpack(pack(graph.dag, rank=0, origin=None))

    assert dag.events.names()[0] == "a\ud800\n\u0000é"


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 broken"])
def test_what_is_no_graph_is_refused_clearly(tmp_path, content):
    """One line, not a trace of calls."""
    path = tmp_path / "broken.npz"
    path.write_bytes(content)

    with pytest.raises(TraceFormatError, match="not a graph"):
        TraceGraph.open(path)


def test_a_pickle_in_the_file_is_not_executed(tmp_path):
    """Object arrays are refused."""
    path = tmp_path / "pickled.npz"
    np.savez(
        path, **{"facts.bytes": np.array([{}], dtype=object), "facts.offsets": np.array([0, 1])}
    )

    with pytest.raises(TraceFormatError):
        TraceGraph.open(path)
