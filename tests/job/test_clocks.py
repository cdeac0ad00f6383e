"""Clocks of simulated ranks: what is estimated, how sure it is, and who is blamed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.job.clocks import fit_clocks
from htagraph.job.job import Job
from tests.job.simulated import FEW, loaded, meet, three
from tests.synth.program import Clock, JobProgram, Spend
from tests.synth.simulated import SimulatedJob
from tests.synth.simulator import simulate_job
from tests.synth.strategies import jobs
from tests.synth.training import training_job

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")


def with_truth(job: Job, simulated: SimulatedJob) -> pd.DataFrame:
    """The members of collectives as the job finds them, beside the truth."""
    true = simulated.collectives[["rank", "event", "wait_ns", "last_rank"]]
    return job.collectives().merge(
        true, on=["rank", "event"], suffixes=("", "_true"), validate="one_to_one"
    )


def offset_errors(job: Job, simulated: SimulatedJob) -> list[int]:
    """Largest error of the common times of each rank's collectives, against rank 0."""
    true = simulated.collectives.merge(
        job.collectives()[["rank", "event", "end_ns"]], on=["rank", "event"], suffixes=("_true", "")
    )
    wrong = (true["end_ns"] - true["end_ns_true"]).groupby(true["rank"]).agg(["min", "max"])
    return np.abs(wrong.to_numpy()).max(axis=1).tolist()


def jitter(simulated: SimulatedJob) -> int:
    """The largest difference between ranks of the ends of one collective."""
    ends = simulated.collectives.groupby(["group", "seq"])["end_ns"]
    return int((ends.max() - ends.min()).max())


def test_clocks_that_are_off_are_brought_together() -> None:
    """Rank 1 is 5 ms early, rank 2 is 7 ms late; all end together."""
    body = (meet(), Spend(100_000), meet())
    job = loaded(three(body, body, body, clocks=(Clock(), Clock(-5_000_000), Clock(7_000_000))))
    assert job.clocks["offset_ns"].tolist() == [0, 5_000_000, -7_000_000]
    assert job.clocks["is_feasible"].tolist() == [True, True, True]


