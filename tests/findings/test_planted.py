"""Planted faults and captures, and findings of replays."""

from __future__ import annotations

import json

import pytest

import htagraph as hg
from htagraph.cli.inputs import windowed
from htagraph.explain.self_time import ReplayTime
from htagraph.findings.verdict import Finding
from htagraph.findings.window_bounds import find_bounds, replay_bound
from htagraph.reports.json_document import json_document
from htagraph.reports.markdown import markdown_summary
from htagraph.reports.summary import Summary
from htagraph.synth import timeline
from tests.findings.planted import CAUSES, diagnose, repair_loader
from tests.real_traces import CAPTURES, located

PLANTED = [
    ("backwardhook_stack", False, "Python code", "hook_ms", "AccumulateGrad"),
    ("backwardhook_stack", True, "Python waits", "hook_ms", "single.py:85 in hook"),
    ("bgbusy_allthreads", False, "CPU operators", "", "aten::mm"),
    ("customfn", False, "Python code", "customback_ms", "SlowBackBackward"),
    ("gc", False, "Python code", "gc_ms", "after Optimizer.zero_grad"),
    ("gcauto_gcinfo", False, "Python code", "alloc+gc_ms", "after Optimizer.zero_grad"),
    ("generator", False, "Python code", "generator_ms", "before aten::randn"),
    ("json_stack", False, "Python code", "json_ms", "after aten::layer_norm"),
    ("json_stack", True, "Python code", "json_ms", "single.py:44 in parse_features"),
    ("loader0", False, "data loading", "next_ms", "DataLoader"),
    ("loader2", False, "data loading", "next_ms", "DataLoader"),
    ("lock_stack", False, "Python code", "lock_ms", "after Optimizer.zero_grad"),
    ("lock_stack", True, "Python code", "lock_ms", "single.py, after line 184"),
    ("maskindex2", False, "CPU operators", "nonzero_ms", "aten::nonzero"),
    ("optimizer", False, "optimizer", "optimizer_ms", "Optimizer.step"),
    ("recompile", False, "recompilation", "", "dynamo_timed"),
    ("sleep", False, "Python code", "sleep_ms", "after Optimizer.zero_grad"),
    ("sleep_stack", True, "Python code", "sleep_ms", "single.py:163"),
    ("smallops", False, "small operators", "smallops_ms", "aten::add"),
    ("../features/pyexport_stack", True, "data loading", "next_ms", "single.py:29 in __getitem__"),
]
"""Capture, whether stacks are read, cause, the truth to compare with ("" for none), evidence."""


def capture(name: str, *, stacks: bool) -> tuple[tuple[Finding, ...], dict[str, float]]:
    """Findings of a capture, and what its script measured in ms per step."""
    path = CAPTURES / "single" / name
    truth = json.loads((path.parent / f"{path.name}.truth.json").read_text())
    graph = hg.load(path.parent / f"{path.name}.pt.trace.json.gz", stacks=stacks).compile()
    return find_bounds(graph.critical_path()).findings, truth["mean_per_recorded_step"]


@pytest.mark.some(2)
@pytest.mark.parametrize("expected", PLANTED, ids=lambda expected: f"{expected[0]} {expected[1]}")
def test_what_was_planted_is_said_first(expected):
    """Within 10% or 2 ms per step, of three recorded steps; the line where stacks say it."""
    name, stacks, cause, planted, evidence = expected
    findings, truth = capture(name, stacks=stacks)
    first = findings[0]

    assert first.cause == cause
    assert evidence in first.evidence[0].label
    if planted:
        assert first.path_ns / 3e6 == pytest.approx(truth[planted], rel=0.10, abs=2)


def test_a_recompilation_takes_what_its_step_took_longer_than_the_one_before():
    """Forward and backward of step 4, less those of step 3, which run the same compiled code."""
    findings, _ = capture("recompile", stacks=False)
    file = CAPTURES / "single" / "recompile.truth.json"
    steps = json.loads(file.read_text())["per_step"]
    before, planted = (
        sum(steps[step][f"{part}_ms"] for part in ("forward", "backward")) for step in ("3", "4")
    )

    assert findings[0].path_ns / 1e6 == pytest.approx(planted - before, rel=0.01)
    assert 'TORCH_LOGS="recompiles"' in findings[0].fix.do
    assert not any("torch.compile" in finding.fix.do for finding in findings)


def test_a_checkpoint_without_stacks_is_code_in_a_place_of_one_step():
    """Nothing records `torch.save` itself: the report says how long, and after what."""
    findings, truth = capture("checkpoint", stacks=False)
    (code,) = (finding for finding in findings if finding.cause == "Python code")

    assert code.evidence[0].label == "untraced code after aten::randn"
    assert code.evidence[0].dur_ns / 3e6 == pytest.approx(truth["torch.save_ms"], rel=0.10)


