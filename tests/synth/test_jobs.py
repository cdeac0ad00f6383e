"""What ranks do to each other; all times are worked out by hand."""

from __future__ import annotations

from hypothesis import given

from tests.synth.program import (
    Action,
    Clock,
    Collective,
    Group,
    JobProgram,
    Launch,
    Machine,
    Op,
    Program,
    Spend,
    Synchronize,
)
from tests.synth.simulated import SimulatedJob
from tests.synth.simulator import simulate_job
from tests.synth.strategies import jobs

MACHINE = Machine(launch_latency_ns=5_000, stream_gap_ns=1_000, sync_return_ns=2_000)
PAIR = Group("0", (0, 1))


def program(rank: int, *body: Action) -> Program:
    return Program(
        (Op("begin", (Spend(1_000),)), *body),
        MACHINE,
        rank,
        2,
        start_ns=0,
        base_time_ns=0,
        groups=(PAIR,),
    )


def collective(
    operation: str = "allreduce", *, root: int = 0, dur_ns: int = 10_000, group: Group = PAIR
) -> Launch:
    return Launch(Collective("nccl", dur_ns, group, operation, root=root), 20, cost_ns=4_000)


def run(first: tuple[Action, ...], second: tuple[Action, ...], *clocks: Clock) -> SimulatedJob:
    return simulate_job(JobProgram((program(0, *first), program(1, *second)), clocks))


def kernels(job: SimulatedJob) -> list[tuple[int, int]]:
    return list(zip(job.collectives["start_ns"], job.collectives["end_ns"], strict=True))


def test_an_all_reduce_ends_when_the_last_rank_has_come() -> None:
    """Rank 1 comes at 36 us; both end 10 us later."""
    job = run((collective(),), (Spend(30_000), collective()))

    assert kernels(job) == [(6_000, 46_000), (36_000, 46_000)]
    assert job.collectives["wait_ns"].tolist() == [30_000, 0]
    assert job.collectives["last_rank"].tolist() == [1, 1]


def test_the_path_hops_to_the_late_rank_where_waiting_ended() -> None:
    """Rank 0 returns last; before the transfer the path is on rank 1, which was in Python."""
    job = run((collective(), Synchronize()), (Spend(30_000), collective()))
    columns = ("rank", "start_ns", "dur_ns", "bound")

    assert list(zip(*(job.truth[column] for column in columns), strict=True)) == [
        (1, 0, 1_000, "host"),
        (1, 1_000, 30_000, "untraced_code"),
        (1, 31_000, 5_000, "launch"),
        (0, 36_000, 10_000, "communication"),
        (0, 46_000, 2_000, "sync"),
    ]


def test_the_root_of_a_reduce_waits_for_its_leaves() -> None:
    """The leaf does not wait for the root."""
    job = run((collective("reduce"),), (Spend(30_000), collective("reduce")))
    other = run((Spend(30_000), collective("reduce")), (collective("reduce"),))

    assert kernels(job) == [(6_000, 46_000), (36_000, 46_000)]
    assert kernels(other) == [(36_000, 46_000), (6_000, 16_000)]


def test_a_receiver_waits_for_its_sender() -> None:
    """And not the other way round."""
    job = run((Spend(30_000), collective("send")), (collective("recv"),))

    assert kernels(job) == [(36_000, 46_000), (6_000, 46_000)]


def test_members_of_a_dispatch_end_each_on_its_own() -> None:
    """Rank 1 comes at 36 us; rank 0 takes 10 us from there, rank 1 takes 25 us."""
    job = run((collective("dispatch"),), (Spend(30_000), collective("dispatch", dur_ns=25_000)))

    assert kernels(job) == [(6_000, 46_000), (36_000, 61_000)]


def test_a_half_that_sends_waits_for_nobody_and_is_waited_for() -> None:
    """Both receive once they have sent, but not before rank 1 has begun to send at 36 us."""
    halves = tuple(
        Launch(Collective("dispatch", ns, PAIR, "dispatch", half=half), 20, cost_ns=4_000)
        for half, ns in (("send", 3_000), ("receive", 10_000))
    )  # fmt: skip
    job = run(halves, (Spend(30_000), *halves))

    assert kernels(job) == [(10_000, 46_000), (40_000, 50_000)]
    assert job.collectives["wait_ns"].tolist() == [26_000, 0]
    assert job.collectives["last_rank"].tolist() == [1, 1]


def test_a_clock_that_is_off_moves_a_whole_rank() -> None:
    """The truth is in true time; the trace of rank 1 in its own, 5 ms early, slow by 10 ppm."""
    late = (Spend(100_000_000), collective())
    job = run((collective(),), late, Clock(), Clock(offset_ns=-5_000_000, drift_ppb=-10_000))
    event = int(job.collectives["event"][1])

    assert job.collectives["start_ns"][1] == 100_006_000
    assert job.ranks[1].events.ts_ns[event] == 100_006_000 - 5_000_000 - 1_001
    assert job.ranks[0].events.ts_ns[0] == 0
    assert job.ranks[1].events.ts_ns[0] == -5_000_000


@given(program=jobs())
def test_the_truth_of_a_job_tiles_its_time(program: JobProgram) -> None:
    """From the first start to the last end over all ranks."""
    job = simulate_job(program)
    truth = job.truth
    ends = truth["start_ns"] + truth["dur_ns"]

    assert truth["start_ns"][1:].tolist() == ends[:-1].tolist()
    assert truth["start_ns"].iloc[0] == min(program.start_ns for program in program.ranks)
    assert ends.iloc[-1] == max(mark.ts_ns for rank in job.ranks for mark in rank.ends.values())
    assert job.collectives["wait_ns"].min() == 0


@given(program=jobs())
def test_the_path_changes_ranks_only_into_a_collective(program: JobProgram) -> None:
    """Ranks hold each other up in no other way; the path comes from the rank that came last."""
    job = simulate_job(program)
    truth, collectives = job.truth, job.collectives
    hops = [i for i in range(1, len(truth)) if truth["rank"][i] != truth["rank"][i - 1]]

    for hop in hops:
        member = collectives[
            (collectives["rank"] == truth["rank"][hop])
            & (collectives["event"] == truth["event"][hop])
        ].iloc[0]
        assert truth["bound"][hop] == "communication"
        assert member["last_rank"] == truth["rank"][hop - 1]
        assert member["start_ns"] + member["wait_ns"] == truth["start_ns"][hop]
