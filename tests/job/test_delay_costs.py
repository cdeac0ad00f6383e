"""Delay costs: every wait is charged to what made the late rank late, however far up the line."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given

from htagraph.errors import IncompleteTraceWarning
from htagraph.job import delay_costs
from htagraph.job.job import Job
from htagraph.job.loading import load_job
from tests.job.simulated import FEW, MACHINE, WORLD, loaded, meet, three
from tests.synth.program import Action, Group, JobProgram, Op, Program, Spend, Synchronize
from tests.synth.simulated import SimulatedJob
from tests.synth.simulator import simulate_job
from tests.synth.strategies import jobs
from tests.synth.training import Delay, training_job

MS = 1_000_000
LEFT, RIGHT = Group("1", (0, 1)), Group("2", (1, 2))
TOGETHER = (meet(), Synchronize())
LOAD = Op("load", (Spend(10 * MS),))
NAMES: dict[Delay, str] = {
    "python": "ProfilerStep",
    "op": "aten::unique_consecutive",
    "data_loading": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "kernel": "ampere_sgemm_128x64_nn",
}


def costs(job: Job) -> list[tuple[int, str, int, int]]:
    """Rank, name, direct and propagated ns of the causes that cost more than 100 us."""
    found = job.delay_costs().query("delay_ns > 100_000")
    return list(
        found[["rank", "name", "direct_ns", "propagated_ns"]].itertuples(index=False, name=None)
    )


def work(ns: int = 40_000) -> Op:
    """An operator that every rank runs."""
    return Op("aten::work", (Spend(ns),))


def chain(*first: Action) -> SimulatedJob:
    """Rank 0 meets rank 1, which then meets rank 2; rank 0 does something of its own first."""
    bodies = (
        (*TOGETHER, *first, meet(group=LEFT), Synchronize()),
        (*TOGETHER, meet(group=LEFT), Synchronize(), work(), meet(group=RIGHT), Synchronize()),
        (*TOGETHER, work(), meet(group=RIGHT), Synchronize()),
    )
    groups = (WORLD, LEFT, RIGHT)
    return simulate_job(
        JobProgram(
            tuple(
                Program(body, MACHINE, rank, 3, groups=groups) for rank, body in enumerate(bodies)
            )
        )
    )


def test_who_was_late_is_charged_with_every_wait_for_it() -> None:
    """Rank 1 loads for 10 ms; ranks 0 and 2 wait for it, 10 ms each."""
    job = loaded(three((*TOGETHER, meet()), (*TOGETHER, LOAD, meet()), (*TOGETHER, meet())))

    assert costs(job) == [(1, "load", 20 * MS, 0)]


def test_a_wait_is_charged_through_the_rank_that_waited_itself() -> None:
    """Rank 0 loads for 10 ms: rank 1 waits, and so comes late to rank 2, which waits as long."""
    assert costs(loaded(chain(LOAD))) == [(0, "load", 10 * MS, 10 * MS)]


def test_of_too_many_waits_the_longest_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 2 waits for 10 ms, rank 0 for 7; where one wait is the most, nobody is told the 7."""
    monkeypatch.setattr(delay_costs, "MOST_COMPARED", 1)
    bodies = ((*TOGETHER, work(3 * MS), meet()), (*TOGETHER, LOAD, meet()), (*TOGETHER, meet()))

    assert costs(loaded(three(*bodies))) == [
        (1, "load", 10 * MS, 0),
        (-1, "(not among the 1 longest waits)", 7 * MS, 0),
    ]


def test_who_only_waited_is_charged_with_what_it_did_for_longer() -> None:
    """Rank 1 comes to rank 2 after a collective of 10 us; the rest of the wait is not its own."""
    late = loaded(chain(LOAD)).delay_costs().query("rank == 1")

    assert late.loc[late["bound"] == "communication", "direct_ns"].tolist() == [10_000]
    assert late["delay_ns"].sum() < 30_000


