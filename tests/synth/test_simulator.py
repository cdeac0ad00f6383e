"""The simulator, its programs and its truth."""

from __future__ import annotations

import gzip

import pandas as pd
import pytest
from hypothesis import Phase, find, given, settings

import htagraph as hg
from htagraph import Trace
from htagraph.cli.demo import PLANTED
from htagraph.model.kinds import Bound, EventKind
from tests.synth.program import (
    Action,
    Annotation,
    Collective,
    HandOver,
    Launch,
    Machine,
    Op,
    Program,
    Record,
    Spend,
    StreamWait,
    Synchronize,
    Work,
)
from tests.synth.shipped_traces import NOTEBOOKS, ROOT, shipped_traces
from tests.synth.simulated import SimulatedRank
from tests.synth.simulator import simulate, simulate_job
from tests.synth.strategies import expert_jobs, jobs, programs
from tests.synth.training import Fault, training_rank
from tests.synth.truth import Mark, tiles

MACHINE = Machine(
    launch_latency_ns=5_000, stream_gap_ns=1_000, stream_wait_ns=300, sync_return_ns=2_000
)


def run(*body: Action, machine: Machine = MACHINE, sync_records: bool = True) -> SimulatedRank:
    return simulate(Program(body, machine, start_ns=0, base_time_ns=0, sync_records=sync_records))


def launch(name: str, dur_ns: int, stream: int = 7) -> Launch:
    return Launch(Work(name, dur_ns), stream, cost_ns=4_000)


def spans(rank: SimulatedRank) -> dict[str, tuple[int, int]]:
    """Start and end of each event that the program asked for, by name."""
    context = (EventKind.SPAN, EventKind.SYNC, EventKind.DEVICE_ANNOTATION)
    return {row.name: (row.ts_ns, row.end_ns) for row in rank.rows if row.kind not in context}


def path(rank: SimulatedRank) -> list[tuple[int, str, str]]:
    return list(
        zip(rank.truth["dur_ns"].tolist(), rank.truth["bound"], rank.truth["name"], strict=True)
    )


def test_an_idle_stream_starts_work_one_latency_after_its_call() -> None:
    """The latency counts from the start of the call; the kernel starts 1 us after its return."""
    rank = run(Op("aten::mm", (Spend(1_000), launch("gemm", 20_000), Spend(500))))

    assert spans(rank) == {
        "aten::mm": (0, 5_500),
        "cudaLaunchKernel": (1_000, 5_000),
        "gemm": (6_000, 26_000),
    }
    assert path(rank) == [
        (1_000, "host", "aten::mm"),
        (5_000, "launch", "gemm"),
        (20_000, "compute", "gemm"),
    ]


def test_a_busy_stream_starts_work_one_gap_after_the_work_before() -> None:
    """The second launch arrives at 9 us, while the first kernel runs until 25 us."""
    rank = run(launch("a", 20_000), launch("b", 3_000))

    assert spans(rank)["a"] == (5_000, 25_000)
    assert spans(rank)["b"] == (26_000, 29_000)
    assert path(rank) == [
        (5_000, "launch", "a"),
        (20_000, "compute", "a"),
        (1_000, "kernel_gap", "b"),
        (3_000, "compute", "b"),
    ]


def test_a_drained_stream_waits_for_the_host() -> None:
    """The host pauses for 30 us between the launches; the path is on the host meanwhile."""
    rank = run(launch("a", 2_000), Spend(30_000), launch("b", 3_000))

    assert spans(rank)["b"] == (39_000, 42_000)
    assert path(rank) == [
        (4_000, "host", "cudaLaunchKernel"),
        (30_000, "untraced_code", ""),
        (5_000, "launch", "b"),
        (3_000, "compute", "b"),
    ]


def test_a_device_sync_returns_after_the_last_stream() -> None:
    """Stream 9 ends last, at 29 us; returning takes 2 us."""
    rank = run(launch("a", 2_000), launch("b", 20_000, stream=9), Synchronize())

    assert spans(rank)["cudaDeviceSynchronize"] == (8_000, 31_000)
    assert path(rank)[-2:] == [(20_000, "compute", "b"), (2_000, "sync", "cudaDeviceSynchronize")]


def test_an_event_sync_waits_for_what_was_enqueued_before_the_record() -> None:
    """The second kernel is enqueued after the record and is not waited for."""
    rank = run(
        launch("a", 20_000), Record("e", 7, 1_000), launch("b", 20_000), Synchronize(event="e")
    )

    assert spans(rank)["cudaEventSynchronize"] == (9_000, 27_000)


def test_a_stream_waits_for_an_event_of_another() -> None:
    """Kernel b could start at 14 us but for a, which ends at 25 us; the stream wait adds 0.3 us."""
    order = (Record("e", 7, 500), StreamWait("e", 9, 500))
    rank = run(launch("a", 20_000), *order, Spend(4_000), launch("b", 3_000, stream=9))

    assert spans(rank)["b"] == (25_300, 28_300)
    assert path(rank) == [
        (5_000, "launch", "a"),
        (20_000, "compute", "a"),
        (300, "sync", "b"),
        (3_000, "compute", "b"),
    ]