def test_computation_on_the_cpu_is_no_wait_for_a_device():
    """Of all captures without a device, none is said to wait for one."""
    for name in ("maskindex2", "optimizer", "baseline", "../features/et"):
        findings, _ = capture(name, stacks=False)
        assert "GPU synchronization" not in {finding.cause for finding in findings}
        assert not any("ProfilerActivity.CUDA" in finding.fix.do for finding in findings)


N_JOBS = 5
"""Of each kind; ``python -m tests.benchmarks.bench_findings`` prints the table over more."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", CAUSES)
def test_the_first_finding_names_the_planted_fault(fault: str) -> None:
    """Whatever ranks, layers, steps, clocks and jitter are; a late rank by its number."""
    wrong = [
        outcome
        for outcome in (diagnose(fault, seed) for seed in range(N_JOBS))
        if not outcome.is_right
    ]

    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", CAUSES)
def test_findings_on_a_job_never_share_more_than_its_window(fault: str) -> None:
    """All attributed time and unknown waits are the window."""
    outcome = diagnose(fault, N_JOBS)

    assert sum(finding.path_ns for finding in outcome.verdict.findings) <= outcome.dur_ns
    assert all(
        sum(dur for _, dur in finding.ranks) == finding.path_ns
        for finding in outcome.verdict.findings
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("seed", range(12))
def test_a_repair_saves_no_more_than_the_cost(seed: int) -> None:
    """More time may be attributed: where the loader was, the device takes over."""
    repair = repair_loader(seed)

    assert 0 < repair.saved_ns <= repair.cost_ns <= repair.attributed_ns


LATE = """
    us       |0         10        20        30        40        50
    cpu 1    |[graph >a]                    [graph >b]
    stream 7 |  [k <a]  [m <a]                    [k <b]  [m <b]
"""


def summary_of(drawing: str) -> Summary:
    trace = hg.Trace.from_events(timeline(drawing))
    return Summary(trace, trace.compile())


@pytest.mark.parametrize(
    ("times", "bound"),
    [
        (ReplayTime(9, 1_000, 600, 10, 350, 340), "launch"),
        (ReplayTime(9, 1_000, 900, 300, 90, 80), "graph"),
        (ReplayTime(9, 1_000, 950, 20, 40, 30), "kernels"),
        (ReplayTime(9, 1_000, 300, 10, 600, 20), ""),
    ],
)
def test_what_costs_most_is_named(times: ReplayTime, bound: str) -> None:
    """Late launches, gaps between nodes, the kernels themselves, or something else."""
    assert replay_bound(times) == bound


@pytest.mark.parametrize(
    ("times", "bound"),
    [
        (ReplayTime(9, 1_000, 600, 10, 350, 60), "launch"),
        (ReplayTime(9, 1_000, 600, 10, 350, 40), "kernels"),
        (ReplayTime(9, 1_000, 450, 10, 350, 40), ""),
    ],
)
def test_lost_time_is_named_from_a_twentieth_on(times: ReplayTime, bound: str) -> None:
    """Less lost, it is the kernels where they are most of the window."""
    assert replay_bound(times) == bound


def test_the_sentence_has_the_numbers() -> None:
    """28 of 50 us in replays, 4 of them gaps; 22 us idle, 14 of them before the next call."""
    assert summary_of(LATE).verdict.replays == (
        "Launch-bound: the host launches the next graph too late. Replays of captured graphs (2) "
        "take 56.0% of the window: the device is busy for 85.7% of that and idle between nodes for "
        "14.3%. Between replays it is idle for 44.0% of the window, for 28.0% before the host "
        "calls the next launch."
    )


def test_the_sentence_stands_in_the_summary_and_the_numbers_in_the_document() -> None:
    """For people and for programs."""
    summary = summary_of(LATE)
    replays = json_document(summary)["replays"]

    assert "Launch-bound: the host launches the next graph too late." in markdown_summary(summary)
    assert replays == {
        "n_replays": 2,
        "window_ns": 50_000,
        "inside_ns": 28_000,
        "gap_ns": 4_000,
        "idle_ns": 22_000,
        "late_ns": 14_000,
        "bound": "launch",
        "sentence": summary.verdict.replays,
    }


def test_work_that_is_launched_one_by_one_is_not_judged_so() -> None:
    """Nothing is said of graphs."""
    summary = summary_of("cpu 1 |[launch >a][sync @* ]\nstream 7 |   [k <a       ]")

    assert summary.verdict.replays == ""
    assert json_document(summary)["replays"] is None


@pytest.mark.public("tracelens/vllm_piecewise_graph.json.gz")
def test_a_real_decode_step_is_bound_by_its_graphs() -> None:
    """From the first kernel on: the replays follow each other, and are full."""
    trace = hg.load(located("tracelens/vllm_piecewise_graph.json.gz"))
    graph = windowed(trace.compile(), "151231271:307697688")

    assert json_document(Summary(trace, graph))["replays"]["bound"] == "kernels"
