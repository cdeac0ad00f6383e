"""Ranks of which no collectives could be matched are judged by themselves."""

from __future__ import annotations

from htagraph.job.job import Job
from tests.job.simulated import MACHINE, loaded
from tests.synth.program import (
    Action,
    Annotation,
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

_COMPUTE = Op("aten::mm", (Launch(Work("ampere_sgemm_128x64_nn", 3_000_000)), Synchronize()))
_WAITING = Op("aten::tolist", (Spend(3_000_000),))


def processes(*steps: Action) -> Job:
    """Ranks of a job, four steps each, that never meet."""
    ranks = tuple(
        Program(
            (*warm_up(), *(Annotation(f"ProfilerStep#{n}", 10 * (step,)) for n in range(4))),
            *(MACHINE, rank, len(steps)),
        )
        for rank, step in enumerate(steps)
    )
    return loaded(simulate_job(JobProgram(ranks)))


def test_what_all_ranks_agree_on_is_the_headline() -> None:
    """Two processes that compute; who waits for whom is unknown, and it says so."""
    job = processes(_COMPUTE, _COMPUTE)
    verdict = job.verdict()
    first, alone = verdict.findings[0], job[0].verdict().findings[0]

    assert (first.cause, f"{first.share:.2f}") == (alone.cause, f"{alone.share:.2f}")
    assert first.cause == "GPU compute"
    assert verdict.damage[0] == (
        "No collectives could be matched, so who waits for whom is unknown; each rank is judged "
        "by itself: ranks 0, 1: GPU compute 100%."
    )


def test_ranks_that_do_not_agree_have_no_verdict() -> None:
    """One computes, one runs Python: each is named, none leads."""
    verdict = processes(_COMPUTE, _WAITING).verdict()

    assert verdict.findings == ()
    assert "rank 0: GPU compute 100%; rank 1: CPU work 100%." in verdict.withheld


def test_ranks_that_meet_are_one_job() -> None:
    """Nothing is judged rank by rank, and nothing is said of that."""
    assert processes(_COMPUTE).alone == {}
