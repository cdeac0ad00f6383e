"""What answers on a job are about by default: the whole steps that all ranks have."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import htagraph as hg
from htagraph.reports.job_summary import JobSummary
from tests.job.simulated import MACHINE, WORLD, loaded, meet
from tests.synth.program import JobProgram, Op, Program, Spend, Synchronize
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

_HOST = {"cpu_op", "user_annotation", "cuda_runtime", "ac2g"}


@pytest.fixture(scope="module")
def late_captures(tmp_path_factory: pytest.TempPathFactory) -> hg.Job:
    """Two ranks whose hosts run ahead; hosts are recorded from the second step on."""
    folder = tmp_path_factory.mktemp("late")
    simulate_job(training_job(ranks=2, steps=3, layers=4, fault="full_queue")).write(folder)
    for file in folder.glob("*.json*"):
        is_packed = file.suffix == ".gz"
        data = file.read_bytes()
        trace = json.loads(gzip.decompress(data) if is_packed else data)
        steps = [one["ts"] for one in trace["traceEvents"] if one["name"] == "ProfilerStep#1"]
        begins = min(steps)
        trace["traceEvents"] = [
            event
            for event in trace["traceEvents"]
            if event.get("cat") not in _HOST or event["ts"] >= begins
        ]
        text = json.dumps(trace).encode()
        file.write_bytes(gzip.compress(text) if is_packed else text)
    return hg.load_job(folder)


def test_an_opening_of_a_job_is_left_out_and_said(late_captures: hg.Job) -> None:
    """On each rank up to the end of its own; what is left are whole steps."""
    whole, rest = late_captures.window("trace"), late_captures
    segments = whole.critical_path().breakdown(by="bound")
    opening_ns = segments.loc["work_from_before_the_profile", "dur_ns"]

    assert opening_ns > 0.2 * whole.critical_path().dur_ns
    assert rest.critical_path().dur_ns < whole.critical_path().dur_ns - 0.8 * opening_ns
    assert rest.left_out[0].endswith(" of work from before the profile")
    assert JobSummary(rest).caveats[0].startswith("Left out: ")
    assert not any("Left out" in said for said in JobSummary(whole).caveats)


def job_of(folder: Path, steps: int, **options: Any) -> hg.Job:
    simulate_job(training_job(ranks=2, steps=steps, layers=1, **options)).write(folder)
    return hg.load_job(folder)


@pytest.mark.parametrize(("steps", "n_steps"), [(3, 3), (5, 4)])
def test_a_job_is_judged_by_the_steps_of_all_ranks(
    tmp_path: Path, steps: int, n_steps: int
) -> None:
    """The first is left out if three others are alike; the path is of the same window."""
    job = job_of(tmp_path, steps)
    path = job.critical_path()

    assert (job.n_steps, path.n_steps, str(job.rank_window)) == (
        n_steps,
        n_steps,
        f"{n_steps} steps",
    )
    assert path.window_name == f"{n_steps} steps of the job"
    assert path.step_ns == path.dur_ns / n_steps == hg.run_profile(job).typical_step_ns
    assert ("step 0, the first of the trace" in job.left_out) is (steps > n_steps)
    assert {job[rank].interval.name for rank in job} == {path.name}


def test_all_of_a_job_or_one_step_can_be_asked_for(tmp_path: Path) -> None:
    """The whole is no step time."""
    job = job_of(tmp_path, 3)
    whole, step = job.window("trace"), job.window("1")

    assert (whole.rank_window, whole.n_steps, whole.left_out) == (None, 0, ())
    assert whole.critical_path().window_name == "the job"
    assert (step.n_steps, step.critical_path().step_ns) == (1, step.critical_path().dur_ns)


@pytest.mark.filterwarnings("ignore:The ranks recorded different steps")
def test_ranks_that_share_no_two_steps_are_judged_as_a_whole(tmp_path: Path) -> None:
    """One rank lacks the markers of its steps."""
    _ = job_of(tmp_path, 3)
    file = min(tmp_path.glob("*.json*"))
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    text = text.replace(b"ProfilerStep#", b"loop ")
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
    job = hg.load_job(tmp_path)

    assert (job.rank_window, job.n_steps, job.left_out) == (None, 0, ())


def test_a_rank_that_recorded_long_before_the_others_is_said_to() -> None:
    """Rank 0 begins 30 ms before ranks 1 and 2: the job is what all recorded, 8 of 38 ms."""
    body = (Op("aten::mm", (Spend(5_000_000),)), meet(), Spend(3_000_000), meet(), Synchronize())
    early = (Op("aten::early", (Spend(30_000_000),)), *body)
    ranks = tuple(
        Program(early, MACHINE, 0, 3, start_ns=0, base_time_ns=0, groups=(WORLD,))
        if rank == 0
        else Program(body, MACHINE, rank, 3, start_ns=30_000_000, base_time_ns=0, groups=(WORLD,))
        for rank in range(3)
    )
    job = loaded(simulate_job(JobProgram(ranks)))

    assert repr(job) == "Job(3 ranks, 31 events, recorded 38.0 ms)"
    assert job.begins == (
        "Ranks began to record up to 30.0 ms apart: the job is from when the last one began."
    )
    assert (job.critical_path().dur_ns, job.window("trace").begins) == (8_023_000, job.begins)
