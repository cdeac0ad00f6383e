"""Pipelines whose sends and receives are kernels (NCCL), simulated: stages, and what is slow."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from htagraph.errors import QueryError
from htagraph.job.job import Job
from htagraph.job.loading import load_job
from htagraph.job.pipeline import Pipeline
from htagraph.job.pipeline_what_if import pipeline_what_if
from htagraph.model.kinds import Cause
from tests.job.drawn_pipelines import drawn, gpipe, one_forward_one_backward
from tests.job.simulated import loaded
from tests.synth.layout import Layout
from tests.synth.program import (
    Action,
    Annotation,
    Collective,
    HandOver,
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
from tests.synth.simulated import SimulatedJob
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

STEPS = 2

FOUR = (4, 4, 4)
"""Ranks, stages and micro-batches."""
EIGHT = (8, 8, 8)
TWO_PIPELINES = (8, 4, 4)
ONE_BATCH = (4, 4, 1)


def planted(shape: tuple[int, int, int], slow_stage: int = -1, **more: Any) -> JobProgram:
    """A job of which the kernels of one stage take twice as long."""
    ranks, pipeline, micro_batches = shape
    return training_job(
        ranks=ranks,
        pipeline=pipeline,
        micro_batches=micro_batches,
        slow_stage=slow_stage,
        steps=STEPS,
        layers=2,
        **more,
    )


@cache
def simulated(shape: tuple[int, int, int], slow_stage: int = -1) -> SimulatedJob:
    """The job, run."""
    return simulate_job(planted(shape, slow_stage))


def wall_ns(job: SimulatedJob) -> int:
    """How long it ran, by the simulator's own record."""
    return int(sum(job.truth["dur_ns"]))


def not_slow(job: Job) -> bool:
    """Whether nothing of a pipeline is called slow, and no late rank costs a hundredth."""
    found = job.verdict()
    late = (one for one in found.findings if one.cause == Cause.LATE_RANK)
    is_late = any(100 * (one.cost_ns or 0) > found.dur_ns for one in late)
    return not is_late and all(one.cause != Cause.PIPELINE for one in found.findings)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("shape", "stage"), [(FOUR, 0), (FOUR, 2), (EIGHT, 7), (TWO_PIPELINES, 1), (ONE_BATCH, 3)]
)
def test_a_slow_stage_is_first_and_saves_what_it_costs(
    shape: tuple[int, int, int], stage: int
) -> None:
    """The simulator without it is shorter by that, within 10%."""
    slow = simulated(shape, stage)
    job = loaded(slow)
    found = job.pipeline_savings().query("is_cause")
    assert found[["change", "stage"]].to_numpy().tolist() == [["stage", stage]]
    assert job.verdict().findings[0].title[: len("Stage 2 takes 2.0")] == f"Stage {stage} takes 2.0"
    cost_ns = (wall_ns(slow) - wall_ns(simulated(shape))) / STEPS
    assert found["saves_ns"].iloc[0] == pytest.approx(cost_ns, rel=0.1)


@pytest.mark.some(1)
@pytest.mark.parametrize("shape", [FOUR, EIGHT, TWO_PIPELINES, ONE_BATCH])
def test_equal_stages_are_not_slow(shape: tuple[int, int, int]) -> None:
    """And their steps have the bubble of 1F1B, but for transfers and what runs between actions."""
    job = loaded(simulated(shape))
    _, stages, batches = shape
    table = job.pipeline()
    assert (len(table), not_slow(job)) == (STEPS * shape[0], True)
    assert table["ideal_bubble"].iloc[0] == pytest.approx((stages - 1) / (batches + stages - 1))
    is_idle = ["warm_up_ns", "stall_ns", "drain_ns", "transfer_ns"]
    share = table[is_idle].sum(axis=1) / (table["dur_ns"] - table["after_ns"])
    assert share.max() == pytest.approx(table["ideal_bubble"].iloc[0], abs=0.05)


