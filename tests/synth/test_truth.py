"""The truth is a path, and the graph finds it."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given

from htagraph import Trace
from htagraph.model.kinds import Bound
from tests.synth.program import Program
from tests.synth.simulator import simulate
from tests.synth.strategies import programs
from tests.synth.training import Fault, training_rank
from tests.synth.truth import Mark, tiles

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


def test_time_before_any_known_cause_is_unexplained() -> None:
    """The window begins before the first mark."""
    assert [tile[:3] for tile in tiles(Mark(50, None, Bound.HOST), 20)] == [
        (20, 50, Bound.UNKNOWN_WAITS)
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
