"""Advice knows its context: what is compiled is not told to compile, and 0.0% is told nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.findings.advice import BINDS
from htagraph.findings.window_bounds import find_bounds
from htagraph.model.columns import heading
from htagraph.model.kinds import Bound
from htagraph.reports.markdown import markdown_summary
from htagraph.synth import timeline
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

DRAWING = """
    cpu 1    |[region  [launch >a]                                  ]
    stream 7 |                    [kern <a]
"""


def advice(region: str, launch: str = "launch") -> dict[str, str]:
    """What is to be tried about each cause, by what the host calls its work."""
    names = {"region": region, "launch": launch}
    path = hg.Trace.from_events(timeline(DRAWING, names=names)).compile().critical_path()
    return {finding.cause: finding.to_try for finding in find_bounds(path).findings}


def test_eager_code_is_told_to_compile() -> None:
    """The host sets the pace, with operators one by one."""
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
    path = hg.Trace.from_events(timeline(drawing, names=names)).compile().critical_path()
    host = next(finding for finding in find_bounds(path).findings if finding.cause == "CPU work")
    assert "torch.compile" in host.to_try


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
    assert ("torch.compile" in host.to_try) is says_compile


def copies_of(name: str) -> tuple[str, str]:
    """Evidence and advice of a copy of some name."""
    drawing = """
    cpu 1    |[copy [launch >a]]
    stream 7 |                  [memory <a            ]
    """
    events = timeline(drawing, names={"copy": "aten::copy_", "memory": name})
    path = hg.Trace.from_events(events).compile().critical_path()
    (found,) = (found for found in find_bounds(path).findings if found.cause == "GPU copies")
    return found.evidence[0].label, found.to_try


def test_copies_within_a_device_are_not_told_to_pin_host_memory() -> None:
    """A copy from pageable memory is; the operator says which copy it is."""
    inside, fewer = copies_of("Memcpy DtoD (Device -> Device)")
    across, pin = copies_of("Memcpy HtoD (Pageable -> Device)")

    assert (inside, "pinned memory" in fewer) == (
        "Memcpy DtoD (Device -> Device) in aten::copy_",
        False,
    )
    assert (across, "pinned memory" in pin) == (
        "Memcpy HtoD (Pageable -> Device) in aten::copy_",
        True,
    )


def test_sums_over_ranks_say_so() -> None:
    """The wait that a late rank causes is that of all others together."""
    assert heading("caused_wait_ns") == "caused wait, all ranks"


def test_what_takes_nothing_has_no_advice_and_is_not_printed() -> None:
    """A training run: of its findings, those below 0.05% keep their time and lose their advice."""
    rank = simulate(training_rank(fault="synchronous_copy"))
    trace = hg.Trace.from_events(rank.events)
    summary = hg.Summary(trace, trace.compile())
    findings = summary.verdict.findings
    assert sum(finding.dur_ns for finding in findings) == summary.path.dur_ns
    assert [finding.cause for finding in findings if not finding.to_try] == ["GPU synchronization"]
    assert all(bool(finding.to_try) == (finding.share >= 0.0005) for finding in findings)
    assert "0.0% of the path" not in markdown_summary(summary)


def test_every_bound_is_the_subject_of_a_sentence() -> None:
    """As a prediction names the next bottleneck."""
    assert set(BINDS) == set(Bound.labels())
