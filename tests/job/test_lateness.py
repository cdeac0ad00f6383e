"""Why a rank is late: what it did for longer than the runner-up, not what it did last."""

from __future__ import annotations

import pandas as pd
from hypothesis import given

from htagraph.job.job import Job
from htagraph.job.lateness import late_arrivals, waits_counted_once
from tests.job.simulated import FEW, loaded, meet, three
from tests.synth.program import Action, JobProgram, Op, Spend, Synchronize
from tests.synth.simulator import simulate_job
from tests.synth.strategies import jobs
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


def test_before_the_first_meeting_of_two_ranks_there_is_none_that_both_left() -> None:
    """The collective before was not recorded."""
    found = loaded(three(after(), after(own("load", 30)), after())).timeline.collectives

    assert late_arrivals(found[found["match"] == 1])["shared"].tolist() == [-1]


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


def test_attributed_time_tiles_the_window_of_a_job() -> None:
    """Adjacent, disjoint, together the window; each inside its segment."""
    path = loaded(three(after(), after(Op("load", (Spend(30_000),))), after())).critical_path()
    attributed_time, segments = (
        path.attributed_time,
        path.segments.iloc[path.attributed_time["segment"]].reset_index(drop=True),
    )

    assert (attributed_time["start_ns"].iloc[0], int(attributed_time["dur_ns"].sum())) == (
        path.start_ns,
        path.dur_ns,
    )
    assert (
        attributed_time["start_ns"].to_numpy()[1:]
        == (attributed_time["start_ns"] + attributed_time["dur_ns"]).to_numpy()[:-1]
    ).all()
    assert (attributed_time["start_ns"] >= segments["start_ns"]).all()
    assert (attributed_time["rank"] == segments["rank"]).all()


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
