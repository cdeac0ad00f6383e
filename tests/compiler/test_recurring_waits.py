"""Waits that are learnt because they recur in replayed graphs."""

from __future__ import annotations

import random

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.compiler.recurrences import Candidates, Sources, Waits, recurring
from htagraph.model.dag import Dag
from htagraph.model.rules import Rule
from htagraph.synth import timeline
from tests.synth.program import (
    Graph,
    GraphNode,
    Launch,
    Machine,
    Op,
    Program,
    Replay,
    Spend,
    Synchronize,
    Work,
)
from tests.synth.simulator import simulate

N_REPLAYS = 12
MACHINE = Machine(launch_latency_ns=5_000, stream_gap_ns=800, stream_wait_ns=1_100)


def replayed(*, waits: bool, machine: Machine = MACHINE, seed: int = 0) -> Dag:
    """Replays of six kernels on stream 7, and two on stream 20, the second of which may wait."""
    draw = random.Random(seed)  # noqa: S311  no secret

    def graph() -> Graph:
        main = tuple(
            GraphNode(Work(f"layer{i}", draw.randint(60_000, 120_000)), 7) for i in range(6)
        )
        side = GraphNode(Work("prepare", draw.randint(10_000, 90_000)), 20)
        after = (3,) if waits else ()
        join = GraphNode(Work("exchange", 15_000), 20, after=after)
        return Graph((*main, side, join), records_nodes=False)

    warm_up = tuple(
        action for _ in range(24) for action in (Launch(Work("warm_up", 9_000)), Spend(60_000))
    )
    body = tuple(
        action
        for _ in range(N_REPLAYS)
        for action in (Op("replay", (Replay(graph()),)), Synchronize(), Spend(30_000))
    )
    program = Program((*warm_up, *body), machine, sync_records=False, sync_calls=False, seed=seed)
    return compile_events(simulate(program).events)


def learnt(dag: Dag) -> list[tuple[str, str]]:
    """Source and target of each learnt edge."""
    rows = dag.edges.take(dag.edges.rule == Rule.RECURRING_IN_REPLAYS)
    name = dag.events.names
    return list(zip(name(rows.tail >> 1), name(rows.head >> 1), strict=True))


def test_a_kernel_that_starts_right_after_another_streams_in_every_replay_waits_for_it():
    """The launch is long past, and no record names the node; twelve of twelve do."""
    dag = replayed(waits=True)

    assert learnt(dag) == [("layer3", "exchange")] * N_REPLAYS


def test_a_learnt_pair_has_its_support_its_distance_and_its_chance_level():
    """Twelve of twelve, 1.1 us after the end; a random instant matches in less than one of 100."""
    (pair,) = replayed(waits=True).support

    assert (pair.source, pair.target) == ("layer3 (stream 7)", "exchange (stream 20)")
    assert (pair.n_matched, pair.n_all) == (N_REPLAYS, N_REPLAYS)
    assert (pair.distance_ns, pair.spread_ns) == (1_100, 0)
    assert 0 < pair.chance < 0.01


def test_kernels_that_wait_for_nothing_have_no_learnt_dependency():
    """Some kernel of the busy stream always ended a little before; none of them every time."""
    for seed in range(20):
        assert learnt(replayed(waits=False, seed=seed)) == []


@pytest.mark.parametrize(("calls", "n_learnt"), [(("a", "j"), 8), (("j", "a"), 0)])
def test_no_stream_waits_for_what_was_launched_later(calls, n_learnt):
    """An event is recorded before it is waited for: what came to the queue later is no source."""
    lines = dict.fromkeys(["cpu 1", "stream 7", "stream 20"], "")
    for i in range(8):
        first, second = calls
        step = {
            "cpu 1": f"[launch >{first}{i}][launch >z{i}][launch >{second}{i}]",
            "stream 7": f"{'':50}[A <a{i} {'':190}][z <z{i} {'':40}]",
            "stream 20": f"{'':250}[join <j{i}]",
        }
        lines = {name: line + step[name].ljust(500) for name, line in lines.items()}
    dag = compile_events(timeline("\n".join(f"{name} |{line}" for name, line in lines.items())))

    assert learnt(dag) == [("A", "join")] * n_learnt


