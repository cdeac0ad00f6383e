"""Waits that no record names, as the simulated machine makes them; times are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given, settings

from htagraph.model.kinds import EventKind
from tests.judged_inference import UNNAMED
from tests.synth.mechanisms import KINDS, inference_program
from tests.synth.program import (
    Action,
    Call,
    Delegate,
    Free,
    Graph,
    GraphNode,
    Launch,
    Machine,
    Op,
    Poll,
    Program,
    Reclaim,
    Record,
    Replay,
    Spend,
    StreamWait,
    Work,
)
from tests.synth.simulated import SimulatedRank
from tests.synth.simulator import simulate
from tests.synth.strategies import inference_programs
from tests.synth.truth import Release

MACHINE = Machine(
    launch_latency_ns=5_000, stream_gap_ns=1_000, stream_wait_ns=300, sync_return_ns=2_000
)
ROOM = replace(MACHINE, n_sms=10)
"""Holds 20 blocks of 1,024 threads."""


def run(*body: Action, machine: Machine = MACHINE, **options: object) -> SimulatedRank:
    return simulate(Program(body, machine, start_ns=0, base_time_ns=0, **options))


def launch(name: str, dur_ns: int, stream: int = 7, n_blocks: int = 0) -> Launch:
    return Launch(Work(name, dur_ns, n_blocks=n_blocks, n_threads=1_024), stream, cost_ns=4_000)


def spans(rank: SimulatedRank) -> dict[str, tuple[int, int]]:
    """Start and end of each event that the program asked for, by name."""
    context = (EventKind.SPAN, EventKind.SYNC, EventKind.DEVICE_ANNOTATION)
    return {row.name: (row.ts_ns, row.end_ns) for row in rank.rows if row.kind not in context}


def path(rank: SimulatedRank) -> list[tuple[int, str, str]]:
    """Length, bound and name of the tiles; neighbours of one bound and name are joined."""
    tiles = rank.truth.itertuples(index=False)
    joined = groupby(tiles, key=lambda tile: (tile.bound, tile.name))
    return [(sum(tile.dur_ns for tile in group), *what) for what, group in joined]


def cause(rank: SimulatedRank, name: str, *, end: bool = False) -> tuple[str, str, int]:
    """What the start (or end) of an event waited for: how, the source's name, and how late."""
    event = [row.name for row in rank.rows].index(name)
    row = rank.causes.set_index("node").loc[2 * event + end]
    source = "" if row["source"] < 0 else rank.rows[row["source"]].name
    return row["release"], source, row["late_ns"]


# Graphs on several streams


def fork() -> Graph:
    """A on stream 7; B on stream 9 after it; C on stream 7 after both."""
    return Graph(
        (
            GraphNode(Work("A", 10_000), 7),
            GraphNode(Work("B", 20_000), 9, after=(0,)),
            GraphNode(Work("C", 5_000), 7, after=(0, 1)),
        )
    )


def test_nodes_of_a_graph_wait_for_each_other_across_streams() -> None:
    """One call at 0; B starts 0.3 us after A ends at 15, and C 0.3 us after B ends at 35.3."""
    rank = run(Replay(fork(), cost_ns=4_000))

    assert spans(rank) == {
        "cudaGraphLaunch": (0, 4_000),
        "A": (5_000, 15_000),
        "B": (15_300, 35_300),
        "C": (35_600, 40_600),
    }
    assert path(rank) == [
        (5_000, "launch", "A"),
        (10_000, "compute", "A"),
        (300, "sync", "B"),
        (20_000, "compute", "B"),
        (300, "sync", "C"),
        (5_000, "compute", "C"),
    ]
    assert cause(rank, "C") == ("graph", "B", 19_600)
    assert rank.events.correlation[:4].tolist() == [1, 1, 1, 1]
    assert rank.events.column("graph_node")[:4].tolist() == [-1, 0, 1, 2]


# Late ends


def test_a_recorded_end_may_lie_after_the_start_of_what_waited_for_it() -> None:
    """B starts at 25.3 us, when A has truly ended; the path goes from A to B there."""
    order = (Record("e", 7, 500), StreamWait("e", 9, 500))
    rank = run(
        launch("A", 20_000),
        *order,
        launch("B", 3_000, 9),
        machine=replace(MACHINE, late_end_ns=4_000),
        seed=3,
    )
    late_ns = spans(rank)["A"][1] - 25_000
    end_ns = spans(rank)["B"][1]

    assert spans(rank)["B"][0] == 25_300
    assert 300 < late_ns <= 4_000
    assert path(rank) == [
        (5_000, "launch", "A"),
        (20_300, "compute", "A"),
        (end_ns - 25_300, "compute", "B"),
    ]
    assert cause(rank, "B") == ("stream wait", "A", 15_300)


# A full device


def test_ready_work_waits_until_the_last_wave_drains() -> None:
    """F runs from 5 to 105 us in 5 waves of 20 us; B is ready at 9 us and starts at 85 us."""
    rank = run(launch("F", 100_000, n_blocks=100), launch("B", 3_000, 9, n_blocks=1), machine=ROOM)

    assert spans(rank)["B"] == (85_000, 88_000)
    assert cause(rank, "B") == ("no free SMs", "F", 76_000)


