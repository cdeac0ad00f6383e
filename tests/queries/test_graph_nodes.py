"""Nodes of captured graphs, the same in every replay."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.queries.kernels import graph_nodes
from htagraph.synth import timeline
from tests.real_traces import case, located

TWICE = """
    us       |0         10        20        30        40        50
    cpu 1    |[graph >a]         [graph >b]
    stream 7 |      [k <a]  [m <a ]    [k <b  ]   [m <b ]
    stream 9 |       [side <a]           [side <b ]
"""


def test_a_node_is_told_by_its_position_in_its_stream():
    """Two replays of three nodes; times by hand."""
    dag = compile_events(timeline(TWICE))
    frame = graph_nodes(dag, dag.span)

    columns = ["graph", "node", "name", "stream", "n_replays", "min_ns", "max_ns", "offset_ns"]
    assert frame[columns].to_numpy().tolist() == [
        [0, 0, "k", 7, 2, 6_000, 8_000, 0],
        [0, 1, "side", 9, 2, 9_000, 10_000, 1_000],
        [0, 2, "m", 7, 2, 7_000, 7_000, 8_000],
    ]
    assert frame["mean_ns"].tolist() == [7_000.0, 9_500.0, 7_000.0]
    assert frame["offset_spread_ns"].tolist() == [0, 1_000, 3_000]
    assert frame["found_by"].tolist() == ["position"] * 3


def test_a_gap_is_when_no_earlier_node_runs_on_any_stream():
    """Before `m` of the first replay `side` still runs; one replay, so no median hides it."""
    dag = compile_events(
        timeline("""
        cpu 1    |[graph >a]
        stream 7 |      [k <a]     [m <a ]
        stream 9 |       [side <a]
        """)
    )
    frame = graph_nodes(dag, dag.span).set_index("name")

    assert frame["gap_ns"].to_dict() == {"k": 0, "side": 0, "m": 1_000}


def test_other_work_is_another_graph():
    """Replays of one graph run the same work in the same places."""
    dag = compile_events(
        timeline("""
        cpu 1    |[graph >a][graph >b][graph >c]
        stream 7 |       [k <a][m <a][m <b][k <b][k <c][m <c]
        """)
    )
    frame = graph_nodes(dag, dag.span)

    assert frame[["graph", "name", "n_replays"]].to_numpy().tolist() == [
        [0, "k", 2],
        [0, "m", 2],
        [1, "m", 1],
        [1, "k", 1],
    ]


def test_recorded_ids_win_over_positions():
    """The second replay runs its two streams in another order, and lacks a node: cut off."""
    dag = compile_events(
        timeline(
            """
            cpu 1    |[graph >a]           [graph >b]
            stream 7 |      [k1 <a][m1 <a]      [m2 <b]
            """,
            names={"k1": "k", "m1": "k", "m2": "k"},
            columns={
                "graph_id": {"k1": 4, "m1": 4, "m2": 4},
                "graph_node": {"k1": 11, "m1": 12, "m2": 12},
            },
        )
    )
    frame = graph_nodes(dag, dag.span)

    assert frame[["graph", "node", "n_replays", "found_by"]].to_numpy().tolist() == [
        [0, 0, 1, "node id"],
        [0, 1, 2, "node id"],
    ]


def test_work_that_was_launched_one_by_one_is_no_node():
    """No graph, no rows."""
    dag = compile_events(timeline("cpu 1 |[launch >a]\nstream 7 |   [k <a]"))

    assert graph_nodes(dag, dag.span).empty


def test_a_window_has_the_replays_that_overlap_it():
    """The second replay only."""
    graph = hg.Trace.from_events(timeline(TWICE)).compile()
    start_ns = graph.interval.start_ns
    part = graph.window((start_ns + 31_000, start_ns + 60_000))

    assert part.graph_nodes()["n_replays"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        case("tracelens/vllm_piecewise_graph.json.gz", [(4, 1), (15, 23), (12, 1)]),
        case("tracelens/sglang_Qwen3-8B_decode.json.gz", [(544, 1)]),
        case("hta/trace_diff/test/test.json.gz", [(339, 6), (502, 6)]),
    ],
)
def test_replays_of_real_graphs_are_told_apart(name: str, shape: list) -> None:
    """Nodes and replays of each graph."""
    frame = hg.load(located(name)).compile().window("trace").graph_nodes()
    by_graph = frame.groupby("graph")["n_replays"]

    assert list(zip(by_graph.size(), by_graph.max(), strict=True)) == shape
    assert (by_graph.min() == by_graph.max()).all()
