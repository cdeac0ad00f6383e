"""What the training programs are bound by, and how their ranks are grouped."""

from __future__ import annotations

import pytest

from tests.synth.simulated import SimulatedRank
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import Fault, training_job, training_rank


def shares(rank: SimulatedRank) -> dict[str, float]:
    """The share of each bound in the true path."""
    by_bound = rank.truth.groupby("bound")["dur_ns"].sum()
    return (by_bound / by_bound.sum()).to_dict()


@pytest.mark.parametrize(
    ("fault", "bound"),
    [
        ("none", "compute"),
        ("dataloader", "data_loading"),
        ("small_kernels", "host"),
        ("exposed_allreduce", "communication"),
        ("synchronous_copy", "memory"),
    ],
)
def test_a_fault_is_what_the_run_is_bound_by(fault: Fault, bound: str) -> None:
    """More than half of the true path goes to it."""
    assert shares(simulate(training_rank(fault=fault)))[bound] > 0.5


def test_ranks_are_grouped_as_in_megatron() -> None:
    """Eight ranks, two per layer, two stages: neighbors, every other rank, and stage neighbors."""
    job = training_job(ranks=8, tensor=2, pipeline=2)
    by_description: dict[str, set[tuple[int, ...]]] = {}
    for program in job.ranks:
        for group in program.groups:
            by_description.setdefault(group.description, set()).add(group.ranks)

    assert by_description == {
        "default_pg": {(0, 1, 2, 3, 4, 5, 6, 7)},
        "mesh_tp": {(0, 1), (2, 3), (4, 5), (6, 7)},
        "mesh_dp": {(0, 2), (1, 3), (4, 6), (5, 7)},
        "mesh_pp": {(0, 4), (1, 5), (2, 6), (3, 7)},
    }


@pytest.mark.parametrize("delay", ["python", "op", "data_loading", "kernel"])
def test_a_straggler_comes_last(delay: str) -> None:
    """Whatever makes it late, the others wait for it most."""
    program = training_job(ranks=4, straggler=2, delay=delay, delay_ns=8_000_000)  # type: ignore[arg-type]
    job = simulate_job(program)
    waits = job.collectives.groupby("last_rank")["wait_ns"].sum()

    assert job.culprit == 2
    assert waits.idxmax() == 2
    assert waits[2] > 0.9 * waits.sum()
