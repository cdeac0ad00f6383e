"""Waits that are learnt because they recur in replayed graphs."""

from __future__ import annotations

import random

from htagraph.compiler.passes import compile_events
from htagraph.model.dag import Dag
from htagraph.model.rules import Rule
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
    """Replays of six kernels on stream 7, and two on stream 20, the second of which may wait.

    Nothing but the graph says so: the trace has no records of nodes, events or waits.
    """
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


def test_no_stream_waits_for_what_was_launched_later():
    """An event is recorded before it is waited for: what came to the queue later is no source."""
    draw = random.Random(1)  # noqa: S311  no secret
    body = tuple(
        action
        for _ in range(N_REPLAYS)
        for action in (
            Launch(Work("long", draw.randint(200_000, 400_000)), 20),
            Launch(Work("late", 5_000), 20),
            Launch(Work("after", 90_000), 7),
            Synchronize(),
        )
    )
    dag = compile_events(simulate(Program(body, MACHINE, sync_records=False)).events)

    assert learnt(dag) == []


def test_without_inference_nothing_is_learnt():
    """The edges and what they rest on are gone."""
    draw = replayed(waits=True)
    dag = compile_events(draw.events, infer=False)

    assert learnt(dag) == []
    assert dag.support == ()
