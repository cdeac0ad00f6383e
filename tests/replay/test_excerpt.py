"""Excerpts: of a large trace, some of the steps that do the same are replayed for all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import htagraph as hg
from htagraph.explain.critical_path import critical_path
from htagraph.findings.path import CriticalPath
from htagraph.findings.window_bounds import find_bounds
from htagraph.model.dag import Dag
from htagraph.queries.cost import trials_of
from htagraph.replay.excerpt import LARGE, Excerpt, cut_out, excerpt_of
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

_STEPS = 24


@pytest.fixture(scope="module", params=["dataloader", "sync_in_loop"])
def dag(request) -> Dag:
    """A rank of many steps, bound by data loading, or by waits."""
    program = training_rank(steps=_STEPS, layers=2, fault=request.param)
    return hg.Trace.from_events(simulate(program).events).compile().dag


def _part(dag: Dag) -> Excerpt:
    return excerpt_of(dag, dag.span, large=0, n_events=len(dag.events) // 3)


def test_a_graph_below_a_million_edges_is_replayed_as_a_whole(dag):
    part = excerpt_of(dag, dag.span)
    assert len(dag.edges) < LARGE
    assert part.dag is dag
    assert part.window == dag.span
    assert part.sentence == ""


@pytest.mark.parametrize(("n_edges", "is_whole"), [(700_000, True), (1_400_000, False)])
def test_a_graph_is_large_from_a_million_edges_on(dag, n_edges, is_whole):
    """Its edges are repeated to make it large."""
    rows = np.sort(np.arange(n_edges) % len(dag.edges))
    large = replace(dag, edges=dag.edges.take(rows))
    part = excerpt_of(large, dag.span, n_events=len(dag.events) // 3)

    assert (part.dag is large) is is_whole


def test_steps_that_do_the_same_stand_for_all_of_them(dag):
    """A third is replayed: two steps to warm up, and six that are measured."""
    part = _part(dag)
    assert part.n_steps == 6
    assert _STEPS / 2 < part.n_alike <= _STEPS
    assert len(part.dag.edges) < len(dag.edges) / 2
    assert part.window.name in part.sentence
    assert f"{part.n_alike} that do the same" in part.sentence


def test_an_excerpt_of_most_of_the_graph_is_not_worth_it(dag):
    assert excerpt_of(dag, dag.span, large=0, n_events=len(dag.events) * 7 // 10).dag is dag


def test_what_helps_in_the_excerpt_helps_as_much_in_all(dag):
    """The largest savings by replays of an excerpt are those by replays of the whole graph."""
    found, whole = (
        part.scaled(trials_of(part).opportunities).drop_duplicates("change").set_index("change")
        for part in (_part(dag), Excerpt.whole(dag, dag.span))
    )
    first = whole.index[:5]
    off = (found.loc[first, "saves_share"] - whole.loc[first, "saves_share"]).abs()
    assert off.max() < 0.015


def test_what_a_rank_saves_alone_is_saved_once(dag):
    """Behind the last collective, not in every step: the low end of the whole is no lower."""
    part = _part(dag)
    found = part.scaled(trials_of(part).opportunities).query("kind != 'cause'")
    assert (found["alone_ns"] < found["saves_ns"]).any()
    assert (found["low_ns"] <= found["alone_ns"]).all()
    assert found["alone_ns"].max() < part.window.dur_ns


def test_shares_are_those_of_the_window(dag):
    part = _part(dag)
    found = part.scaled(trials_of(part).causes)
    expected = found["saves_ns"].to_numpy() / dag.span.dur_ns
    np.testing.assert_allclose(found["saves_share"].to_numpy(), expected)


def test_the_verdict_says_what_its_savings_rest_on(dag):
    path, part = CriticalPath(dag, dag.span), _part(dag)
    path.__dict__["excerpt"] = part
    verdict = find_bounds(path)
    assert part.sentence in verdict.document()["notes"]
    assert verdict.findings[0].cost_ns > part.window.dur_ns
    assert find_bounds(CriticalPath(dag, dag.span)).rests_on == ""


def test_a_cut_has_the_path_of_its_window(dag):
    """From the start of a step on, nothing that is left out matters to what binds."""
    part = _part(dag)
    names = [
        critical_path(each, part.window).groupby("name")["dur_ns"].sum().sort_index()
        for each in (dag, part.dag)
    ]
    assert names[0].equals(names[1])


def test_a_cut_numbers_events_and_edges_anew(dag):
    start_ns, end_ns = dag.span.start_ns, dag.span.start_ns + dag.span.dur_ns // 2
    cut = cut_out(dag, start_ns, end_ns)
    times = cut.events.node_ts_ns
    assert 0 < len(cut.events) < len(dag.events)
    assert cut.edges.head.max() < 2 * len(cut.events)
    assert (times[cut.edges.tail] <= times[cut.edges.head]).all()
    assert np.array_equal(np.sort(cut.order), np.unique(cut.order))
    launched = np.flatnonzero(cut.launch >= 0)
    assert cut.events.is_device[launched].all()
    assert cut.events.is_host[cut.launch[launched]].all()


def test_without_steps_that_are_alike_all_is_replayed():
    program = training_rank(steps=2)
    dag = hg.Trace.from_events(simulate(program).events).compile().dag
    assert excerpt_of(dag, dag.span, large=0, n_events=10).dag is dag


def test_a_host_that_runs_ahead_of_the_device_all_the_time_has_no_excerpt():
    """Its steps end long before their work: they do not make up the window."""
    program = training_rank(steps=12, layers=2)
    dag = hg.Trace.from_events(simulate(program).events).compile().dag
    assert excerpt_of(dag, dag.span, large=0, n_events=len(dag.events) // 3).dag is dag