def test_a_blocking_copy_returns_after_the_copy() -> None:
    """The copy runs from 5 to 15 us, and returning takes 2 us."""
    copy = Launch(
        Work("Memcpy DtoH (Device -> Pageable)", 10_000, n_bytes=40_000), is_blocking=True
    )
    rank = run(copy)

    assert spans(rank)["cudaMemcpyAsync"] == (0, 17_000)
    assert [bound for _, bound, _ in path(rank)] == ["launch", "memory", "sync"]
    assert rank.events.column("bytes").tolist()[:2] == [-1, 40_000]


def test_a_full_queue_blocks_a_launch_until_work_starts() -> None:
    """Two launches may be outstanding; at the fourth, b and c are, and b starts at 106 us."""
    machine = Machine(launch_latency_ns=5_000, stream_gap_ns=1_000, queue_limit=2)
    rank = run(
        launch("a", 100_000),
        launch("b", 1_000),
        launch("c", 1_000),
        Op("late", (launch("d", 1_000),)),
        machine=machine,
    )

    assert spans(rank)["late"] == (12_000, 106_000)
    assert path(rank)[-1] == (1_000, "compute", "d")


def test_a_hand_over_is_a_gap_of_the_caller() -> None:
    """The autograd thread runs from 6 to 16 us; the caller goes on at once; the path is on both."""
    backward = HandOver(
        (Op("autograd::MmBackward0", (Spend(10_000),), 1, is_backward=True),), wake_ns=3_000
    )
    rank = run(
        Op("aten::mm", (Spend(2_000),), 1),
        Spend(1_000),
        backward,
        Spend(500),
        Op("aten::add", (Spend(100),)),
    )

    assert spans(rank)["autograd::MmBackward0"] == (6_000, 16_000)
    assert path(rank) == [
        (2_000, "host", "aten::mm"),
        (4_000, "untraced_code", ""),
        (10_000, "host", "autograd::MmBackward0"),
        (500, "untraced_code", ""),
        (100, "host", "aten::add"),
    ]
    assert rank.events.flows.ts_ns.tolist() == [0, 6_000]
    assert rank.events.column("sequence").tolist()[:3] == [1, 1, -1]


def test_a_step_is_cut_where_it_starts() -> None:
    """The kernel of the first step runs until 105 us; the second step, from 4 us on, waits."""
    first = Annotation("ProfilerStep#0", (launch("a", 100_000),))
    second = Annotation("ProfilerStep#1", (Synchronize(),))
    rank = run(first, second)
    truth = rank.step_truth("ProfilerStep#1")

    assert rank.steps["name"].tolist() == ["ProfilerStep#0", "ProfilerStep#1"]
    assert truth["start_ns"].tolist() == [4_000, 5_000, 105_000]
    assert truth["bound"].tolist() == ["launch", "compute", "sync"]
    assert truth["dur_ns"].sum() == 103_000 == rank.steps["dur_ns"][1]


def test_a_collective_of_one_rank_waits_as_long_as_it_is_told() -> None:
    """Alone, a rank cannot know what the others do."""
    reduce = Collective("ncclDevKernel_AllReduce", dur_ns=10_000, alone_ns=7_000)
    rank = run(Launch(reduce, 20, cost_ns=4_000))

    assert spans(rank)["ncclDevKernel_AllReduce"] == (5_000, 22_000)
    assert path(rank)[-1] == (17_000, "communication", "ncclDevKernel_AllReduce")


FAULTS = (
    "none",
    "dataloader",
    "sync_in_loop",
    "small_kernels",
    "exposed_allreduce",
    "synchronous_copy",
)


def joined(path: pd.DataFrame) -> list[tuple[int, int, str]]:
    """Start, end and bound of tiles; neighbors of one bound are joined."""
    out: list[tuple[int, int, str]] = []
    for start, dur, bound in zip(
        path["start_ns"], path["dur_ns"], path["bound"].astype(str), strict=True
    ):
        if out and out[-1][1:] == (start, bound):
            out[-1] = (out[-1][0], start + dur, bound)
        else:
            out.append((start, start + dur, bound))
    return out


def test_a_walk_is_cut_at_the_start_of_its_window() -> None:
    """The launch began at 100, the window at 104."""
    launch = Mark(107, Mark(100, None, Bound.HOST), Bound.LAUNCH, "gemm")

    assert [tile[:3] for tile in tiles(Mark(130, launch, Bound.COMPUTE), 104)] == [
        (104, 107, Bound.LAUNCH),
        (107, 130, Bound.COMPUTE),
    ]


