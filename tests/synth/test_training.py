"""What the training programs are bound by, and how their ranks are grouped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from htagraph.errors import QueryError
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


def test_syncs_in_the_loop_are_what_the_run_is_bound_by() -> None:
    """Ten reads a layer: each waits for the device, and nothing is launched meanwhile."""
    rank = simulate(training_rank(fault="sync_in_loop"))
    reads = [row for row in rank.rows if row.name == "aten::item"]
    truth = rank.truth
    inside = [
        any(read.ts_ns <= start < read.end_ns for read in reads) for start in truth["start_ns"]
    ]

    assert len(reads) == 10 * 6 * 3
    assert truth["dur_ns"][inside].sum() > 0.5 * truth["dur_ns"].sum()


def test_a_full_queue_makes_the_host_late() -> None:
    """On a machine with room for all launches it takes 2 ms less per step; no launch waits."""
    program = training_rank(fault="full_queue", layers=2)
    roomy = replace(program, machine=replace(program.machine, queue_limit=1_000_000))
    wall_ns, roomy_wall_ns = (simulate(made).truth["dur_ns"].sum() for made in (program, roomy))
    blocked, roomy_blocked = (
        [
            row
            for row in simulate(made).rows
            if row.name == "cudaLaunchKernel" and row.dur_ns > 1_000_000
        ]
        for made in (program, roomy)
    )

    assert wall_ns > roomy_wall_ns + 3 * 2_000_000
    assert (len(blocked), len(roomy_blocked)) == (3, 0)


def test_one_seed_is_one_trace() -> None:
    """Tests and demos must not change by themselves."""
    first, again, other = (simulate(training_rank(seed=seed)).to_json() for seed in (5, 5, 6))

    assert first == again
    assert first != other


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


def test_pipeline_stages_wait_for_each_other() -> None:
    """The second stage receives activations of the first, and the first gradients."""
    job = simulate_job(training_job(ranks=2, pipeline=2, steps=1))
    transfers = job.collectives[job.collectives["operation"].isin(["send", "recv"])]
    waiting = transfers[transfers["wait_ns"] > 0]

    assert sorted(
        zip(waiting["rank"], waiting["last_rank"], waiting["operation"], strict=True)
    ) == [
        (0, 1, "recv"),
        (1, 0, "recv"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ranks": 4, "tensor": 3}, "4 ranks cannot be 3 x 1"),
        ({"ranks": 4, "straggler": 4}, "there is no rank 4"),
    ],
)
def test_a_job_that_cannot_be_is_refused(arguments: dict[str, int], message: str) -> None:
    """With what is wrong."""
    with pytest.raises(QueryError, match=message):
        training_job(**arguments)  # type: ignore[arg-type]


def test_an_unknown_fault_is_refused() -> None:
    """The hint lists those there are."""
    with pytest.raises(QueryError, match="dataloader"):
        training_rank(fault="gremlins")  # type: ignore[arg-type]
