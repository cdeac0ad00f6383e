"""Who waits for whom, as it is drawn above the ranks in Perfetto; times worked out by hand."""

from __future__ import annotations

import pandas as pd

from htagraph.job.perfetto import job_waits
from htagraph.job.timeline import Timeline
from tests.job.simulated import loaded, meet, three
from tests.synth.program import Spend, Synchronize


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


def test_a_job_without_collectives_has_no_waits() -> None:
    """Its ranks only synchronize with their devices."""
    job = loaded(three(*((Spend(1_000), Synchronize()),) * 3))

    assert job_waits(job.timeline, [0, 1, 2]).empty
