"""Collectives of a job: matched, lost, of one rank alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import htagraph as hg
from htagraph.job.job import Job
from tests.damage import read_job, write_job
from tests.job.simulated import MACHINE, WORLD, loaded, meet, three
from tests.real_traces import CAPTURES
from tests.synth.program import (
    Action,
    Annotation,
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

PAIR = Group("1", (0, 1))


def waits(job: Job) -> list[tuple[int, int, int]]:
    """Wait, transfer and last rank of each member."""
    columns = (job.collectives()[name] for name in ("wait_ns", "transfer_ns", "last_rank"))
    return [
        (int(wait), int(transfer), int(last)) for wait, transfer, last in zip(*columns, strict=True)
    ]


def test_everybody_waits_for_the_last_of_an_all_reduce() -> None:
    """Rank 1 comes at 36 us, the others at 6 us and 16 us."""
    job = loaded(three((meet(),), (Spend(30_000), meet()), (Spend(10_000), meet())))
    assert waits(job) == [(30_000, 10_000, 1), (0, 10_000, 1), (20_000, 10_000, 1)]


def test_leaves_wait_for_the_root_of_a_broadcast() -> None:
    """The operator records the root; a leaf that comes later than the root waits for nobody."""
    late_root = tuple((Spend(ns), meet("broadcast", root=1)) for ns in (0, 30_000, 40_000))
    job = loaded(three(*late_root, metadata="op"))
    assert waits(job) == [(30_000, 10_000, 1), (0, 10_000, 1), (0, 10_000, 2)]


def test_the_root_of_a_reduce_waits_for_the_leaves() -> None:
    """The leaves do not wait for each other."""
    job = loaded(three(*((Spend(ns), meet("reduce", root=1)) for ns in (20_000, 0, 5_000))))
    assert waits(job) == [(0, 10_000, 0), (20_000, 10_000, 0), (0, 10_000, 2)]


def test_a_receiver_waits_for_its_sender() -> None:
    """And not the other way round; rank 2 has no part in it."""
    job = loaded(
        three(
            (Spend(30_000), meet("send", group=PAIR)),
            (meet("recv", group=PAIR),),
            (meet(group=Group("2", (2,))),),
        )
    )
    assert waits(job) == [(0, 10_000, 0), (30_000, 10_000, 0)]
    bubbles = job.pipeline_bubbles()
    assert bubbles[["rank", "n_receives", "wait_ns", "transfer_ns"]].to_numpy().tolist() == [
        [1, 1, 30_000, 10_000]
    ]


def test_both_directions_of_a_pair_are_matched_apart() -> None:
    """Each rank sends, then receives, in one group: first is not matched with first."""
    bodies = (
        (meet("send", root=0, group=PAIR), Spend(50_000), meet("recv", root=1, group=PAIR)),
        (
            Spend(20_000),
            meet("recv", root=0, group=PAIR),
            Spend(90_000),
            meet("send", root=1, group=PAIR),
        ),
    )
    ranks = tuple(
        Program(body, MACHINE, rank, 2, start_ns=0, metadata="kernel")
        for rank, body in enumerate(bodies)
    )
    table = loaded(simulate_job(JobProgram(ranks))).collectives()
    assert table.groupby("match")["operation"].agg(list).tolist() == [
        ["send", "recv"],
        ["recv", "send"],
    ]


def test_kernels_enqueued_before_the_capture_are_not_counted() -> None:
    """Rank 1 has one more all-reduce, without a launch: the later ones are matched all the same."""
    simulated = three(*((meet(), Spend(100_000), meet()) for _ in range(3)))
    rows = simulated.ranks[1].recorder.rows
    first = next(row for row in rows if row.name.startswith("nccl"))
    rows[:] = [row for row in rows if row.correlation != first.correlation or row is first]
    job = loaded(simulated)
    assert [len(summary.collectives) for summary in job.summaries.values()] == [2, 1, 2]
    assert job.collectives().groupby("match")["rank"].agg(list).tolist() == [[0, 2], [0, 1, 2]]


@pytest.mark.parametrize(("came_ns", "is_blamed"), [(10_000, True), (200_000, False)])
def test_nobody_is_blamed_where_a_member_that_is_missing_may_have_been_last(
    came_ns: int, is_blamed: bool
) -> None:
    """Rank 1 does not know of the first all-reduce, and rank 2 comes last of the others."""
    simulated = three(
        (meet(), Spend(400_000), meet()),
        (Op("aten::work", (Spend(came_ns),)), meet(), Spend(390_000), meet()),
        (Spend(80_000), meet(), Spend(300_000), meet()),
    )
    rows = simulated.ranks[1].recorder.rows
    first = next(row for row in rows if row.name.startswith("nccl"))
    rows[:] = [row for row in rows if row.correlation != first.correlation]
    collectives = loaded(simulated).collectives()
    assert collectives["is_partial"].tolist() == [*[not is_blamed] * 2, False, False, False]
    assert collectives["is_certain"].tolist()[:2] == [is_blamed, False]


def test_collectives_are_matched_by_order_without_sequence_numbers() -> None:
    """Two communicators with their own order; metadata without sequence numbers."""
    bodies = ((meet(group=PAIR), meet()), (meet(group=PAIR), meet()), (meet(),))
    job = loaded(three(*bodies, metadata="kernel"))
    assert job.collectives()["matched_by"].astype(str).unique().tolist() == ["order"]
    assert sorted(job.collectives().groupby("match")["rank"].agg(list)) == [[0, 1], [0, 1, 2]]


def test_collectives_of_different_counts_are_matched_by_evidence() -> None:
    """Rank 2 alone gathers in between; the others are matched all the same."""

    def operations(*names: str) -> tuple[Action, ...]:
        own = {
            "own": Launch(
                Collective("ncclDevKernel_AllGather", 5_000, WORLD, "_allgather_base"), 20
            )
        }
        return tuple(Op("comms", (own[name],)) if name in own else meet(name) for name in names)

    ranks = [operations("allreduce", "broadcast", "allreduce")] * 3
    simulated = three(*ranks, metadata="kernel")
    rows = simulated.ranks[2].recorder.rows
    second = [row for row in rows if row.name.startswith("nccl")][1]
    rows[:] = [row for row in rows if row.correlation != second.correlation]
    job = loaded(simulated)
    assert job.collectives().groupby("match")["rank"].agg(list).tolist() == [
        [0, 1, 2],
        [0, 1],
        [0, 1, 2],
    ]
    assert job.collectives()["matched_by"].astype(str).unique().tolist() == ["evidence"]


JOB = CAPTURES / "jobs" / "ddp_2"


def _told(files: dict, folder: Path) -> list[str]:
    """What is said of a job whose files are changed."""
    return hg.load_job(write_job(files, folder)).damage()["consequence"].tolist()


def _changed(document: dict, change) -> dict:
    return document | {"traceEvents": [*filter(None, map(change, document["traceEvents"]))]}


def test_a_collective_that_one_rank_lost_is_told(tmp_path):
    """The second of three all-reduces of rank 1."""
    name, files = "rank1.pt.trace.json.gz", read_job(JOB)
    rows = [e for e in files[name]["traceEvents"] if e.get("name") == "gloo:all_reduce"]
    lost = sorted(rows, key=lambda event: event["ts"])[1]
    files[name] = _changed(files[name], lambda event: None if event is lost else event)
    (said,) = _told(files, tmp_path)

    assert said.startswith("1 of 4 collectives of rank 0 have no counterpart")


def test_a_clock_that_was_set_forward_on_one_rank_is_told(tmp_path):
    """By 2 s before the second of three all-reduces of rank 3: those of the others lack it."""
    name, files = "rank3.pt.trace.json.gz", read_job(CAPTURES / "jobs" / "ddp_sleep_4")
    rows = [e for e in files[name]["traceEvents"] if e.get("name") == "gloo:all_reduce"]
    at_us = sorted(event["ts"] for event in rows)[1] - 1
    files[name] = _changed(
        files[name],
        lambda event: event | {"ts": event["ts"] + 2e6} if event.get("ts", 0) > at_us else event,
    )
    said = _told(files, tmp_path)

    assert any("are not on rank 3, which recorded earlier and later ones" in one for one in said)


def test_ranks_of_one_host_with_other_clocks_are_told(tmp_path):
    """Rank 1 is 20 ms ahead."""
    name, files = "rank1.pt.trace.json.gz", read_job(JOB)
    files[name] = _changed(
        files[name], lambda event: event | {"ts": event["ts"] + 20_000} if "ts" in event else event
    )
    (said,) = _told(files, tmp_path)

    assert said.startswith("ranks 0, 1 are of host vm, but their clocks are")


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
