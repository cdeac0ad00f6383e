"""Ranks that no clock aligns with the others are left out of the job's path."""

from __future__ import annotations

import gzip
import json
import re
import warnings
from pathlib import Path

import pytest

from htagraph import JobSummary, load_job
from htagraph.errors import ClockSkewWarning
from htagraph.job.job import Job
from tests.job.simulated import MACHINE, meet, three
from tests.synth.program import (
    Action,
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

SECOND = 1_000_000_000


def mixed(folder: Path, *captures: tuple[tuple[Action, ...], tuple[int, ...]]) -> Job:
    """A job of which some ranks are of one capture and the rest of another."""
    files = []
    for number, (body, ranks) in enumerate(captures):
        written = three(body, body, body).write(folder / str(number))
        files += [written[rank] for rank in ranks]
    return load_job(files)


def test_a_rank_of_another_capture_is_on_no_path(tmp_path: Path) -> None:
    """Rank 2 shares no collective, and was recorded 174 s later: the path is that of 0 and 1."""
    pair = Group("0", (0, 1))
    bodies = (
        (meet(group=pair),),
        (Spend(30_000), meet(group=pair)),
        (Op("aten::work", (Spend(90_000),)),),
    )
    ranks = tuple(
        Program(
            body,
            MACHINE,
            rank,
            3,
            start_ns=174 * SECOND * (rank == 2),
            base_time_ns=0,
            groups=(pair,),
        )
        for rank, body in enumerate(bodies)
    )
    job = load_job(simulate_job(JobProgram(ranks)).write(tmp_path))
    with pytest.warns(ClockSkewWarning, match="no clock aligns rank 2 with the others"):
        path = job.critical_path()
    assert path.dur_ns < 100_000
    assert set(path.segments["rank"]) == {0, 1}


def test_a_rank_that_shares_no_collective_but_the_time_stays(tmp_path: Path) -> None:
    """Nothing says that it belongs elsewhere: it ends last, so the path ends there."""
    pair = Group("0", (0, 1))
    bodies = ((meet(group=pair),), (meet(group=pair),), (Op("aten::work", (Spend(90_000),)),))
    ranks = tuple(
        Program(body, MACHINE, rank, 3, start_ns=0, base_time_ns=0, groups=(pair,))
        for rank, body in enumerate(bodies)
    )
    path = load_job(simulate_job(JobProgram(ranks)).write(tmp_path)).critical_path()
    assert path.segments["rank"].tolist()[-1] == 2


@pytest.mark.parametrize(("apart_ns", "aligned"), [(900_000_000, (0, 1)), (1_100_000_000, (0,))])
def test_ranks_without_collectives_belong_together_within_a_second(
    tmp_path: Path, apart_ns: int, aligned: tuple[int, ...]
) -> None:
    """Hosts keep time to a second: ranks further apart were not recorded together."""
    body = (Op("aten::work", (Spend(90_000),)),)
    ranks = tuple(
        Program(body, MACHINE, rank, 2, start_ns=rank * apart_ns, base_time_ns=0)
        for rank in range(2)
    )
    timeline = load_job(simulate_job(JobProgram(ranks)).write(tmp_path)).timeline
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClockSkewWarning)
        assert timeline.aligned == aligned


def test_the_odd_rank_is_left_out_even_if_it_is_the_first(tmp_path: Path) -> None:
    """Rank 0 is of a run with longer steps: no clock fits it, but 1 and 2 fit each other."""
    steps = tuple(action for _ in range(3) for action in (meet(), Synchronize(), Spend(500_000)))
    longer = tuple(action for _ in range(3) for action in (meet(), Synchronize(), Spend(900_000)))
    job = mixed(tmp_path, (longer, (0,)), (steps, (1, 2)))
    with pytest.warns(ClockSkewWarning, match="no clock aligns rank 0"):
        assert job.timeline.aligned == (1, 2)
    assert set(job.collectives()["rank"]) == {1, 2}
    assert set(job.critical_path().segments["rank"]) <= {1, 2}


def without_kernel(path: Path, name: str) -> None:
    """Take a kernel out of a file: what waited for it now waits for nothing that is recorded."""
    trace = json.loads(gzip.decompress(path.read_bytes()))
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("name") != name]
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))


def half_unexplained(folder: Path, missing_ns: int) -> JobSummary:
    """A job that waits for rank 1, whose stream is held up by a kernel that was not recorded."""
    body = (meet(), Synchronize(), Spend(300_000))
    hidden = Op("aten::hidden", (Launch(Work("hidden_kernel", missing_ns), 20, cost_ns=4_000),))
    bodies = ((*body, meet(), Synchronize()), (*body, hidden, meet(), Synchronize()))
    files = three(*bodies, bodies[0]).write(folder)
    without_kernel(files[1], "hidden_kernel")
    return JobSummary(load_job(files))


def test_a_late_rank_whose_time_is_unexplained_is_no_verdict(tmp_path: Path) -> None:
    """500 of 900 us before the collective are unknown waits, whoever is charged with them."""
    withheld = half_unexplained(tmp_path, 500_000).verdict.withheld
    assert "of the critical path is unknown waits (limit 20%)" in withheld
    assert re.search(r"Rank \d, which has most of that: htagraph report \S+$", withheld)


def test_evidence_says_that_a_wait_is_unexplained(tmp_path: Path) -> None:
    """It is not the collective that took the time, but what was before it."""
    late = half_unexplained(tmp_path, 60_000).verdict.findings
    labels = [item.label for finding in late for item in finding.evidence]
    assert "unknown wait before ncclDevKernel_Generic" in labels
