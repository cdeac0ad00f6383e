"""Jobs whose collectives run on the host (gloo): matched, on one clock, and who is late."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from htagraph import JobSummary, load_job
from htagraph.job.job import Job
from tests.real_traces import CAPTURES

MAIN, WORKER = 1, 2
Event = tuple[int, str, int, int]
"""Thread, name, start and end in us."""


def step(late_us: int, met_us: int, begin_us: int = 0, op: str = "allreduce_") -> list[Event]:
    """Own work, an all-reduce that ends at `met_us`, and the optimizer."""
    came = begin_us + late_us
    return [
        (MAIN, "aten::mm", begin_us, came),
        (MAIN, f"c10d::{op}", came, came + 20),
        (WORKER, "gloo:all_reduce", came + 10, met_us),
        (MAIN, "aten::add_", met_us + 10, met_us + 100),
    ]


def written(
    folder: Path,
    ranks: Sequence[Sequence[Event]],
    *,
    groups: Sequence[Sequence[int]] = (),
    hosts: Sequence[str] = (),
) -> Job:
    """The job of some events by rank, from files as PyTorch writes them."""
    for rank, events in enumerate(ranks):
        ops = [
            {
                "ph": "X",
                "cat": "cpu_op" if "::" in name else "user_annotation",
                "name": name,
                "pid": 1,
                "tid": thread,
                "ts": start,
                "dur": end - start,
            }
            for thread, name, start, end in events
        ]
        config = [{"pg_name": str(n), "ranks": list(group)} for n, group in enumerate(groups)]
        info = {"rank": rank, "world_size": len(ranks), "backend": "gloo", "pg_config": config}
        trace = {"distributedInfo": info, "traceEvents": ops}
        if hosts:
            trace["host_name"] = hosts[rank]
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))
    return load_job(folder)


def late_on_rank_1(n: int = 3) -> list[list[Event]]:
    """Rank 1 comes 5 ms late to every all-reduce."""
    begins = [10_000 * number for number in range(n)]
    return [
        [event for begin in begins for event in step(late, begin + 6_500, begin)]
        for late in (1_000, 6_000)
    ]


def test_who_came_last_kept_the_others_waiting(tmp_path: Path) -> None:
    """One host has one clock: rank 0 waits for 5 ms, three times."""
    job = written(tmp_path, late_on_rank_1(), groups=[(0, 1)], hosts=["a", "a"])
    found = job.collectives()
    assert found["group"].unique().tolist() == ["[0, 1]"]
    assert found.loc[found["rank"] == 0, "wait_ns"].tolist() == [5_000_000] * 3
    top = job.stragglers().iloc[0]
    assert (top["rank"], top["n_certain"], top["cause_name"]) == (1, 3, "aten::mm")


def test_on_two_hosts_a_rank_that_is_always_late_may_have_a_late_clock(tmp_path: Path) -> None:
    """The same waits, but clocks may be 5 ms apart: nobody is blamed for certain."""
    job = written(tmp_path, late_on_rank_1(), groups=[(0, 1)], hosts=["a", "b"])
    assert job.stragglers()["n_certain"].tolist() == [0, 0]
    assert job.clocks["width_ns"].max() > 5_000_000


def test_a_host_name_that_collectives_contradict_is_not_believed(tmp_path: Path) -> None:
    """Both are called localhost, but rank 1's clock is 50 ms ahead."""
    first, second = late_on_rank_1()
    second = [(thread, name, start + 50_000, end + 50_000) for thread, name, start, end in second]
    job = written(tmp_path, [first, second], groups=[(0, 1)], hosts=["localhost", "localhost"])
    assert job.clocks["offset_ns"].tolist() == [0, -50_000_000]


def test_workers_out_of_order_are_matched_by_the_order_of_calls(tmp_path: Path) -> None:
    """Two calls at once; on rank 1 the second worker is the first to begin, by a microsecond."""

    def rank(*begins: int) -> list[Event]:
        return [
            (MAIN, "c10d::allreduce_", 100, 110),
            (MAIN, "c10d::allgather_", 111, 120),
            (2, "gloo:all_reduce", begins[0], 500),
            (3, "gloo:all_gather", begins[1], 600),
            (MAIN, "aten::add_", 610, 650),
        ]

    job = written(tmp_path, [rank(115, 116), rank(117, 116)], groups=[(0, 1)], hosts=["a", "a"])
    found = job.collectives()
    assert found.groupby("match")["operation"].unique().map(list).tolist() == [
        ["all_reduce"],
        ["all_gather"],
    ]


