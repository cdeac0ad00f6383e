"""Real captures of PyTorch 2.15 on a CPU: what was planted is what is said first."""

from __future__ import annotations

import json

import pytest

import htagraph as hg
from htagraph.findings.verdict import Finding
from htagraph.findings.window_bounds import find_bounds
from tests.real_traces import CAPTURES

PLANTED = [
    ("backwardhook_stack", False, "Python code", "hook_ms", "AccumulateGrad"),
    ("backwardhook_stack", True, "Python code", "hook_ms", "single.py:85 in hook"),
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
