"""Why a rank is late: what it did for longer than the runner-up, not what it did last."""

from __future__ import annotations

from hypothesis import given

from htagraph.job.job import Job
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