def met(match: int, ends_ns: dict[int, int]) -> pd.DataFrame:
    """The members of a collective that all ranks entered at once, by when it ended on each."""
    rows = [
        {
            "rank": rank, "match": match, "arrived_ns": end_ns - 1_000, "end_ns": end_ns,
            "waits": True, "is_awaited": True, "is_rendezvous": True, "peer": -1,
            "is_partial": False, "is_on_host": False, "found_by": "sequence number",
            "operation": "all_reduce",
        }
        for rank, end_ns in ends_ns.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_ranks_that_fit_each_other_but_not_the_first_have_clocks() -> None:
    """Rank 0 has most collectives, and its clock jumps by 100 ms against those of the others."""
    second, jump = 1_000_000_000, 100_000_000
    apart = [met(n, {0: n * second + n % 2 * jump, 2: n * second}) for n in range(5)]
    also = [met(5 + n, {0: n * second + n % 2 * jump, 3: n * second}) for n in range(5)]
    together = [met(10 + n, {1: n * second + 7, 2: n * second}) for n in range(3)]
    clocks = fit_clocks(pd.concat([*apart, *also, *together]), [0, 1, 2, 3]).frame()

    assert clocks["aligned_with"].tolist() == [-1, 2, 0, 0]
    assert clocks["is_feasible"].tolist() == [True, True, False, False]


def test_a_wait_shorter_than_the_clocks_are_uncertain_blames_nobody() -> None:
    """Transfers of 10 us leave 20 us open: lateness of 3 us may be the clocks', 100 us is not."""
    bodies = tuple(
        (meet(), Spend(50_000 + late_ns), meet(), Spend(200_000), meet())
        for late_ns in (0, 3_000, 0)
    )
    assert not loaded(three(*bodies)).collectives()["is_certain"].any()
    bodies = tuple(
        (meet(), Spend(50_000 + late_ns), meet(), Spend(200_000), meet())
        for late_ns in (0, 100_000, 0)
    )
    certain = loaded(three(*bodies)).collectives().query("is_certain")
    assert certain["last_rank"].unique().tolist() == [1]


def test_drift_is_found_where_there_is_much_of_it() -> None:
    """Rank 1 gains 5 ppm: 100 us in the 20 s of ten collectives."""
    body = tuple(action for _ in range(10) for action in (Spend(2_000_000_000), meet()))
    job = loaded(three(body, body, body, clocks=(Clock(), Clock(0, 5_000), Clock())))
    assert job.clocks["drift_ppb"].tolist() == [0, -5_000, 0]
    assert (
        job.collectives()["end_ns"]
        .groupby(job.collectives()["match"])
        .agg(lambda ends: ends.max() - ends.min())
        .max()
        <= 2
    )


def test_no_drift_is_made_up() -> None:
    """The ends of a training job differ by a few microseconds; that is no drift."""
    job = loaded(simulate_job(training_job(ranks=4, steps=3, layers=4, jitter_ns=3_000, seed=5)))
    assert job.clocks["drift_ppb"].tolist() == [0, 0, 0, 0]


@pytest.mark.slow
@FEW
@given(program=jobs(max_ranks=16, max_collectives=8, max_offset_ns=1_000_000_000))
def test_the_last_arriver_is_right_wherever_somebody_is_blamed(program: JobProgram) -> None:
    """Law: all waits beyond the uncertainty of clocks; offsets up to a second, drift 5 ppm."""
    simulated = simulate_job(program)
    found = with_truth(loaded(simulated), simulated)
    blamed = found[found["is_certain"]]
    assert blamed["last_rank"].tolist() == blamed["last_rank_true"].tolist()
    assert (blamed["wait_ns_true"] > 0).all()


@FEW
@given(program=jobs(max_ranks=8, max_collectives=8))
def test_the_true_wait_is_within_the_error_that_is_reported(program: JobProgram) -> None:
    """Law: no wait is shorter than the one reported, less its error."""
    simulated = simulate_job(program)
    found = with_truth(loaded(simulated), simulated)
    waited = found[found["wait_ns"] > 0]
    assert (waited["wait_ns_true"] >= waited["wait_ns"] - waited["error_ns"]).all()


@FEW
@given(program=jobs(max_ranks=8, max_collectives=8))
def test_clocks_are_wrong_by_no_more_than_the_jitter(program: JobProgram) -> None:
    """Law: per step on the way to rank 0, off by no more than ends of collectives differ."""
    simulated = simulate_job(program)
    job = loaded(simulated)
    parents = dict(zip(job.clocks["rank"], job.clocks["aligned_with"], strict=True))

    def steps(rank: int) -> int:
        return 1 + steps(parents[rank]) if parents[rank] >= 0 else 0

    drift_ns = (
        2
        + int(simulated.collectives["end_ns"].max() - program.ranks[0].start_ns)
        * 5_000
        // 1_000_000_000
    )
    each_ns = jitter(simulated) + 2 * drift_ns
    allowed = [(steps(rank) + steps(0) or 1) * each_ns for rank in parents]
    assert all(
        error <= limit for error, limit in zip(offset_errors(job, simulated), allowed, strict=True)
    )


@pytest.mark.slow
@FEW
@given(ranks=st.integers(2, 16), seed=st.integers(0, 1_000), late=st.integers(0, 15))
def test_the_planted_straggler_is_named(ranks: int, seed: int, late: int) -> None:
    """Law: 2 ms in every step, with clocks off by 20 ms and drifting by 5 ppm."""
    program = training_job(
        ranks=ranks,
        steps=2,
        layers=3,
        straggler=late % ranks,
        max_offset_ns=20_000_000,
        max_drift_ppb=5_000,
        jitter_ns=2_000,
        seed=seed,
    )
    top = loaded(simulate_job(program)).stragglers().iloc[0]
    assert (top["rank"], top["cause_bound"]) == (late % ranks, "untraced_code")