def test_what_the_other_rank_did_as_long_makes_nobody_late() -> None:
    """Ranks 0 and 1 both load; rank 0 is charged with the 3 ms that it works for longer."""
    job = loaded(
        three(
            (*TOGETHER, LOAD, work(3 * MS), meet()), (*TOGETHER, LOAD, meet()), (*TOGETHER, meet())
        )
    )

    assert [(rank, name) for rank, name, *_ in costs(job)] == [(0, "load"), (0, "aten::work")]
    # Rank 1 waits for 3 ms, rank 2 for 13, of which 10 are due to the load.
    assert [direct for *_, direct, _ in costs(job)] == [10 * MS, 6 * MS]


def test_waits_before_both_ranks_are_recorded_are_charged_to_nobody() -> None:
    """Rank 1 is recorded from 20 ms on, when rank 0 waits; later, rank 1 waits for a load."""
    together = (meet(group=LEFT), Synchronize())
    bodies = ((0, (*together, LOAD, *together)), (20 * MS, (*together, *together)))
    ranks = tuple(
        Program(body, MACHINE, rank, 2, groups=(LEFT,), start_ns=start_ns)
        for rank, (start_ns, body) in enumerate(bodies)
    )

    assert costs(loaded(simulate_job(JobProgram(ranks)))) == [
        (-1, "(before both were recorded)", 20 * MS, 0),
        (0, "load", 10 * MS, 0),
    ]


@pytest.mark.some(1)
@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("delay", get_args(Delay))
def test_a_planted_straggler_is_charged_with_its_delay(delay: Delay, tensor: int) -> None:
    """Whatever the reason, with and without tensor parallelism: four fifths of what is charged."""
    job = loaded(
        simulate_job(training_job(steps=2, layers=3, tensor=tensor, straggler=1, delay=delay))
    )
    charged = job.delay_costs().query("rank >= 0")
    planted = charged.query("rank == 1 and name == @NAMES[@delay]")

    assert planted["delay_ns"].sum() > 0.8 * charged["delay_ns"].sum()


def test_costs_by_stage_are_sums_of_its_ranks() -> None:
    """Rank 1 of four is late, and of stage 0; what nobody is charged with stays apart."""
    program = training_job(steps=2, layers=3, tensor=2, pipeline=2, straggler=1, delay="op")
    job = loaded(simulate_job(program))
    by_rank, by_stage = job.delay_costs(), job.delay_costs(by="stage")
    first = by_stage.iloc[0]
    assert (first["part"], first["rank"], first["name"]) == ("0", 1, NAMES["op"])
    of_part = by_rank["rank"].map({-1: "", 0: "0", 1: "0", 2: "1", 3: "1"})
    assert (
        by_stage.groupby("part")["delay_ns"].sum().to_dict()
        == by_rank.groupby(of_part)["delay_ns"].sum().to_dict()
    )


@FEW
@given(program=jobs())
def test_costs_add_up_to_the_waits_of_every_job(program: JobProgram) -> None:
    """To the nanosecond, as stragglers count them; and no rank is charged with its own directly."""
    job = loaded(simulate_job(program))
    found, waits = job.delay_costs(), job.collectives()

    assert found["delay_ns"].sum() == job.stragglers()["own_wait_ns"].sum()
    assert (found["delay_ns"] == found["direct_ns"] + found["propagated_ns"]).all()
    assert (found["delay_ns"] > 0).all()
    for rank, direct_ns in found[found["rank"] >= 0].groupby("rank")["direct_ns"].sum().items():
        others = waits[(waits["last_rank"] == rank) & (waits["rank"] != rank)]
        assert direct_ns <= others["wait_ns"].sum()


def test_waits_of_a_rank_that_cannot_be_read_any_more_are_charged_to_nobody(tmp_path: Path) -> None:
    """Rank 2 is gone after loading: rank 0 still says that it waited for the load of rank 1."""
    bodies = ((*TOGETHER, meet()), (*TOGETHER, LOAD, meet()), (*TOGETHER, meet()))
    three(*bodies).write(tmp_path)
    job = load_job(tmp_path, on_error="skip")
    for path in (job.summaries[2].path, job.summaries[2].graph.path):
        path.unlink()
    with pytest.warns(IncompleteTraceWarning, match="rank 2 is left out"):
        found = costs(job)

    assert found == [(-1, "(rank not read)", 10 * MS, 0), (1, "load", 10 * MS, 0)]