def test_stages_follow_from_peers() -> None:
    """Of eight ranks in two pipelines of four, by pairs."""
    schedule = loaded(simulated(TWO_PIPELINES)).pipeline_schedule()
    held = schedule[["replica", "stage", "rank"]].drop_duplicates().sort_values("rank")
    assert held["stage"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert held["replica"].tolist() == [0, 1] * 4


def test_shards_of_a_stage_send_after_they_met() -> None:
    """With tensor parallelism a send waits for an all-reduce, and that for the compute stream."""
    job = loaded(simulate_job(planted((8, 4, 2), 1, tensor=2)))
    found = job.pipeline_savings().query("is_cause")
    assert found[["change", "stage"]].to_numpy().tolist() == [["stage", 1]]


def test_clocks_of_hosts_may_differ() -> None:
    """By 20 ms, with a drift: actions are compared in common time."""
    job = loaded(simulate_job(planted(FOUR, 2, max_offset_ns=20_000_000, max_drift_ppb=5_000)))
    assert job.pipeline_savings().query("is_cause")["stage"].tolist() == [2]


@pytest.mark.filterwarnings("ignore::htagraph.errors.IncompleteTraceWarning")
def test_without_peers_there_are_no_stages() -> None:
    """Nothing tells who is before a rank, and who after it."""
    program = planted(FOUR, 2)
    ranks = tuple(replace(rank, metadata="none") for rank in program.ranks)
    assert loaded(simulate_job(replace(program, ranks=ranks))).pipeline().empty


@pytest.mark.slow
def test_stages_that_wait_for_their_host_are_not_compared() -> None:
    """The first stage has no input to wait for, during which the host gets ahead of the device."""
    job = loaded(simulate_job(planted(FOUR, fault="small_kernels")))
    assert job.pipeline().empty
    assert Cause.PIPELINE not in {one.cause for one in job.verdict().findings}


def passed(operation: str, layout: Layout, sender: int, receiver: int) -> Op:
    """A send or receive, after all compute so far."""
    kernel = Collective(
        "ncclDevKernel_SendRecv", 5_000, layout.pair(sender, receiver), operation, root=sender
    )
    order = (Record("ready"), StreamWait("ready", 24))
    return Op("record_param_comms", (*order, Launch(kernel, 24), Record("done", 24)))


def acted(layout: Layout, sequence: int, gets: int, gives: int) -> tuple[Action, ...]:
    """A receive, the forward of an operator, or its backward for a negative number, and a send."""
    rank, launch = layout.rank, (Spend(2_000), Launch(Work("ampere_sgemm_128x64_nn", 400_000)))
    name = "aten::mm" if sequence > 0 else "autograd::engine::evaluate_function: MmBackward0"
    inner = Op("MmBackward0", launch, abs(sequence), is_backward=True)
    compute = Op(name, launch, sequence) if sequence > 0 else Op(name, (inner,))
    before = (passed("recv", layout, gets, rank), StreamWait("done", 7)) if gets >= 0 else ()
    after = (passed("send", layout, rank, gives),) if gives >= 0 else ()
    return (*before, compute, *after)


@pytest.mark.some(1)
@pytest.mark.parametrize(("n_ranks", "n_chunks", "n_rows"), [(3, 1, 3), (2, 2, 0), (3, 2, 0)])
def test_a_rank_with_two_stages_is_not_understood(n_ranks: int, n_chunks: int, n_rows: int) -> None:
    """Interleaved, the first rank receives in a forward: from the last one, or from the second."""
    n_stages, programs = n_ranks * n_chunks, []
    for rank in range(n_ranks):
        layout = Layout(rank, n_ranks, pipeline=n_ranks)
        around = {
            chunk: (
                (rank - 1) % n_ranks if chunk * n_ranks + rank > 0 else -1,
                (rank + 1) % n_ranks if chunk * n_ranks + rank < n_stages - 1 else -1,
            )
            for chunk in range(n_chunks)
        }
        forward = [acted(layout, chunk + 1, *around[chunk]) for chunk in around]
        backward = [acted(layout, -chunk - 1, *around[chunk][::-1]) for chunk in [*around][::-1]]
        body = (
            *(action for one in forward for action in one),
            HandOver(tuple(action for one in backward for action in one)),
            Spend(5_000),
        )
        steps = (Annotation("ProfilerStep#0", body), Synchronize())
        programs.append(Program(steps, rank=rank, world_size=n_ranks, device=rank))
    assert len(loaded(simulate_job(JobProgram(tuple(programs)))).pipeline()) == n_rows


@pytest.mark.slow
def test_a_pipeline_without_one_of_its_ranks_is_left_out() -> None:
    """Of two pipelines the other one is whole."""
    with tempfile.TemporaryDirectory() as folder:
        simulated(TWO_PIPELINES).write(folder)
        files = sorted(Path(folder).iterdir())
        del files[2]
        found = load_job(files).pipeline()
    assert sorted(found["rank"].unique()) == [1, 3, 5, 7]


def uneven(stage: int, phase: str, number: int) -> float:
    """Stages and micro-batches differ."""
    return (10.0 if phase == "F" else 20.0) + 3 * stage + (number * 7) % 5


def even(stage: int, phase: str, number: int) -> float:
    """A forward of 10 ms, a backward of 20 ms."""
    del stage, number
    return 10.0 if phase == "F" else 20.0


def asked(
    pipeline: Pipeline, schedule: str = "all", chunks: int = 0, n_micro_batches: int = 0
) -> pd.DataFrame:
    """The answer, by schedule."""
    return pipeline_what_if(pipeline, schedule, chunks, n_micro_batches).set_index("schedule")


def both_ms(pipeline: Pipeline, schedule: str, **options: Any) -> list[float]:
    """Least and most of a schedule."""
    row = asked(pipeline, schedule, **options).loc[schedule]
    return [row["least_ns"] / 1e6, row["most_ns"] / 1e6]


def test_what_was_recorded_takes_as_long_as_recorded() -> None:
    """To the nanosecond, with uneven work, transfers and two replicas of which one is slow."""
    one = drawn(4, 8, uneven, transfer_ms=2, n_replicas=2, slow_rank=5)
    row = asked(one).loc["1f1b"]
    assert (row["is_recorded"], row["least_ns"], row["most_ns"]) == (
        True,
        row["step_ns"],
        row["step_ns"],
    )
    assert not asked(one).loc["gpipe", "is_recorded"]


@pytest.mark.parametrize(
    ("order", "other", "name"),
    [(gpipe, one_forward_one_backward, "1f1b"), (one_forward_one_backward, gpipe, "gpipe")],
)
def test_another_order_takes_as_long_as_drawn_in_it(order: Any, other: Any, name: str) -> None:
    """With uneven stages and micro-batches, GPipe and 1F1B differ."""
    length = drawn(4, 8, uneven, order=other, transfer_ms=2).step_ns.mean() / 1e6
    assert both_ms(drawn(4, 8, uneven, order=order, transfer_ms=2), name) == [length, length]


def test_twice_the_micro_batches_are_half_as_long() -> None:
    """Free transfers: (16 + 3) pairs of 15 ms."""
    assert both_ms(drawn(4, 8, even), "1f1b", n_micro_batches=16) == [285, 285]


def test_it_is_open_whether_transfers_are_split() -> None:
    """Six transfers of 4 ms are on the way of the first and the last micro-batch, or of 2 ms."""
    least, most = both_ms(drawn(4, 1, even, transfer_ms=4), "1f1b", n_micro_batches=1)
    assert least == most == 4 * 30 + 6 * 4
    least, most = both_ms(drawn(4, 8, even, transfer_ms=4), "gpipe", n_micro_batches=16)
    assert [least, most] == [285 + 6 * 2, 285 + 6 * 4]


def test_it_is_open_whether_time_in_python_is_split() -> None:
    """A fifth of 30 ms per micro-batch: of half a micro-batch, 15 ms, or 12 + 6."""
    least, most = both_ms(drawn(4, 8, even, python_share=0.2), "1f1b", n_micro_batches=16)
    assert [least, most] == [19 * 15, 19 * 18]


def test_chunks_divide_the_bubble() -> None:
    """Eight micro-batches of 30 ms, and three bubbles of half of that."""
    assert both_ms(drawn(4, 8, even), "interleaved", chunks=2) == [285, 285]
    assert asked(drawn(4, 8, even), chunks=2)["ideal_bubble"].to_list() == [
        pytest.approx(1.5 / 9.5)
    ]


def test_two_chunks_share_the_layers_in_their_order() -> None:
    """The slow last stage becomes the last two of eight, on two ranks: no rank has all of it."""
    slow = drawn(4, 8, lambda s, p, n: even(s, p, n) * (3 if s == 3 else 1))
    assert both_ms(slow, "interleaved")[1] < 0.8 * slow.step_ns.mean() / 1e6


def test_what_cannot_be_tried_is_told() -> None:
    """Only what was recorded apart can be moved apart."""
    one = drawn(4, 8, even)
    for options, told in (
        ({"schedule": "zero_bubble"}, "weights were not recorded apart"),
        ({"schedule": "1f1b", "chunks": 2}, "1f1b has one chunk"),
        ({"schedule": "interleaved", "chunks": 1}, "several chunks"),
        ({"schedule": "interleaved", "n_micro_batches": 9}, "no equal rounds of 4 ranks"),
        ({"n_micro_batches": 125_001}, "too many"),
    ):
        with pytest.raises(QueryError, match=told):
            asked(one, **options)
    assert len(asked(one, n_micro_batches=16)) == 3


def test_without_backwards_no_schedule_is_asked() -> None:
    """Serving runs forwards only."""
    one = drawn(2, 4, even)
    acts = one.actions[one.actions["phase"] == "F"].reset_index(drop=True)
    assert asked(replace(one, actions=acts)).empty