def test_a_wait_in_two_collectives_at_once_counts_once(tmp_path: Path) -> None:
    """Asynchronous work: two workers wait for rank 1 from 1 to 6 ms, which costs rank 0 5 ms."""

    def rank(came: int) -> list[Event]:
        return [
            (MAIN, "aten::mm", 0, came),
            (MAIN, "c10d::allreduce_", came, came + 5),
            (MAIN, "c10d::allreduce_", came + 6, came + 10),
            (2, "gloo:all_reduce", came + 2, 6_500),
            (3, "gloo:all_reduce", came + 8, 6_600),
            (MAIN, "aten::add_", 6_610, 6_700),
        ]

    job = written(tmp_path, [rank(1_000), rank(6_000)], groups=[(0, 1)], hosts=["a", "a"])
    top = job.stragglers().iloc[0]
    assert (top["n_last"], top["caused_wait_ns"], top["cause_ns"]) == (2, 5_006_000, 5_006_000)


def test_in_one_of_several_groups_nobody_is_said_to_wait(tmp_path: Path) -> None:
    """No range says which group it is of: rank 1 may have met others."""
    job = written(tmp_path, late_on_rank_1(), groups=[(0, 1), (1, 3), (0, 2)], hosts=["a", "a"])
    assert job.collectives().empty


def test_a_receiver_waits_for_its_sender(tmp_path: Path) -> None:
    """Of a group of two each sends to the other: 3 ms of waiting for the stage before."""
    sender = [(MAIN, "aten::mm", 0, 4_000), (MAIN, "c10d::send", 4_000, 4_050)]
    receiver = [(MAIN, "c10d::recv_", 990, 1_010), (MAIN, "gloo:recv", 1_000, 4_100)]
    ranks = [[*sender, (MAIN, "gloo:send", 4_020, 4_049)], receiver]
    job = written(tmp_path, ranks, groups=[(0, 1)], hosts=["a", "a"])
    assert job.pipeline_bubbles()[["rank", "wait_ns"]].to_numpy().tolist() == [[1, 3_000_000]]


def test_a_monitored_barrier_is_a_rendezvous(tmp_path: Path) -> None:
    """Its sends and receives are how it is done."""
    ranks = [
        [(MAIN, "aten::mm", 0, came), (MAIN, "c10d::monitored_barrier_", came, 5_000),
         (MAIN, "gloo:recv", came + 10, 4_900)]
        for came in (1_000, 4_000)
    ]  # fmt: skip
    found = written(tmp_path, ranks, groups=[(0, 1)], hosts=["a", "a"]).collectives()
    assert found[["operation", "wait_ns"]].to_numpy().tolist() == [
        ["barrier", 3_000_000],
        ["barrier", 0],
    ]


def test_a_job_on_the_host_has_no_devices(tmp_path: Path) -> None:
    """A late rank is named, and nothing is said of GPUs."""
    summary = JobSummary(written(tmp_path, late_on_rank_1(), groups=[(0, 1)], hosts=["a", "a"]))
    assert summary.verdict.findings[0].title == "Rank 1 is late"
    assert summary.verdict.findings[0].share == pytest.approx(15.0 / 26.6, abs=0.001)


PLANTED_MS = {"fsdp2_2": 50, "pipeline_2": 30}
"""What a sleep of one rank costs the other, where the truth of the file is of another moment."""


def first_leads_ms(job: Job) -> list[float]:
    """How long after the first rank the last one came to the first collective of each step."""
    found = job.collectives().sort_values("start_ns")
    steps = {rank: job[rank].steps["start_ns"].to_numpy() for rank in job}
    begins = [
        max(int(job.clock(rank).to_common(steps[rank][n])) for rank in job)
        for n in range(len(steps[0]))
    ]
    firsts = [
        found.loc[found["start_ns"] >= begin - 1_000_000, "match"].iloc[0] for begin in begins
    ]
    starts = found.groupby("match")["start_ns"]
    return ((starts.max() - starts.min())[firsts] / 1e6).tolist()


@pytest.mark.some(3)
@pytest.mark.filterwarnings("ignore:.*does not name its rank")
@pytest.mark.parametrize(
    ("name", "late"),
    [
        ("allreduce_2", 1),
        ("allreduce_2_meta2_tb", 1),
        ("async_2", 1),
        ("ddp_2", None),
        ("ddp_sleep_2", 1),
        ("ddp_sleep_4", 3),
        ("fsdp2_2", 1),
        ("pipeline_2", 0),
        ("zoo_2", 1),
    ],
)
def test_planted_lateness_is_found(name: str, late: int | None) -> None:
    """Of each step within 10% or 2 ms; one backward pass of four on two cores took 4 ms longer."""
    folder = CAPTURES / "jobs" / name
    told = json.loads((folder / "truth_of_the_job.txt").read_text())
    truth = [
        PLANTED_MS.get(name, max(by_rank))
        for by_rank in told["lateness_after_forward_ms_by_step_and_rank"].values()
    ]
    job = load_job(folder)

    for found, true in zip(first_leads_ms(job), truth, strict=True):
        assert found == pytest.approx(true, abs=max(2.0, 0.1 * true))
    if late is not None:
        top = job.stragglers().iloc[0]
        assert (top["rank"], top["cause_bound"]) == (late, "untraced_code")
