"""A rank that comes late by the same amount in every step: the length of kernels needs no clock."""

from __future__ import annotations

import pytest

from htagraph.job.job import Job
from tests.job.simulated import MACHINE, loaded
from tests.synth.program import (
    Annotation,
    Clock,
    Collective,
    Group,
    JobProgram,
    Launch,
    Op,
    Program,
    Spend,
    Synchronize,
    Work,
)
from tests.synth.simulator import simulate_job
from tests.synth.strategies import warm_up

_STEPS = 6


def ddp(
    late_us: int,
    *,
    n_ranks: int = 3,
    late: int = 1,
    transfer_us: int = 500,
    operation: str = "allreduce",
    clocks: tuple[Clock, ...] = (),
) -> Job:
    """Ranks that compute and meet once in each of some steps; one comes late to each."""
    world = Group("0", tuple(range(n_ranks)))
    kernel = Collective("ncclDevKernel_Generic", 1_000 * transfer_us, world, operation)
    reduce = Op("record_param_comms", (Spend(1_000), Launch(kernel, 20, cost_ns=4_000)))
    compute = Op("aten::mm", (Launch(Work("ampere_sgemm_128x64_nn", 50_000)),))

    def rank(number: int) -> Program:
        # No two ranks take equally long, as no two do.
        spent = Spend(100_000 + 1_000 * (7 * number % 11) + (number == late) * 1_000 * late_us)
        step = (*3 * (compute,), spent, reduce, Synchronize())
        steps = tuple(Annotation(f"ProfilerStep#{one}", step) for one in range(_STEPS))
        return Program((*warm_up(), *steps), MACHINE, number, n_ranks, groups=(world,))

    return loaded(simulate_job(JobProgram(tuple(map(rank, world.ranks)), clocks)))


@pytest.mark.parametrize(
    ("n_ranks", "late_us"),
    [
        *((2, 3_000), (3, 3_000), (8, 3_000)),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in ((3, 300_000), (64, 300_000), (256, 3_000))
        ),
    ],
)
def test_a_rank_that_is_late_by_the_same_in_every_step_is_the_first_cause(
    n_ranks: int, late_us: int
) -> None:
    """Transfers take 0.5 ms; the clocks of all others are off by a second."""
    clocks = tuple(Clock(number * 1_000_000_000 // n_ranks) for number in range(n_ranks))
    job = ddp(late_us, n_ranks=n_ranks, clocks=clocks)
    found, first = job.verdict(), job.stragglers().iloc[0]

    assert found.findings[0].title == "Rank 1 is late"
    assert (first["rank"], first["n_certain"]) == (1, _STEPS)
    waited_ns = _STEPS * (n_ranks - 1) * 1_000 * late_us
    assert first["caused_wait_ns"] == pytest.approx(waited_ns, rel=0.05)


def test_ranks_that_come_together_blame_no_rank() -> None:
    assert ddp(0).stragglers()["n_certain"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(("late_us", "n_certain"), [(200, 0), (320, _STEPS)])
def test_lateness_within_the_transfer_is_not_certain(late_us: int, n_certain: int) -> None:
    """Of a transfer of 0.5 ms, ranks may leave the last 0.25 ms apart."""
    assert ddp(late_us).stragglers()["n_certain"].sum() == n_certain


@pytest.mark.parametrize(("late_us", "n_certain"), [(80, 0), (150, _STEPS)])
def test_short_transfers_leave_a_tenth_of_a_millisecond(late_us: int, n_certain: int) -> None:
    """Of a transfer of 10 us, a hop may be later."""
    assert ddp(late_us, transfer_us=10).stragglers()["n_certain"].sum() == n_certain


def test_members_of_an_all_to_all_do_not_leave_together() -> None:
    """Each ends when its own part has come, up to milliseconds apart."""
    assert ddp(3_000, operation="all_to_all").stragglers()["n_certain"].sum() == 0
