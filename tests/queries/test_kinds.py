"""Kinds of edges and events: how many, by which rule, and their share of the path."""

from __future__ import annotations

import pytest
from hypothesis import given

import htagraph as hg
from htagraph.run.graph import TraceGraph
from htagraph.synth import timeline
from tests.synth.simulator import simulate
from tests.synth.strategies import programs

DRAWING = """
    cpu 1    |[launch >a][sync          ][op]
    stream 7 |    [kernel <a           ]
"""


@pytest.fixture
def graph() -> TraceGraph:
    """A rank that launches a kernel, waits for it, and runs an operator."""
    return hg.Trace.from_events(timeline(DRAWING)).compile()


def test_edges_by_kind_and_rule(graph: TraceGraph) -> None:
    """Of 31 us, the kernel runs for 22, 4 us after its launch; the wait ends 1 us after it."""
    found = graph.kinds()[["kind", "rule", "evidence", "n", "path_ns"]]
    assert list(found.itertuples(index=False, name=None)) == [
        ("span", "duration", "recorded", 1, 22_000),
        ("thread", "program order", "by definition", 4, 4_000),
        ("launch", "correlation", "recorded", 1, 4_000),
        ("sync", "call semantics", "by definition", 1, 1_000),
        ("thread", "blocking call", "by definition", 1, 0),
    ]


def test_events_by_kind(graph: TraceGraph) -> None:
    """The latency of a launch belongs to its kernel."""
    found = graph.kinds(of="events")[["kind", "rule", "n", "path_ns"]]
    assert list(found.itertuples(index=False, name=None)) == [
        ("kernel", "", 1, 26_000),
        ("op", "", 1, 4_000),
        ("runtime", "", 2, 1_000),
    ]


def test_time_in_no_event_is_a_row() -> None:
    """Between two operators no event runs."""
    found = hg.Trace.from_events(timeline("cpu 1 |[op]    [op]")).compile().kinds(of="events")
    assert dict(zip(found["kind"], found["path_ns"], strict=True)) == {
        "op": 8_000,
        "(no event)": 4_000,
    }


@given(programs())
def test_shares_add_up_to_the_window_and_are_those_of_the_path(program) -> None:
    """Of edges and of events, whatever the run; by kind and by rule as a breakdown has them."""
    graph = hg.Trace.from_events(simulate(program).events).compile()
    for of in ("edges", "events"):
        found = graph.kinds(of=of)
        assert found["path_ns"].sum() == graph.dur_ns
    path = graph.critical_path()
    for by in ("kind", "rule"):
        sums = graph.kinds().groupby(by)["path_ns"].sum()
        expected = path.breakdown(by=by)["dur_ns"]
        assert sums[sums > 0].to_dict() == expected[expected > 0].to_dict()
    assert graph.kinds()["n"].sum() == len(graph.edges)
    assert graph.kinds(of="events")["n"].sum() == len(graph.events)


def test_a_notebook_shows_the_same(graph: TraceGraph) -> None:
    """Kinds in words, with their rules."""
    shown = graph._repr_html_()
    assert "correlation" in shown
    assert "of the path" in shown
