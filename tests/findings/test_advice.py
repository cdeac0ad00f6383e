"""Advice knows its context, and the change that it is can be replayed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import htagraph as hg
from htagraph.findings.window_bounds import find_bounds
from htagraph.model.columns import heading
from htagraph.replay.predictions import Trials
from htagraph.synth import timeline
from htagraph.synth.demo_traces import demo_trace
from tests.drawn import drawn_graph
from tests.real_traces import located

DRAWING = """
    cpu 1    |[region  [launch >a]                                  ]
    stream 7 |                    [kern <a]
"""


def advice(region: str, launch: str = "launch") -> dict[str, str]:
    """What to do about each cause, by what the host calls its work."""
    names = {"region": region, "launch": launch}
    path = drawn_graph(DRAWING, names=names).critical_path()
    return {finding.cause: finding.fix.do for finding in find_bounds(path).findings}


def test_eager_code_is_told_to_compile() -> None:
    """The device waits for operators that are launched one by one."""
    assert "torch.compile" in advice("aten::mm")["CPU work"]


@pytest.mark.parametrize("region", ["Torch-Compiled Region: 0/0", "## Call CompiledFxGraph f3a ##"])
def test_compiled_code_is_not_told_to_compile(region: str) -> None:
    """It is told what breaks its graphs."""
    assert "torch.compile" not in advice(region)["CPU work"]
    assert "graph breaks" in advice(region)["CPU work"]


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_a_replayed_graph_is_not_told_to_become_one(call: str) -> None:
    """What is left is between the graphs."""
    told = advice("aten::mm", call)["CPU work"]
    assert ("CUDA graph" in told, "torch.compile" in told) == (False, False)
    assert "Python between graphs" in told


def test_a_small_compiled_part_changes_nothing() -> None:
    """Most device work is launched outside of it."""
    drawing = """
    cpu 1    |[region [launch >a]][aten::mm [launch >b]                      ]
    stream 7 |                    [k1 <a]     [k2 <b                  ]
    """
    names = {"region": "Torch-Compiled Region: 0/1"}
    path = drawn_graph(drawing, names=names).critical_path()
    host = next(finding for finding in find_bounds(path).findings if finding.cause == "CPU work")
    assert "torch.compile" in host.fix.do


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("region", "says_compile"), [("aten::mm", True), ("Torch-Compiled Region: 0/0", False)]
)
def test_a_job_of_compiled_ranks_is_not_told_to_compile(
    tmp_path: Path, region: str, says_compile: bool
) -> None:
    """What is compiled is asked of each rank when it is loaded."""
    launch = {"correlation": 1}
    events = [
        (1, "cpu_op", region, 0, 900, {}),
        (1, "cuda_runtime", "cudaLaunchKernel", 100, 10, launch),
        (0, "kernel", "k", 200, 100, {**launch, "device": 0, "stream": 7}),
    ]
    columns = ("pid", "cat", "name", "ts", "dur", "args")
    rows = [{"ph": "X", "tid": 7, **dict(zip(columns, event, strict=True))} for event in events]
    text = {"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": rows}
    (tmp_path / "rank0.json").write_text(json.dumps(text))
    found = hg.JobSummary(hg.load_job(tmp_path), "job").verdict.findings
    host = next(finding for finding in found if finding.cause == "CPU work")
    assert ("torch.compile" in host.fix.do) is says_compile


def copies_of(name: str) -> tuple[str, str]:
    """Evidence and advice of a copy of some name."""
    drawing = """
    cpu 1    |[copy [launch >a]]
    stream 7 |                  [memory <a            ]
    """
    events = timeline(drawing, names={"copy": "aten::copy_", "memory": name})
    path = hg.Trace.from_events(events).compile().critical_path()
    (found,) = (found for found in find_bounds(path).findings if found.cause == "GPU copies")
    return found.evidence[0].label, found.fix.do


def test_copies_within_a_device_are_not_told_to_pin_host_memory() -> None:
    """A copy from pageable memory is; the operator says which copy it is."""
    inside, fewer = copies_of("Memcpy DtoD (Device -> Device)")
    across, pin = copies_of("Memcpy HtoD (Pageable -> Device)")

    assert (inside, "pin_memory=True" in fewer) == (
        "Memcpy DtoD (Device -> Device) in aten::copy_",
        False,
    )
    assert (across, "pin_memory=True" in pin) == (
        "Memcpy HtoD (Pageable -> Device) in aten::copy_",
        True,
    )


def test_sums_over_ranks_say_so() -> None:
    """The wait that a late rank causes is that of all others together."""
    assert heading("caused_wait_ns") == "caused wait, all ranks"


RUNS = [
    *map(
        demo_trace, ("captured", "compiled", "dataloader", "none", "small_kernels", "sync_in_loop")
    ),
    *map(
        located,
        ("captures/single/baseline.pt.trace.json.gz", "captures/single/loader0.pt.trace.json.gz"),
    ),
    demo_trace("job"),
    located("captures/jobs/ddp_sleep_4"),
]


@cache
def judged(run: Path) -> tuple[hg.Summary | hg.JobSummary, Trials[Any]]:
    """A run, and its replays."""
    if run.is_dir():
        job = hg.load_job(run)
        return hg.JobSummary(job, run.name), job.trials
    trace = hg.load(run)
    summary = hg.Summary(trace, trace.compile())
    return summary, summary.path.trials


@pytest.mark.some(1)
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_what_is_advised_can_be_replayed(run: Path) -> None:
    """Its change applies, and saves at most what the run would take."""
    summary, trials = judged(run)
    changes = [one.fix.change for one in summary.verdict.findings if one.fix.change is not None]

    saved_ns = [trials.rehearsal.saved_ns((change,)) for change in changes]

    assert all(-summary.path.dur_ns < ns < summary.path.dur_ns for ns in saved_ns)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_what_a_fix_saves_is_no_more_than_its_cause_costs(run: Path) -> None:
    summary, _ = judged(run)
    fixes = [(one.cost_ns, one.fix) for one in summary.verdict.findings if one.fix.saves_ns]

    assert all(0 <= fix.low_ns <= fix.saves_ns <= fix.high_ns <= cost for cost, fix in fixes)


@pytest.mark.some(2)
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_run_without_a_cause_saves_what_the_cause_costs(run: Path) -> None:
    """`what_if` and the verdict give one number, of a late rank by its number."""
    summary, _ = judged(run)
    asked = summary.graph if isinstance(summary, hg.Summary) else summary.job

    for finding in summary.verdict.findings:
        scenario = hg.what_if(asked, hg.without(finding.label))
        assert scenario.saves_ns.expected_ns == finding.cost_ns
        assert scenario.saves_ns.width_ns == 0
