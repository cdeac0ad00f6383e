"""Work from before the profile: a job is judged from where its ranks' own work begins."""

from __future__ import annotations

import gzip
import json

import pytest

import htagraph as hg
from htagraph.lookup.find_window import WHOLE
from htagraph.model.kinds import Bound
from htagraph.reports.job_summary import JobSummary
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


def test_a_job_is_judged_after_its_opening(late_captures: hg.Job) -> None:
    """The path of all of it is longer by about that time."""
    path, whole = late_captures.critical_path(), late_captures.window(WHOLE).critical_path()
    before = whole.segments["bound"] == Bound.WORK_FROM_BEFORE_THE_PROFILE.label
    opening_ns = int(whole.segments.loc[before, "dur_ns"].sum())

    assert opening_ns > 0.2 * whole.dur_ns
    assert path.dur_ns < whole.dur_ns - 0.8 * opening_ns
    assert path.name == "2 steps"


def test_the_report_on_a_job_leaves_the_opening_out_and_says_so(late_captures: hg.Job) -> None:
    """For how long its devices ran what had been launched before."""
    part, all_of_it = (
        JobSummary.of_answering(job, "job") for job in (late_captures, late_captures.window(WHOLE))
    )

    assert part.caveats == ["Left out: 40.5 ms of work from before the profile (-w trace: all)."]
    assert all_of_it.caveats == []
    assert dict(part.verdict.apart) == {}
    apart = dict(all_of_it.verdict.apart)
    late_ns = sum(one.path_ns for one in all_of_it.verdict.findings if one.cause == "late rank")
    shown_ns = apart["work from before the profile"]
    assert shown_ns <= 40_500_000 <= shown_ns + late_ns


def test_a_job_without_an_opening_is_judged_by_all_of_its_steps() -> None:
    job = hg.load_job(hg.demo_trace("job"))

    assert job.left_out == ()
    assert job.critical_path().name == "3 steps"
