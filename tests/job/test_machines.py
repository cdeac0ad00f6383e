"""Blame that fits: ranks are compared with others of their stage, hosts are named as machines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from htagraph.job.job import Job
from htagraph.job.loading import load_job
from htagraph.lookup.find_window import WHOLE
from tests.job.simulated import MACHINE, loaded, meet
from tests.synth.program import (
    Action,
    Annotation,
    Group,
    JobProgram,
    Op,
    Program,
    Spend,
    Synchronize,
)
from tests.synth.simulated import SimulatedJob
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

WORLD = Group("0", (0, 1, 2, 3))
STEPS = 4


def four(own_ns: Callable[[int, int], int], *groups: Group) -> SimulatedJob:
    """Four ranks that work, each for a time of its own in each step, and meet."""

    def step(rank: int, number: int) -> Annotation:
        work = Op("aten::work", (Spend(own_ns(rank, number)),))
        # Ranks leave together, but for a hair: the clocks of hosts are found.
        again = (Spend(1_000 * ((rank + number) % 4)), meet(group=WORLD), Synchronize())
        body: tuple[Action, ...] = (work, meet(group=WORLD), Synchronize(), *again)
        return Annotation(f"ProfilerStep#{number}", body)

    def program(rank: int) -> Program:
        mine = tuple(one for one in groups if rank in one.ranks)
        body = (meet(group=WORLD), Synchronize(), *(step(rank, n) for n in range(STEPS)))
        return Program(body, MACHINE, rank, 4, start_ns=0, base_time_ns=0, groups=(WORLD, *mine))

    return simulate_job(JobProgram(tuple(program(rank) for rank in range(4))))


def on_hosts(simulated: SimulatedJob, folder: Path, *hosts: str) -> Job:
    """The job as files that name these hosts."""
    for file, host in zip(simulated.write(folder), hosts, strict=True):
        document = json.loads(gzip.decompress(file.read_bytes()))
        document["host_name"] = host
        file.write_bytes(gzip.compress(json.dumps(document).encode()))
    return load_job(folder)


STAGES = (Group("1", (0, 2), "mesh_pp"), Group("2", (1, 3), "mesh_pp"))


def late_titles(job: Job) -> list[str]:
    """Titles of the findings on lateness that are more than a hundredth of the path."""
    found = job.verdict().findings
    return [one.title for one in found if one.cause == "late rank" and one.share > 0.01]


def test_a_stage_with_more_work_is_not_late() -> None:
    """Ranks 2 and 3 are the second stage; they work for 200 us longer, both."""
    longer = [0, 0, 200_000, 200_000]
    unknown = loaded(four(lambda rank, _: 100_000 + longer[rank] + 30_000 * (rank == 3)))
    staged = loaded(four(lambda rank, _: 100_000 + longer[rank], *STAGES))
    assert unknown.layout()["stage"].tolist() == [-1] * 4
    assert late_titles(unknown) == ["Rank 3 is late"]
    assert staged.layout()["stage"].tolist() == [0, 0, 1, 1]
    assert late_titles(staged) == []


def test_a_rank_is_late_against_its_own_stage() -> None:
    """Of the 350 us that the first stage waits, only 150 are rank 3's own."""
    longer = [0, 0, 200_000, 350_000]
    job = loaded(four(lambda rank, _: 100_000 + longer[rank], *STAGES))
    late = job.window(WHOLE).critical_path().attributed_time.query("cause == 'late rank'")
    assert late["rank"].unique().tolist() == [3]
    assert late["dur_ns"].sum() == pytest.approx(STEPS * 150_000, rel=0.02)


def test_a_slow_host_is_named_as_a_machine(tmp_path: Path) -> None:
    """Its two ranks are late together: neither is alone to blame, and both are repaired."""
    longer = [0, 0, 300_000, 310_000]
    simulated = four(lambda rank, _: 100_000 + longer[rank])
    job = on_hosts(simulated, tmp_path, "node-0", "node-0", "node-1", "node-1").window(WHOLE)
    [found] = [one for one in job.verdict().findings if one.cause == "late rank"]
    assert found.title == "Host node-1 (ranks 2 to 3) is late"
    assert found.fix.do.startswith("Check this machine")
    assert found.cost_ns == pytest.approx(STEPS * 310_000, rel=0.05)
    assert job.stragglers(by="host")["part"].iloc[0] == "node-1"


def test_a_host_is_late_if_most_of_its_ranks_are(tmp_path: Path) -> None:
    """One of two is half."""
    longer = [0, 0, 0, 310_000]
    simulated = four(lambda rank, _: 100_000 + longer[rank])
    job = on_hosts(simulated, tmp_path, "node-0", "node-0", "node-1", "node-1")
    assert late_titles(job) == ["Rank 3 is late"]


@pytest.mark.parametrize(("n_late", "is_host"), [(3, True), (1, False)])
def test_a_host_is_late_if_half_of_the_waiting_is_for_it(
    tmp_path: Path, n_late: int, is_host: bool
) -> None:
    """In the other steps, one rank of each host is late."""

    def own(rank: int, number: int) -> int:
        is_late = rank >= 2 if number < n_late else rank in (1, 3)
        return 100_000 + 300_000 * is_late + 1_000 * rank

    job = on_hosts(four(own), tmp_path, "node-0", "node-0", "node-1", "node-1")
    assert bool(job.timeline.late_hosts) is is_host


def test_a_slow_worker_of_three_kinds_of_parallelism_is_the_first_finding() -> None:
    """Rank 5 of 2 stages, 2 replicas and 2 shards, which receives from the stage before."""
    program = training_job(
        ranks=8, steps=2, layers=2, tensor=2, pipeline=2, straggler=5, delay_ns=10_000_000
    )
    job = loaded(simulate_job(program))
    first = job.verdict().findings[0]
    assert first.title == "Rank 5 is late"
    assert first.cost_ns is not None
    assert first.cost_ns > 15_000_000
    row = job.layout().set_index("rank").loc[5]
    assert (row["stage"], row["replica"], row["shard"]) == (1, 0, 1)


def with_slow_host(folder: Path, pipeline: int) -> Job:
    """Sixteen ranks on four hosts, in pairs of shards; all of node-1 begin 8 ms late."""
    options = {"ranks": 16, "steps": 2, "layers": 2, "tensor": 2, "pipeline": pipeline}
    fast = training_job(**options)  # type: ignore[arg-type]
    ranks = [
        training_job(**options, straggler=rank, delay_ns=8_000_000).ranks[rank]  # type: ignore[arg-type]
        if 4 <= rank < 8
        else one
        for rank, one in enumerate(fast.ranks)
    ]
    hosts = [f"node-{rank // 4}" for rank in range(16)]
    return on_hosts(simulate_job(JobProgram(tuple(ranks), fast.clocks)), folder, *hosts)


def test_a_slow_host_is_the_first_finding_across_its_groups(tmp_path: Path) -> None:
    """Each of its ranks meets other hosts in a group of its own."""
    first = with_slow_host(tmp_path, pipeline=1).verdict().findings[0]
    assert first.title == "Host node-1 (ranks 4 to 7) is late"
    assert first.cost_ns is not None
    assert first.cost_ns > 12_000_000


def test_a_host_that_waited_for_another_one_is_not_blamed(tmp_path: Path) -> None:
    """The second stage of the slow host's replicas, on node-3, receives late."""
    assert "node-3" not in with_slow_host(tmp_path, pipeline=2).timeline.late_hosts.values()
