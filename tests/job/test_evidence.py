"""Ranks that recorded different collectives, matched by what the rest shows."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from htagraph import load_job
from htagraph.errors import IncompleteTraceWarning
from htagraph.job.job import Job
from tests.job.test_host_collectives import MAIN, Event, step, written

pytestmark = pytest.mark.filterwarnings("ignore:the ranks recorded different steps")

BEGINS_US = [0, 20_000, 45_000, 72_000, 90_000, 115_000]
"""Steps take 18 to 27 ms."""
EVENLY_US = [20_000 * number for number in range(6)]
LATE_US = (1_000, 6_000)


def ranks(
    begins: Sequence[int] = BEGINS_US, late_us: Sequence[int] = LATE_US, *, named: bool = True
) -> list[list[list[Event]]]:
    """The events of each step of each rank."""
    return [
        [
            step(late, begin + 6_500, begin)
            + [(MAIN, f"ProfilerStep#{number}", begin - 10, begin + 6_700)] * named
            for number, begin in enumerate(begins)
        ]
        for late in late_us
    ]


def job_of(
    folder: Path, steps: Sequence[Sequence[Sequence[Event]]], hosts: Sequence[str] = ()
) -> Job:
    """The job of the steps of its ranks."""
    events = [[event for one in own for event in one] for own in steps]
    return written(folder, events, groups=[range(len(steps))], hosts=hosts)


def moved(steps: list[list[Event]], by_us: int) -> list[list[Event]]:
    """Steps on a clock that is ahead."""
    return [[(on, name, one + by_us, end + by_us) for on, name, one, end in own] for own in steps]


def matched(job: Job) -> list[list[int]]:
    """Of each rank, the collectives that are matched, in order of their matches."""
    members = job.timeline.members
    return [own["collective"].tolist() for _, own in members.groupby("rank")]


@pytest.mark.some(2)
@pytest.mark.filterwarnings("ignore::htagraph.errors.IncompleteTraceWarning")  # a step is missing
@pytest.mark.parametrize("lost", [[0], [2], [1, 4], [5]])
@pytest.mark.parametrize(("hosts", "ahead_us"), [(["a", "a"], 0), (["a", "b"], 57_000), ([], 7)])
def test_steps_that_a_rank_lacks_are_left_out(
    tmp_path: Path, lost: list[int], hosts: list[str], ahead_us: int
) -> None:
    """The first, one in between, several, the last; on one host, on two, and on unknown ones."""
    whole, part = ranks()
    kept = [number for number in range(6) if number not in lost]
    job = job_of(tmp_path, [whole, moved([part[number] for number in kept], ahead_us)], hosts)
    assert matched(job) == [kept, list(range(len(kept)))]
    assert job.collectives()["matched_by"].unique().tolist() == ["evidence"]
    if hosts == ["a", "a"]:
        assert job.stragglers()["rank"].iloc[0] == 1


def test_on_one_host_time_is_right_where_step_names_are_not(tmp_path: Path) -> None:
    """Rank 1 counts its steps from 1, and lacks the first."""
    whole, part = ranks()
    renamed = [
        [(on, name.replace(f"#{number}", f"#{number + 1}"), *times) for on, name, *times in own]
        for number, own in enumerate(part)
    ]
    job = job_of(tmp_path, [whole, renamed[1:]], ["a", "a"])
    assert matched(job) == [[1, 2, 3, 4, 5], [0, 1, 2, 3, 4]]


def test_two_ranks_may_lack_different_steps_and_have_equally_many(tmp_path: Path) -> None:
    """Rank 0 lacks the first step, rank 1 the last: without names, time on one host tells."""
    first, second = ranks(named=False)
    job = job_of(tmp_path, [first[1:], second[:-1]], ["a", "a"])
    assert matched(job) == [[0, 1, 2, 3], [1, 2, 3, 4]]


def test_on_other_hosts_names_of_equal_steps_tell(tmp_path: Path) -> None:
    """All steps take 20 ms: any shift by whole steps fits in time."""
    whole, part = ranks(EVENLY_US)
    job = job_of(tmp_path, [whole, moved(part[1:], 57_000)], ["a", "b"])
    assert matched(job) == [[1, 2, 3, 4, 5], [0, 1, 2, 3, 4]]


def test_a_long_rank_is_matched_by_a_part_of_it_first(tmp_path: Path) -> None:
    """1,100 steps of 8 to 12 ms; rank 1 lacks the first 40."""
    lengths = np.random.default_rng(1).integers(8_000, 12_000, 1_100).tolist()
    whole, part = ranks([*accumulate(lengths)], named=False)
    job = job_of(tmp_path, [whole, moved(part[40:], 57_000)], ["a", "b"])
    assert matched(job) == [list(range(40, 1_100)), list(range(1_060))]


def test_what_fits_at_several_places_is_not_matched_and_nobody_is_blamed(tmp_path: Path) -> None:
    """Equal steps without names on two hosts: the first or the last may be missing."""
    whole, part = ranks(EVENLY_US, named=False)
    job = job_of(tmp_path, [whole, moved(part[1:], 57_000)], ["a", "b"])
    with pytest.warns(IncompleteTraceWarning, match="5 of 5 collectives of rank 1 are not matched"):
        assert len(job.collectives()) == 0
    assert job.timeline.unmatched[0].endswith("No rank is blamed for them.")


def test_equal_sequences_of_equal_steps_need_no_name(tmp_path: Path) -> None:
    """None lacks a collective: the n-th is the n-th, on any clock."""
    whole, other = ranks(EVENLY_US, named=False)
    job = job_of(tmp_path, [whole, moved(other, 57_000)], ["a", "b"])
    assert job.collectives()["matched_by"].unique().tolist() == ["order"]


def test_a_rank_that_lost_its_host_is_on_that_of_the_others(tmp_path: Path) -> None:
    """A truncated file lacks host and base time; without names, only those of others tell."""
    steps = ranks(EVENLY_US, (1_000, 6_000, 1_100), named=False)
    job_of(tmp_path, [steps[0], steps[1][1:], steps[2]], ["a", "", "a"])
    for rank in (0, 2):
        path = tmp_path / f"rank{rank}.json"
        trace = json.loads(path.read_text()) | {"baseTimeNanoseconds": 1_790_857_026_000_000_000}
        path.write_text(json.dumps(trace))
    job = load_job(sorted(tmp_path.glob("*.json")))
    members = job.timeline.members
    assert members.loc[members["rank"] == 1, "match"].tolist() == [1, 2, 3, 4, 5]
    assert job.clocks["offset_ns"].tolist() == [0, 1_790_857_026_000_000_000, 0]
    assert job.stragglers()["rank"].iloc[0] == 1


def test_a_rank_whose_recording_ended_does_not_keep_others_from_blame(tmp_path: Path) -> None:
    """Rank 2 stops after two steps: rank 1 is late in all six, as if rank 2 were missing."""
    steps = ranks(late_us=(1_000, 6_000, 1_000))
    job = job_of(tmp_path, [*steps[:2], steps[2][:2]], ["a"] * 3)
    late = job.stragglers().iloc[0]
    assert (late["rank"], late["n_last"], late["n_certain"]) == (1, 6, 6)


@pytest.mark.parametrize(("came_us", "n_last"), [(6_000, 6), (5_700, 6), (5_400, 4)])
def test_a_rank_that_lacks_some_may_have_been_last(
    tmp_path: Path, came_us: int, n_last: int
) -> None:
    """In two steps rank 2 lacks its all-reduce: rank 1 is blamed if these end once it has come."""
    steps = ranks(late_us=(1_000, 6_000, 1_000))
    for number in (2, 3):
        begin = BEGINS_US[number]
        steps[1][number] = step(came_us, begin + 6_500, begin)
        steps[2][number] = [event for event in steps[2][number] if event[0] == MAIN][:1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteTraceWarning)
        late = job_of(tmp_path, steps, ["a"] * 3).stragglers().iloc[0]
    assert (late["rank"], late["n_last"]) == (1, n_last)
