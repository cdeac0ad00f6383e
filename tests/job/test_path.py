"""The critical path of a job: across ranks, where one waited for another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import assume, given

import htagraph as hg
from htagraph.arrays.clocks import Clock, ClockFit
from htagraph.job.clocks import Clocks
from htagraph.job.job import Job
from htagraph.job.path import JobPath
from htagraph.job.timeline import Timeline
from htagraph.lookup.find_window import WHOLE
from tests.job.merged import merged_path
from tests.job.simulated import FEW, loaded, meet, three, tiles
from tests.synth.program import JobProgram, Spend, Synchronize
from tests.synth.simulated import SimulatedJob
from tests.synth.simulator import simulate_job
from tests.synth.strategies import jobs
from tests.synth.training import training_job

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

LAYOUTS: list[dict[str, Any]] = [
    {"ranks": 4, "delay": "python"},
    {"ranks": 8, "tensor": 2, "delay": "op"},
    {"ranks": 4, "pipeline": 4, "delay": "python"},
    {"ranks": 6, "tensor": 2, "delay": "data_loading"},
    {"ranks": 16, "tensor": 4, "delay": "kernel"},
]
every_layout = pytest.mark.parametrize(
    "layout", LAYOUTS, ids=lambda layout: "-".join(map(str, layout.values()))
)


def columns(path: JobPath, *names: str) -> list[tuple[object, ...]]:
    return list(path.segments[list(names)].itertuples(index=False, name=None))


def as_edges(path: JobPath) -> list[list[int]]:
    """Rank and edge of each edge of the path; segments of one edge are one."""
    segments = path.segments[path.segments["edge"] >= 0]
    changed = (segments[["rank", "edge"]] != segments[["rank", "edge"]].shift()).any(axis=1)
    return segments.loc[changed, ["rank", "edge"]].to_numpy().tolist()


def merged(job: Job) -> pd.DataFrame:
    """The path of all ranks as one graph."""
    clocks = {rank: job.clock(rank) for rank in job}
    ends = dict(job._rank_ends)
    return merged_path({rank: job[rank].dag for rank in job}, job.collectives(), clocks, ends)


def on_true_clocks(job: Job, simulated: SimulatedJob) -> JobPath:
    """The path of the job on known clocks, in place of fitted ones."""
    fits = {
        rank: ClockFit(Clock(-clock.offset_ns), 0, 0, 0, 0)
        for rank, clock in enumerate(simulated.clocks)
    }
    known = Clocks(fits, dict.fromkeys(fits, -1), dict.fromkeys(fits, (0, 0)))
    timeline = Timeline(job.graphs)
    vars(timeline)["fitted"] = known
    return replace(job, timeline=timeline).window("trace").critical_path()


def test_the_path_hops_to_the_late_rank_where_waiting_ended() -> None:
    """Rank 2 returns last. Before the transfer the path is on rank 1, which came at 36 us."""
    late = (Spend(30_000), meet())
    path = loaded(three((meet(),), late, (Spend(10_000), meet(), Synchronize()))).critical_path()
    assert columns(path, "rank", "start_ns", "dur_ns", "bound", "kind") == [
        (1, 30_000, 1_000, "host", "thread"),
        (1, 31_000, 5_000, "launch", "launch"),
        (2, 36_000, 10_000, "communication", "collective"),
        (2, 46_000, 2_000, "sync", "sync"),
    ]


def test_the_path_begins_when_all_ranks_are_recorded() -> None:
    """Rank 1 begins at 30 us; what the others did before is not the job's."""
    path = loaded(
        three((meet(),), (Spend(30_000), meet()), (Spend(10_000), meet()))
    ).critical_path()
    assert (path.start_ns, path.end_ns) == (30_000, 46_000)


def test_the_path_does_not_follow_a_root_that_nobody_recorded() -> None:
    """Without the root of a broadcast nothing says who waited: the path stays on its rank."""
    bodies = tuple((Spend(ns), meet("broadcast", root=1)) for ns in (0, 30_000, 10_000))
    path = loaded(three(*bodies[:2], (*bodies[2], Synchronize()), metadata="none")).critical_path()
    assert path.segments["rank"].unique().tolist() == [2]


def test_the_path_follows_a_broadcast_to_its_root() -> None:
    """The leaf that returns last waited for rank 1."""
    bodies = tuple((Spend(ns), meet("broadcast", root=1)) for ns in (0, 30_000, 10_000))
    path = loaded(three(*bodies[:2], (*bodies[2], Synchronize()))).critical_path()
    assert path.rank_segments["rank"].tolist() == [1, 2, 2]


def test_shares_by_rank_add_up_to_the_window() -> None:
    """6 us on rank 1 and 12 us on rank 2."""
    late = (Spend(30_000), meet())
    path = loaded(three((meet(),), late, (Spend(10_000), meet(), Synchronize()))).critical_path()
    assert path.breakdown(by="rank")["dur_ns"].to_dict() == {2: 12_000, 1: 6_000}
    assert repr(path) == (
        "JobPath(job, 18.0 us, 4 segments: rank 2 67%, rank 1 33%; "
        "communication 56%, launch latency 28%, GPU synchronization 11%)"
    )


