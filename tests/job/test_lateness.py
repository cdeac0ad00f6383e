"""Who is late: in one step, in every step, and by which records."""

from __future__ import annotations

import tempfile

import pandas as pd
import pytest
from hypothesis import given

from htagraph.findings.verdict import Finding
from htagraph.job.job import Job
from htagraph.job.lateness import slow_device, waits_counted_once
from htagraph.job.loading import load_job
from htagraph.job.path import job_waits
from htagraph.job.timeline import Timeline
from htagraph.reports.job_summary import JobSummary
from tests.job.simulated import FEW, MACHINE, loaded, meet, three
from tests.synth.program import (
    Action,
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
from tests.synth.strategies import jobs, warm_up
from tests.synth.training import training_job


def late_time(job: Job) -> list[tuple[int, str, str, int]]:
    """Rank, bound, name and ns of the time on the job's path that is attributed to lateness."""
    attributed_time = job.critical_path().attributed_time
    late = attributed_time[attributed_time["cause"] == "late rank"]
    sums = late.groupby(["rank", "bound", "name"], observed=True, sort=False)["dur_ns"].sum()
    return [
        (int(rank), str(bound), str(name), int(dur)) for (rank, bound, name), dur in sums.items()
    ]


def work(ns: int = 40_000) -> Op:
    """An operator that every rank runs."""
    return Op("aten::work", (Spend(ns),))


def own(name: str, us: int) -> Op:
    """An operator of one rank."""
    return Op(name, (Spend(1_000 * us),))


def after(*first: Action) -> tuple[Action, ...]:
    """The body of a rank: something of its own, then the work of all."""
    return (meet(), Synchronize(), *first, work(), meet(), Synchronize())


def test_what_all_ranks_do_makes_nobody_late() -> None:
    """Rank 1 loads for 30 us, then works for 40 us like the others: it is late by the loading."""
    job = loaded(three(after(), after(Op("load", (Spend(30_000),))), after()))

    assert late_time(job) == [(1, "host", "load", 30_000)]


def test_lateness_is_as_long_as_nobody_else_was_late() -> None:
    """Rank 1 loads for 300 us, rank 2 for 200: in time, rank 1 saves the job 100 us."""
    job = loaded(
        three(after(), after(Op("load", (Spend(300_000),))), after(Op("load", (Spend(200_000),))))
    )

    assert late_time(job) == [(1, "host", "load", 100_000)]


def test_a_late_arrival_says_who_was_last_and_whom_it_kept_waiting() -> None:
    """Both others wait for 30 us; the collective before, which nobody waited in, all three left."""
    late = loaded(three(after(), after(own("load", 30)), after())).timeline.late_arrivals

    assert late.to_dict("records") == [
        {
            "match": 1,
            "rank": 1,
            "collective": 1,
            "runner_up": 0,
            "shared": 0,
            "came_ns": 94_000,
            "lead_ns": 30_000,
            "longest_wait_ns": 30_000,
            "wait_ns": 60_000,
            "is_certain": True,
            "is_blamed": True,
        }
    ]


def test_where_nobody_waits_nothing_is_late() -> None:
    """Three ranks in step."""
    job = loaded(three(after(), after(), after()))

    assert (len(job.timeline.late_arrivals), len(job.timeline.excess_times)) == (0, 0)
    assert late_time(job) == []


def test_what_took_longer_is_late_in_proportion_if_something_took_less() -> None:
    """`read` took 50 us more and `log` 10, but `save` 20 less: 40 of 60 us are lateness."""
    job = loaded(
        three(
            after(own("read", 5), own("save", 20)),
            after(own("read", 55), own("log", 10)),
            after(own("read", 5)),
        )
    )

    assert job.timeline.excess_times.to_numpy().tolist() == [
        [0, "host", "log", "log", 6_666],
        [0, "host", "read", "read", 33_333],
    ]
    assert late_time(job) == [
        (1, "host", "read", 33_333),
        (1, "host", "log", 6_666),
        (1, "launch", "ncclDevKernel_Generic", 1),
    ]


def test_only_time_since_both_left_a_collective_made_a_rank_late() -> None:
    """All ranks load for 30 us first, and meet at 36 us; rank 1 loads once more, from 48 us on."""
    job = loaded(
        three(*((own("load", 30), *after(*more)) for more in ((), (own("load", 30),), ())))
    )
    path = job.critical_path().attributed_time
    late = path[path["cause"] == "late rank"]

    assert late[["start_ns", "dur_ns"]].to_numpy().tolist() == [[48_000, 9_000], [57_000, 21_000]]


def test_a_rank_that_is_late_twice_is_charged_each_time_since_it_was_late_before() -> None:
    """Rank 1 loads for 30 us before one collective, and for 40 us before the next."""
    job = loaded(
        three(
            (*after(), *after()),
            (*after(own("load", 30)), *after(own("load", 40))),
            (*after(), *after()),
        )
    )

    assert job.timeline.late_arrivals["lead_ns"].tolist() == [30_000, 40_000]
    assert late_time(job) == [(1, "host", "load", 70_000)]


def test_what_a_rank_did_while_a_collective_ran_did_not_make_it_late() -> None:
    """Rank 1 loads from 5 us on, and the collective runs until 16 us; nobody waits for its end."""

    def ahead(*first: Action) -> tuple[Action, ...]:
        return (meet(), *first, work(), meet(), Synchronize())

    path = loaded(three(ahead(), ahead(own("load", 60)), ahead())).critical_path()
    late = path.attributed_time[path.attributed_time["cause"] == "late rank"]

    assert late[["name", "start_ns", "dur_ns"]].to_numpy().tolist() == [
        ["load", 16_000, 49_000],
        ["aten::work", 65_000, 11_000],
    ]


def test_a_rank_is_blamed_only_if_clocks_tell_that_it_was_last() -> None:
    """The second time, rank 1 comes 8 us after rank 2, and clocks are known to 10 us."""
    job = loaded(
        three(
            (*after(), *after()),
            (*after(own("load", 30)), *after(own("load", 20))),
            (*after(), *after(own("load", 12))),
        )
    )

    assert job.timeline.late_arrivals["is_blamed"].tolist() == [True, False]
    assert late_time(job) == [(1, "host", "load", 30_000)]


def test_a_wait_counts_if_it_is_longer_than_clocks_are_uncertain() -> None:
    """Ranks 0 and 2 wait for 20 us and for 8 us; their clocks are known to 10 us."""
    bodies = after(), after(own("load", 20)), after(own("load", 12))
    timeline = loaded(three(*bodies)).timeline
    waits = timeline.collectives.query("wait_ns > 0")

    assert waits[["rank", "wait_ns", "error_ns"]].to_numpy().tolist() == [
        [0, 20_000, 10_000],
        [2, 8_000, 10_000],
    ]
    assert timeline.late_arrivals["wait_ns"].tolist() == [20_000]


def test_a_rank_that_waits_in_two_collectives_at_once_waits_once() -> None:
    """Rank 0 waits from 0 to 10, from 4 to 8 and from 6 to 15; rank 1 from 5 to 7."""
    waits = pd.DataFrame({"rank": [0, 0, 1, 0], "start_ns": [6, 0, 5, 4], "wait_ns": [9, 10, 2, 4]})

    assert waits_counted_once(waits).tolist() == [5, 10, 2, 0]


def test_each_late_arrival_has_its_own_cause() -> None:
    """Rank 1 loads, then rank 2 saves, then rank 0 logs: each is late once, by that."""

    def body(rank: int) -> tuple[Action, ...]:
        names = {1: "load", 2: "save", 0: "log"}
        rounds = (
            (Op(name, (Spend(30_000),)),) if late == rank else () for late, name in names.items()
        )
        return tuple(action for first in rounds for action in after(*first))

    found = loaded(three(*map(body, range(3)))).stragglers().sort_values("rank")

    assert found["cause_name"].tolist() == ["log", "load", "save"]
    assert found["cause_ns"].tolist() == [30_000] * 3


def test_an_operator_that_takes_longer_is_late_by_the_difference() -> None:
    """The same operator, 25 us longer on rank 2."""
    body = (meet(), Synchronize())
    job = loaded(
        three((*body, work(), *body), (*body, work(), *body), (*body, work(65_000), *body))
    )

    assert late_time(job) == [(2, "host", "aten::work", 25_000)]


def test_a_sender_is_waited_for_by_design() -> None:
    """In a pipeline every receive waits for the stage before: a bubble, and no stage is late."""
    job = loaded(simulate_job(training_job(ranks=2, pipeline=2, steps=2, layers=2)))
    sends = job.collectives()[job.collectives()["operation"] == "send"]["match"]

    assert job.collectives()[job.collectives()["match"].isin(sends)]["wait_ns"].max() > 0
    assert not job.timeline.late_arrivals[job.timeline.late_arrivals["match"].isin(sends)][
        "is_blamed"
    ].any()


def test_the_cause_of_a_straggler_is_what_it_did_for_longer() -> None:
    """40 us of work are longest, on every rank; what is different is the 30 us of loading."""
    top = loaded(three(after(), after(Op("load", (Spend(30_000),))), after())).stragglers().iloc[0]

    assert (top["rank"], top["cause_name"], top["cause_ns"]) == (1, "load", 30_000)


@FEW
@given(program=jobs())
def test_attributed_time_tiles_the_window_of_every_job(program: JobProgram) -> None:
    """Whatever the ranks do to each other; lateness is no more than the leads of late ranks."""
    job = loaded(simulate_job(program))
    path, late = job.critical_path(), job.timeline.late_arrivals
    attributed_time = path.attributed_time
    by_rank = (
        attributed_time[attributed_time["cause"] == "late rank"].groupby("rank")["dur_ns"].sum()
    )

    assert (attributed_time["dur_ns"] > 0).all()
    assert int(attributed_time["dur_ns"].sum()) == path.dur_ns
    assert (
        attributed_time["start_ns"].to_numpy()[1:]
        == (attributed_time["start_ns"] + attributed_time["dur_ns"]).to_numpy()[:-1]
    ).all()
    for rank, attributed_ns in by_rank.items():
        assert (
            attributed_ns <= late.loc[late["is_blamed"] & (late["rank"] == rank), "lead_ns"].sum()
        )


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


@pytest.mark.some(1)
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


def summary_of(**options: object) -> JobSummary:
    """The summary of a simulated job."""
    with tempfile.TemporaryDirectory() as folder:
        job = training_job(steps=2, layers=3, seed=4, **options)  # type: ignore[arg-type]
        simulate_job(job).write(folder)
        summary = JobSummary(load_job(folder))
        assert summary.verdict.findings
        return summary


def compute(summary: JobSummary) -> Finding:
    """The finding on computation."""
    return next(finding for finding in summary.verdict.findings if finding.cause == "GPU compute")


def test_a_rank_whose_kernels_take_longer_is_named():
    """Three ranks run the gemm in 0.18 ms, rank 3 in 0.42. One finding advises to compare them."""
    summary = summary_of(
        ranks=4, straggler=3, delay="kernel", delay_ns=700_000, max_offset_ns=1_000_000
    )
    finding = compute(summary)
    advice = {one.title: one.fix.do for one in summary.verdict.findings}

    assert finding.ranks[0][0] == 3
    assert finding.detail.startswith("rank 3 runs ampere_sgemm_128x64_nn 2.2")
    assert advice["Rank 3 is late"].startswith("Compare this kernel across ranks: this rank has")
    assert finding.fix.do.startswith("Use bf16/fp16 (torch.autocast) or torch.compile")


def test_equal_devices_are_not_compared():
    """Durations differ by some percent, as they do: nobody's device is slow."""
    finding = compute(summary_of(ranks=4))

    assert finding.detail == ""
    assert finding.fix.do.startswith("Use bf16/fp16 (torch.autocast) or torch.compile")


@pytest.mark.parametrize(("took_ns", "is_slow"), [(104, False), (107, True)])
def test_a_device_is_slow_from_a_twentieth_on(took_ns: int, is_slow: bool):
    """Of its kernel time: on equal devices, times differ by some percent as well."""
    frame = pd.DataFrame({"rank": [0, 1, 2], "group": "gemm", "class": "compute"})
    times = [100.0, 100.0, float(took_ns)]

    assert bool(slow_device(frame.assign(mean_ns=times, sum_ns=times), 2)) is is_slow


def test_kernels_that_no_other_rank_runs_say_nothing():
    """A pipeline stage with operators of its own is not slow."""
    with tempfile.TemporaryDirectory() as folder:
        simulate_job(training_job(ranks=2, steps=1, layers=1)).write(folder)
        frame = load_job(folder).kernel_breakdown(by="name")
    alone = frame[frame["rank"] == 0]

    assert slow_device(alone, 0) == ""


def spent(*times_us: int) -> Timeline:
    """Three ranks that spend these times between two collectives."""
    bodies = ((meet(), Synchronize(), Spend(1_000 * us), meet()) for us in times_us)
    return loaded(three(*bodies)).timeline


def rows(waits: pd.DataFrame) -> list[tuple[int, int, int, str]]:
    """Rank, start and length in us, and what it is, of the second collective."""
    waits = waits[waits["match"] == 1]
    start_ns = waits["start_ns"] - waits["start_ns"].min()
    what = waits["operation"].where(
        waits["operation"] != "",
        waits["n_waiting"]
        .map("late, {}".format)
        .where(waits["n_waiting"] >= 0, waits["last_rank"].map("waits for {}".format)),
    )
    parts = (waits["rank"], start_ns // 1_000, waits["dur_ns"] // 1_000, what)
    return [*zip(*(part.tolist() for part in parts), strict=True)]


def test_the_last_rank_is_late_while_the_one_before_it_waits() -> None:
    """Rank 1 comes after 90 us, rank 2 after 10: rank 1 is late for 80 us, and two ranks wait."""
    assert rows(job_waits(spent(0, 90, 10), [0, 1, 2], late=1)) == [
        (1, 90, 10, "all_reduce"),
        (1, 10, 80, "late, 2"),
        (0, 90, 10, "all_reduce"),
        (0, 0, 90, "waits for 1"),
        (2, 90, 10, "all_reduce"),
        (2, 10, 80, "waits for 1"),
    ]


def test_ranks_are_in_their_places_unless_one_is_late() -> None:
    """Of those that wait for it, who waits longest is next to it."""
    timeline = spent(20, 0, 90)

    assert job_waits(timeline, [0, 1, 2])["rank"].unique().tolist() == [0, 1, 2]
    assert job_waits(timeline, [0, 1, 2], late=2)["rank"].unique().tolist() == [2, 1, 0]


def test_only_ranks_that_are_shown_are_there() -> None:
    """A wait for a rank that is not shown still names it."""
    assert rows(job_waits(spent(0, 90, 10), [0])) == [
        (0, 90, 10, "all_reduce"),
        (0, 0, 90, "waits for 1"),
    ]


def test_a_wait_within_the_error_of_the_clocks_blames_no_rank() -> None:
    """One collective alone does not tell clocks of three ranks apart."""
    waits = job_waits(loaded(three((meet(),), (Spend(30_000), meet()), (meet(),))).timeline, [0])

    assert waits["last_rank"].tolist() == [-1, -1]