def test_a_rank_alone_sees_its_own_kernel_where_the_job_sees_the_late_one() -> None:
    """The collective started at 10 here and at 40 on the late rank, and ended at 50."""
    here, late = (
        Mark(10, Mark(0, None, Bound.HOST), Bound.LAUNCH),
        Mark(40, Mark(0, None, Bound.HOST), Bound.HOST, rank=1),
    )
    end = Mark(50, late, Bound.COMMUNICATION, local_cause=here)

    assert [tile[:3] for tile in tiles(end, 0)] == [
        (0, 10, Bound.LAUNCH),
        (10, 50, Bound.COMMUNICATION),
    ]
    assert [tile[:3] for tile in tiles(end, 0, is_local=False)] == [
        (0, 40, Bound.HOST),
        (40, 50, Bound.COMMUNICATION),
    ]


@given(program=programs())
def test_the_truth_tiles_the_trace(program: Program) -> None:
    """From the first start to the last end, without gap or overlap, in integers."""
    rank = simulate(program)
    truth, graph_events = rank.truth, rank.events.is_host | rank.events.is_device
    starts, ends = truth["start_ns"], truth["start_ns"] + truth["dur_ns"]

    assert starts[1:].tolist() == ends[:-1].tolist()
    assert starts.iloc[0] == rank.events.ts_ns[graph_events].min()
    assert ends.iloc[-1] == rank.events.end_ns[graph_events].max()
    assert (truth["dur_ns"] > 0).all()


@pytest.mark.parametrize("fault", [*FAULTS, "full_queue", "recompile"])
def test_the_path_of_a_training_run_is_the_true_one(fault: Fault) -> None:
    """Whatever is wrong with the run."""
    rank = simulate(training_rank(steps=2, layers=3, fault=fault))
    found = Trace.from_events(rank.events).compile().window("trace").critical_path()

    assert rank.n_ties == 0
    assert joined(found.segments) == joined(rank.truth)


QUICK = settings(max_examples=500, phases=(Phase.generate,), deadline=None, database=None)
BOUNDS = (
    "compute",
    "communication",
    "memory",
    "launch",
    "kernel_gap",
    "host",
    "data_loading",
    "untraced_code",
    "sync",
)


@pytest.mark.parametrize("bound", BOUNDS)
def test_some_program_is_bound_by_it(bound: str) -> None:
    """After the warm-up, which has compute, launch and sync itself."""
    found = find(
        programs(),
        lambda program: bound in set(simulate(program).truth["bound"][12:]),
        settings=QUICK,
    )

    assert bound in set(simulate(found).truth["bound"])


def test_some_job_waits_across_ranks() -> None:
    """The path of the job is on more than one rank."""
    found = find(
        jobs(),
        lambda program: simulate_job(program).truth["rank"].nunique() > 2,
        settings=settings(QUICK, max_examples=5_000),
    )

    assert simulate_job(found).collectives["wait_ns"].max() > 0


@pytest.mark.some(1)
@pytest.mark.parametrize("half", ["", "receive"])
def test_some_expert_parallel_job_waits_across_ranks(half: str) -> None:
    """In dispatches of one kernel, and in those of two halves."""
    found = find(
        expert_jobs(max_ranks=2, max_layers=2),
        lambda program: (
            len(set(simulate_job(program).truth["rank"])) > 1
            and f"half={half!r}" in repr(program.ranks[0].body)
        ),
        settings=QUICK,
    )

    assert simulate_job(found).collectives["wait_ns"].max() > 0


@pytest.mark.slow
def test_they_are_what_the_simulator_writes():
    """Otherwise run `python -m tests.synth.shipped_traces`."""
    stale = [
        path.as_posix()
        for path, rank in shipped_traces().items()
        if gzip.decompress((ROOT / path).read_bytes()) != rank.to_json()
    ]

    assert stale == []


def test_the_captured_one_names_the_line_of_the_script_that_it_records():
    """Of `docs/train.py`, recorded as it is."""
    functions = hg.load(hg.demo_trace("captured")).compile().functions()

    assert functions["place"].tolist()[:1] == ["train.py:22"]
    assert "def __getitem__" in (ROOT / "docs/train.py").read_text().splitlines()[22 - 1]


@pytest.mark.slow
def test_the_notebooks_have_no_others():
    kept = {path.relative_to(ROOT) for path in (ROOT / NOTEBOOKS).rglob("*.gz")}

    assert kept == {path for path in shipped_traces() if NOTEBOOKS in path.parents}


@pytest.mark.parametrize("name", [*PLANTED, "serving", "compiled"])
def test_a_demo_trace_can_be_loaded_by_its_name(name):
    assert hg.load(hg.demo_trace(name)).compile().dur_ns > 0


def test_the_demo_job_has_four_ranks():
    assert len(hg.load_job(hg.demo_trace("job"))) == 4


def test_an_unknown_name_is_answered_with_all():
    with pytest.raises(
        hg.errors.QueryError, match=r"'dataloder'.*did you mean 'dataloader'.*, job"
    ):
        hg.demo_trace("dataloder")
