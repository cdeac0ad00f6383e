"""Random programs reach every bound of a path, so that laws over them are not empty."""

from __future__ import annotations

import pytest
from hypothesis import Phase, find, settings

from tests.synth.simulator import simulate, simulate_job
from tests.synth.strategies import expert_jobs, jobs, programs

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


@pytest.mark.parametrize("half", ["", "receive"])
def test_some_expert_parallel_job_waits_across_ranks(half: str) -> None:
    """In dispatches of one kernel, and in those of two halves."""
    found = find(
        expert_jobs(max_ranks=2, max_layers=2),
        lambda program: (
            simulate_job(program).truth["rank"].nunique() > 1
            and f"half={half!r}" in repr(program.ranks[0].body)
        ),
        settings=QUICK,
    )

    assert simulate_job(found).collectives["wait_ns"].max() > 0
