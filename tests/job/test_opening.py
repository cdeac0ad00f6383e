"""Work from before the profile: a job is judged from where its ranks' own work begins."""

from __future__ import annotations

import gzip
import json

import pytest

import htagraph as hg
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
    """The report says for how long its devices ran what had been launched before."""
    whole, rest = late_captures, late_captures.without_opening()

    assert whole.opening_ns > 0.2 * whole.critical_path().dur_ns
    assert rest.critical_path().dur_ns < whole.critical_path().dur_ns - 0.8 * whole.opening_ns
    assert repr(whole.verdict()) == repr(rest.verdict())
    assert rest.without_opening() is rest


def test_the_report_on_a_job_leaves_the_opening_out_and_says_so(late_captures: hg.Job) -> None:
    part, all_of_it = (
        JobSummary.of_answering(late_captures, "job", is_whole=is_whole)
        for is_whole in (False, True)
    )

    assert part.caveats[0].startswith("The devices still ran work from before the profile for ")
    assert not any("work from before the profile" in said for said in all_of_it.caveats)
    assert all_of_it.path.dur_ns == late_captures.critical_path().dur_ns
    apart = dict(all_of_it.verdict.apart)
    late_ns = sum(one.path_ns for one in all_of_it.verdict.findings if one.cause == "late rank")
    shown_ns = apart["work from before the profile"]
    assert shown_ns <= late_captures.opening_ns <= shown_ns + late_ns


def test_a_job_without_an_opening_is_judged_as_a_whole() -> None:
    job = hg.load_job(hg.demo_trace("job"))

    assert job.without_opening() is job