def test_the_kernel_that_starts_first_takes_the_room() -> None:
    """B is launched first and ready last, for it waits for A; F runs by then, from 14 to 114 us."""
    order = (Record("e", 7, 500), StreamWait("e", 9, 500))
    rank = run(
        launch("A", 20_000),
        *order,
        launch("B", 1_000, 9),
        launch("F", 100_000, 11, n_blocks=100),
        machine=ROOM,
    )

    assert spans(rank)["F"] == (14_000, 114_000)
    assert spans(rank)["B"] == (94_000, 95_000)
    assert cause(rank, "B") == ("no free SMs", "F", 68_700)


# What ran before the capture


def test_work_from_before_the_capture_runs_into_it_unrecorded() -> None:
    """Old runs from 5 to 505 us; the capture begins at 4 us, and New starts at 506 us."""
    rank = run(launch("New", 10_000), before=(launch("Old", 500_000),))

    assert spans(rank) == {"cudaLaunchKernel": (4_000, 8_000), "New": (506_000, 516_000)}
    assert path(rank) == [(502_000, "work_from_before_the_profile", ""), (10_000, "compute", "New")]
    assert rank.truth["event"].tolist() == [-1, -1, 1, 1]
    assert cause(rank, "New") == ("before the capture", "", 497_000)


# Calls that are not recorded


# Polling hosts


def test_a_host_that_polls_goes_on_when_the_work_has_ended() -> None:
    """A ends at 25 us; the host sees it 1 us later, spends 0.5 us, and runs an operator."""
    rank = run(launch("A", 20_000), Poll(return_ns=1_000), Spend(500), Op("after", (Spend(2_000),)))

    assert spans(rank)["after"] == (26_500, 28_500)
    assert path(rank) == [
        (5_000, "launch", "A"),
        (20_000, "compute", "A"),
        (1_000, "sync", ""),
        (500, "untraced_code", ""),
        (2_000, "host", "after"),
    ]
    assert cause(rank, "after") == ("poll", "A", 21_000)


def test_an_allocator_waits_for_streams_before_it_frees() -> None:
    """A ends at 25 us; the allocator walks its blocks for 3 us, frees, and allocates."""
    rank = run(launch("A", 20_000), Reclaim((7,), 3_000), Free(2_000), Call("cudaMalloc", 2_000))

    assert spans(rank)["cudaFree"] == (28_000, 30_000)
    assert path(rank) == [
        (5_000, "launch", "A"),
        (20_000, "compute", "A"),
        (3_000, "sync", ""),
        (2_000, "host", "cudaFree"),
        (2_000, "host", "cudaMalloc"),
    ]
    assert cause(rank, "cudaFree") == ("allocator", "A", 21_000)


# Worker threads


def test_a_thread_that_is_given_work_runs_beside_its_caller() -> None:
    """Given at 1 us, it begins 3 us later; the caller goes on at once."""
    task = Delegate((Op("pin", (Spend(10_000),)),), 3, wake_ns=3_000, thread_name="pt_data_pin")
    rank = run(Op("before", (Spend(1_000),)), task, Op("beside", (Spend(20_000),)))

    assert spans(rank) == {"before": (0, 1_000), "beside": (1_000, 21_000), "pin": (4_000, 14_000)}
    assert cause(rank, "pin")[:2] == ("call", "before")
    assert "thread 4202 (pt_data_pin)" in rank.events.lanes.thread


PLANTED = {
    "replays": Release.GRAPH,
    "stripped waits": Release.STREAM_WAIT,
    "full device": Release.DEVICE_FULL,
    "polls": Release.POLL,
    "allocator": Release.ALLOCATOR,
    "workers": Release.CALL,
    "queues": Release.HANDOFF,
    "servers": Release.REQUEST,
    "before the capture": Release.BEFORE_CAPTURE,
    "full queue": Release.QUEUE,
}
NAMED = {Release.OWN, Release.LAUNCH, Release.STREAM, Release.SYNC, Release.CALL}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_program_plants_what_its_kind_says(kind: str) -> None:
    """And no wait of another device kind, but where streams wait for copies of a worker."""
    found = [set(simulate(inference_program(kind, seed)).causes["release"]) for seed in range(4)]

    assert all(PLANTED[kind].value in releases for releases in found)


def test_every_kind_and_every_unnamed_wait_is_planted() -> None:
    """A kind that is not listed above may plant nothing, and its rule be right by chance."""
    alike = {"nothing", "mixture", "late ends"}
    assert set(KINDS) - alike == set(PLANTED), "KINDS of tests/synth/mechanisms.py, and PLANTED"
    assert set(UNNAMED) == set(PLANTED.values()), (
        "UNNAMED of tests/judged_inference.py, and PLANTED"
    )


@settings(max_examples=10)
@given(program=inference_programs(kind="nothing"))
def test_nothing_is_planted_where_nothing_is_said(program: Program) -> None:
    """All waits are recorded, or those of a thread that was started once."""
    assert set(simulate(program).causes["release"]) <= {release.value for release in NAMED}


@given(program=inference_programs())
def test_every_instant_has_one_cause(program: Program) -> None:
    """Each start and end of a host event, each start of device work has one; sources came first."""
    rank = simulate(program)
    causes, kinds = rank.causes, rank.events.kind
    n_host = int(rank.events.is_host.sum())
    n_device = int(rank.events.is_device.sum())
    sources = causes["source"][causes["source"] >= 0].to_numpy()
    at = causes["node"][causes["source"] >= 0].to_numpy()

    assert causes["node"].is_unique
    assert len(causes) == 2 * n_host + n_device
    assert (rank.events.ts_ns[sources] <= rank.events.node_ts_ns[at]).all()
    assert (kinds[sources] != EventKind.SYNC).all()
    assert (causes["late_ns"] >= 0).all()
