"""Edges with other weights: the path is found again."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from tests.replay.drawn import drawn, saved_us

TWO_KERNELS = """
    us       |0         10        20        30        40        50
    cpu 1    |[launch >a][launch >b][sync @*                     ]
    stream 7 |                            [gemm <a   ]
    stream 9 |                      [copy <b          ]
"""
"""The gemm starts 28 us after its call and ends at 40; the copy starts after 11, ends at 41."""


def launches(graph: hg.TraceGraph):
    return graph.edges.plain.query("kind == 'launch'").sort_values("head_event")


def test_edges_of_a_kind_or_a_rule_take_another_time():
    """The copy is last; it takes 19 us from its call at 11 us on, and the call returns 11 us on."""
    graph = drawn(TWO_KERNELS)

    assert saved_us(graph, hg.reweigh("launch", by=1)) == 0
    assert saved_us(graph, hg.reweigh("LAUNCH", by=0.5)) == 5.5
    assert saved_us(graph, hg.reweigh("launch", lag_ns=0)) == 11
    assert saved_us(graph, hg.reweigh("correlation", lag_ns=50_000)) == -39


def test_the_path_is_found_again_where_another_chain_is_longer():
    """The gemm would start after 45 us, and end at 57; the call returned at 52."""
    graph = drawn(TWO_KERNELS)
    of_gemm = launches(graph).head(1)
    scenario = hg.what_if(graph, hg.reweigh(of_gemm, lag_ns=45_000))

    assert graph.critical_path().segments["name"].tolist()[1:3] == ["copy", "copy"]
    assert scenario.critical_path().segments["name"].tolist()[:2] == ["gemm", "gemm"]
    assert scenario.dur_ns == graph.dur_ns + 5_000
    assert str(scenario.changes[0]) == "reweigh(1 edge, lag_ns=45000)"


def test_rows_of_another_graph_are_refused():
    """Row 7 of any graph is there, but it is another edge."""
    graph, other = drawn(TWO_KERNELS), drawn("cpu 1 |[aten::mm [launch >a]]\nstream 7 |  [k <a]")

    for rows in (launches(graph).head(1), launches(other).head(0)):
        with pytest.raises(QueryError, match="the graph does not have these"):
            hg.what_if(other, hg.reweigh(rows, by=2)).dur_ns  # noqa: B018


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("lunch", "no kind of edge, and no rule, is 'lunch'. Hint: did you mean 'launch'"),
        ("queue", "no edge is of 'queue'"),
    ],
)
def test_edges_that_are_not_there_are_named(label, said):
    with pytest.raises(QueryError) as found:
        hg.what_if(drawn(TWO_KERNELS), hg.reweigh(label, by=2)).dur_ns  # noqa: B018
    assert said in str(found.value)


@pytest.mark.parametrize(
    "weight", [{}, {"by": 1, "lag_ns": 1}, {"by": 1.1e6}, {"by": -1}, {"lag_ns": 11 * 10**14}]
)
def test_a_weight_is_a_factor_or_a_time(weight):
    """One of them, and within the range of times."""
    with pytest.raises(QueryError, match="reweigh: "):
        hg.reweigh("launch", **weight)


def test_only_a_table_of_edges_has_edges():
    with pytest.raises(QueryError, match="these are no edges"):
        hg.reweigh(drawn(TWO_KERNELS).events, by=2)