@pytest.mark.some(1)
@every_layout
def test_the_path_equals_the_truth_of_a_training_job(layout: dict[str, Any]) -> None:
    """Tile by tile, on known clocks that are off by up to 20 ms."""
    program = training_job(**layout, steps=2, layers=3, straggler=1, max_offset_ns=20_000_000)
    simulated = simulate_job(program)
    assert simulated.n_ties == 0
    path = on_true_clocks(loaded(simulated).window(WHOLE), simulated)
    assert tiles(path.segments, path.start_ns) == tiles(simulated.truth, path.start_ns)


@pytest.mark.some(1)
@every_layout
def test_estimated_clocks_lead_along_the_same_ranks(layout: dict[str, Any]) -> None:
    """Short waits on wrong clocks move less than 5% of the time between ranks."""
    program = training_job(
        **layout,
        steps=2,
        layers=3,
        straggler=1,
        delay_ns=4_000_000,
        max_offset_ns=20_000_000,
        max_drift_ppb=5_000,
        seed=2,
    )
    simulated = simulate_job(program)
    path = loaded(simulated).critical_path()
    share, truth = path.breakdown(by="rank")["share"], simulated.truth
    window = truth[truth["start_ns"] + truth["dur_ns"] > path.start_ns]
    true = window.groupby("rank")["dur_ns"].sum() / path.dur_ns
    assert abs(share.get(1, 0.0) - true.get(1, 0.0)) < 0.05
    assert share.idxmax() == true.idxmax()


@FEW
@given(program=jobs(max_ranks=16))
def test_the_path_equals_the_truth_of_any_job(program: JobProgram) -> None:
    """Law: tile by tile, wherever the truth is one; clocks are known, and do not drift."""
    simulated = simulate_job(
        replace(program, clocks=tuple(replace(clock, drift_ppb=0) for clock in program.clocks))
    )
    assume(simulated.n_ties == 0)
    path = on_true_clocks(loaded(simulated).window(WHOLE), simulated)
    assert tiles(path.segments, path.start_ns) == tiles(simulated.truth, path.start_ns)


@FEW
@given(program=jobs(max_ranks=6))
def test_the_path_by_rank_segments_equals_the_path_of_one_graph(program: JobProgram) -> None:
    """Law: edge by edge, on estimated clocks that are off by up to 20 ms and drift by 5 ppm."""
    simulated = simulate_job(program)
    assume(simulated.n_ties == 0)
    job = loaded(simulated)
    assert as_edges(job.critical_path()) == merged(job)[["rank", "edge"]].to_numpy().tolist()


@pytest.mark.some(1)
@every_layout
def test_the_two_ways_are_equal_on_training_jobs(layout: dict[str, Any]) -> None:
    """Tensor and pipeline groups, sends and receives among them; also in time."""
    program = training_job(**layout, steps=2, layers=3, straggler=0, max_offset_ns=20_000_000)
    job = loaded(simulate_job(program)).window(WHOLE)
    path, plain = job.critical_path(), merged(job)
    assert as_edges(path) == plain[["rank", "edge"]].to_numpy().tolist()
    assert path.end_ns == plain["end_ns"].iloc[-1]


@FEW
@given(program=jobs(max_ranks=6))
def test_the_path_tiles_the_window_of_the_job(program: JobProgram) -> None:
    """Law: whatever the clocks."""
    path = loaded(simulate_job(program)).critical_path()
    ends = path.segments["start_ns"] + path.segments["dur_ns"]
    assert ends[:-1].tolist() == path.segments["start_ns"][1:].tolist()
    assert int(path.segments["dur_ns"].sum()) == path.dur_ns == path.end_ns - path.start_ns


def test_the_path_of_a_step_ends_with_the_last_rank_of_the_step() -> None:
    """The window of a step is that of its host range on each rank."""
    simulated = simulate_job(training_job(ranks=4, steps=3, layers=3, straggler=2))
    path = loaded(simulated).window("ProfilerStep#1").critical_path()
    steps = [rank.steps.set_index("name").loc["ProfilerStep#1"] for rank in simulated.ranks]
    assert path.dur_ns == pytest.approx(
        max(s.start_ns + s.dur_ns for s in steps) - max(s.start_ns for s in steps), abs=20_000
    )
    assert path.name == "ProfilerStep#1"


def test_the_drawing_has_lanes_by_rank_and_adds_up() -> None:
    """Rank 2 is late by its Python code, which has most of the path."""
    path = hg.load_job(hg.demo_trace("job")).critical_path()
    drawn = path.outline

    assert drawn.lanes == ("rank 2 · thread 4202", "rank 2 · thread 4203", "rank 2 · stream 7")
    assert sum(box.dur_ns for box in drawn.boxes) + drawn.left_out_ns == path.dur_ns
    longest = max(drawn.boxes, key=lambda box: box.dur_ns)
    assert (longest.lane, longest.names[0]) == (0, "ProfilerStep")
