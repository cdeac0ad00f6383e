"""A slow device is told by how long its kernels take, whatever the clocks."""

from __future__ import annotations

import tempfile

import pandas as pd
import pytest

from htagraph.findings.verdict import Finding
from htagraph.job.loading import load_job
from htagraph.job.stragglers import slow_device
from htagraph.reports.job_summary import JobSummary
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job


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
