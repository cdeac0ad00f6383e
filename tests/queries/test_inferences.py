"""Inferred edges by rule: how many, their time on the path, and what learned ones rest on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given

from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import critical_path
from htagraph.model.edges import Support
from htagraph.model.rules import Evidence, Rule
from htagraph.model.window import Window
from htagraph.queries.quality import inferences, quality
from htagraph.run.graph import TraceGraph
from htagraph.synth import timeline
from tests.synth.simulator import simulate
from tests.synth.strategies import programs

POLLED = """
    cpu 1    |[L >a][R         ]                                        [E         ][op            ]
    stream 7 |    [k1 <a                                             ]
"""
"""Profilers leave cudaEventSynchronize out: the host stands still until k1 has ended."""

NAMES = {"L": "cudaLaunchKernel", "R": "cudaEventRecord", "E": "cudaEventElapsedTime"}

PAIRS = (
    Support(Rule.RECURRING_IN_REPLAYS, "a", "b", 57, 58, 1_000, 400, 0.02),
    Support(Rule.RECURRING_IN_REPLAYS, "c", "d", 6, 6, 900, 100, 0.05),
)


def test_a_rule_says_how_many_edges_it_made_and_their_time_on_the_path():
    """From the kernel's end to what the host goes on with: 2 us of 86."""
    dag = compile_events(timeline(POLLED, names=NAMES))
    row = inferences(dag, dag.span).set_index("rule").loc["host polls"]

    assert (row["kind"], row["n_edges"], row["path_ns"]) == ("hidden_sync", 1, 2_000)
    assert row["path_share"] == 2_000 / dag.span.dur_ns
    assert row["n_pairs"] == 0
    assert np.isnan(row["chance"])


def test_recorded_dependencies_are_no_inferences():
    """A launch and a call that waits by definition."""
    dag = compile_events(timeline("cpu 1 |[launch >a][sync @*  ]\nstream 7 |   [k <a]"))

    assert inferences(dag, dag.span).empty


def test_without_inference_there_are_none():
    """`compile(infer=False)`."""
    dag = compile_events(timeline(POLLED, names=NAMES), infer=False)

    assert inferences(dag, dag.span).empty
    assert not critical_path(dag, dag.span)["is_inferred"].any()


def learned() -> TraceGraph:
    """A graph whose only inferred edge is by a learned rule, with two pairs."""
    dag = compile_events(timeline(POLLED, names=NAMES))
    rule = dag.edges.rule
    rule = np.where(rule == Rule.HOST_POLLS, Rule.RECURRING_IN_REPLAYS, rule)
    edges = replace(dag.edges, rule=rule.astype(np.int8))
    dag = replace(dag, edges=edges, support=PAIRS)
    return TraceGraph(dag, dag.span)


def test_a_learned_rule_sums_up_its_pairs():
    """63 of 64, and the weaker of two chance levels."""
    row = learned().inferences().iloc[0]

    assert row[["rule", "n_pairs", "n_matched", "n_all", "chance"]].tolist() == [
        "recurring in replays", 2, 63, 64, 0.05,
    ]  # fmt: skip


def test_pairs_are_listed_one_by_one():
    """What each dependency rests on, so that a reader can judge it."""
    frame = learned().inferences(by="pair")

    assert frame[
        ["source", "target", "n_matched", "n_all", "distance_ns", "spread_ns", "chance"]
    ].to_numpy().tolist() == [
        ["a", "b", 57, 58, 1_000, 400, 0.02],
        ["c", "d", 6, 6, 900, 100, 0.05],
    ]


def test_quality_has_a_line_for_each_rule_that_made_edges():
    """How many edges, how much of the path, and what they rest on."""
    graph = learned()
    checks = graph.quality().set_index("check")
    row = checks.loc["inferred: recurring in replays"]

    assert (row["n_good"], row["n_all"], row["verdict"]) == (63, 64, "good")
    assert row["consequence"] == (
        "1 edge, 2.00 us (2.3%) of the path; learned from 2 pairs of places, which random times "
        "would match in 5.00% of cases at most."
    )
    assert [name for name in checks.index if name.startswith("inferred")] == [row.name]


def test_a_rule_without_pairs_judges_each_edge_by_itself():
    """All its edges count."""
    dag = compile_events(timeline(POLLED, names=NAMES))
    row = quality(dag, dag.span).set_index("check").loc["inferred: host polls"]

    assert (row["n_good"], row["n_all"]) == (1, 1)
    assert row["consequence"].endswith("each judged by itself.")


@given(program=programs(max_blocks=3))
def test_time_on_the_path_is_that_of_the_breakdown_by_rule(program):
    """In the whole trace and in its second half; the breakdown adds up to the window."""
    dag = compile_events(simulate(program).events)
    middle = dag.span.start_ns + dag.span.dur_ns // 2
    for window in (dag.span, Window(middle, dag.span.end_ns, "second half")):
        path = TraceGraph(dag, window).critical_path()
        by_rule = path.breakdown(by="rule")["dur_ns"]
        found = inferences(dag, window).set_index("rule")["path_ns"]
        inferred = [rule.label for rule in Rule if rule.evidence is Evidence.INFERRED]

        assert by_rule.sum() == window.dur_ns
        on_path = by_rule[by_rule.index.isin(inferred)]
        assert {k: v for k, v in found.items() if v} == on_path.to_dict()
        marked = path.segments.loc[path.segments["is_inferred"], "dur_ns"].sum()
        assert marked == found.sum()