def test_without_inference_nothing_is_learnt():
    """The edges and what they rest on are gone."""
    draw = replayed(waits=True)
    dag = compile_events(draw.events, infer=False)

    assert learnt(dag) == []
    assert dag.support == ()


def _after_each(n_replays: int, distance_us: int, wait_us: int, *, others: str = "") -> Dag:
    """Join always starts so long after A, ready since p ended 30 us after launch."""
    lines = {"cpu 1": "", "stream 7": "", "stream 20": ""}
    start = 30 + wait_us
    for i in range(n_replays):
        replay = {
            "cpu 1": f"[graph >g{i:02d}]",
            "stream 7": f"{'':30}{others.replace('>', f' <g{i:02d}')}[A <g{i:02d}",
            "stream 20": f"{'':10}[p <g{i:02d}".ljust(29) + "]".ljust(wait_us + 1),
        }
        replay["stream 7"] = replay["stream 7"].ljust(start - distance_us - 1) + f"][B <g{i:02d}"
        replay["stream 7"] = replay["stream 7"].ljust(start + 59) + "]"
        replay["stream 20"] += f"[join <g{i:02d}]"
        lines = {name: lines[name] + replay[name].ljust(start + 100) for name in lines}
    drawing = "\n".join(f"{name} |{line}" for name, line in lines.items())
    return compile_events(timeline(drawing))


@pytest.mark.parametrize(("distance_us", "n_learnt"), [(20, 3), (26, 0)])
def test_chance_would_yield_three_such_waits_once_in_ten_thousand_traces(distance_us, n_learnt):
    """Each of three waits takes 500 us; a match by chance is 4% likely, or 5%."""
    assert learnt(_after_each(3, distance_us, wait_us=500)) == [("A", "join")] * n_learnt


@pytest.mark.parametrize(("distance_us", "n_learnt"), [(4, 2), (6, 0)])
def test_two_waits_are_enough_if_they_are_long(distance_us, n_learnt):
    """Each takes 500 us; a match by chance is 0.8% likely, or 1.2%: of both, 0.0064%, or 0.014%."""
    assert learnt(_after_each(2, distance_us, wait_us=500)) == [("A", "join")] * n_learnt


def test_once_is_nothing():
    """However long the wait."""
    assert learnt(_after_each(1, 2, wait_us=5_000)) == []


@pytest.mark.parametrize(("wait_us", "n_learnt"), [(100, 20), (50, 0)])
def test_what_is_near_at_any_time_is_no_evidence_however_often_it_comes(wait_us, n_learnt):
    """The end of A, 15 us before, is near in 15% of the wait, or in 30% of it."""
    assert learnt(_after_each(20, 15, wait_us)) == [("A", "join")] * n_learnt


@pytest.mark.parametrize(("distance_us", "n_learnt"), [(40, 20), (41, 0)])
def test_a_source_ends_within_a_usual_launch_delay(distance_us, n_learnt):
    """The launch latency is 10 us."""
    assert learnt(_after_each(20, distance_us, wait_us=500)) == [("A", "join")] * n_learnt


def test_a_source_that_comes_twice_in_each_wait_is_near_twice_as_often():
    """The end of A is 5 us before, and each wait of 500 us holds two."""
    (support,) = _after_each(3, 5, wait_us=500, others="[A>]").support

    assert support.chance == pytest.approx(2 * 5 / 500)


def test_a_source_whose_time_was_taken_late_may_come_after_its_wait():
    """Of two kinds of sources, the second comes 1 ns after each wait."""
    ends = np.array([50, 150, 250, 350])
    waits = Waits(ends, ends - 50, ends, np.zeros(4, dtype=np.int64))
    times = np.concatenate([ends - 2, ends - 1, ends + 1])
    places = np.array([0] * 8 + [1] * 4)
    found = Candidates(np.tile(np.arange(4), 3), np.arange(12), np.tile(ends, 3) - times)
    calls, support = recurring(
        Rule.RECURRING_IN_REPLAYS, waits, found, (Sources.of(times, places).only, places), str
    )

    assert calls.wait.tolist() == [0, 1, 2, 3]
    assert [one.n_matched for one in support] == [4]
