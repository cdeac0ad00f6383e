"""When a collective was ready: its start, had no other collective held it up."""

from __future__ import annotations

import numpy as np

from htagraph.compiler.passes import compile_events
from htagraph.lookup.collectives import readiness
from htagraph.run.graph import TraceGraph
from tests.job.simulated import MACHINE, meet
from tests.synth.program import (
    Action,
    Group,
    JobProgram,
    Launch,
    Op,
    Program,
    Record,
    Spend,
    StreamWait,
    Synchronize,
    Work,
)
from tests.synth.simulator import simulate_job

PAIR = Group("0", (0, 1))


def backward(dur_ns: int) -> tuple[Action, ...]:
    """A kernel, and a collective of the stream beside it that needs it."""
    compute = Op("aten::mm", (Launch(Work("gemm", dur_ns), 7),))
    return (compute, Record("grad", 7), StreamWait("grad", 20), meet(group=PAIR))


def graph_of_rank_0(first: tuple[Action, ...], second: tuple[Action, ...]) -> TraceGraph:
    """The graph of the first of two ranks."""
    programs = tuple(
        Program((*body, Synchronize()), MACHINE, rank, 2, groups=(PAIR,), start_ns=0)
        for rank, body in enumerate((first, second))
    )
    dag = compile_events(simulate_job(JobProgram(programs)).ranks[0].events)
    return TraceGraph(dag, dag.span)


def test_a_collective_is_ready_when_its_gradient_is() -> None:
    """Rank 1 is 5 ms late to the first of two; the second one's gradient is there long before."""
    both = (*backward(50_000), *backward(70_000))
    graph = graph_of_rank_0(both, (Spend(5_000_000), *both))
    dag, table = graph.dag, graph.collectives()
    found = readiness(dag, table["event"].to_numpy(np.int64))
    gemms = np.flatnonzero(dag.events.named(dag.events.symbols.searched("gemm")))

    assert found.ready_ns.tolist() == dag.events.end_ns[gemms].tolist()
    assert (table["start_ns"] - found.ready_ns).iloc[1] > 4_900_000
    assert found.ready_after.tolist() == [-1, -1]
    assert table["after"].tolist() == [-1, 0]


def test_what_nothing_holds_up_starts_when_it_is_ready() -> None:
    """The gradient is the last thing that the collective needs."""
    graph = graph_of_rank_0(backward(50_000), backward(50_000))
    table = graph.collectives()
    found = readiness(graph.dag, table["event"].to_numpy(np.int64))

    assert (table["start_ns"] - found.ready_ns).iloc[0] == MACHINE.stream_wait_ns
