"""How well steps are predicted from each other, and what is said where they are not."""

from __future__ import annotations

import json

import pytest

import htagraph as hg
from htagraph.replay.rehearsal import HoldOut, run_to_run_ns
from tests.synth.program import (
    Annotation,
    Launch,
    Machine,
    Op,
    Program,
    Spend,
    Synchronize,
    Work,
)
from tests.synth.simulator import simulate


def stepping(*host_us: int, kernel_us: int = 20, jitter_us: int = 0) -> hg.TraceGraph:
    """Steps that launch a kernel and wait for it, of so much host time each."""
    body = tuple(
        Annotation(
            f"ProfilerStep#{number}",
            (
                Op("aten::mm", (Spend(host * 1_000), Launch(Work("gemm", kernel_us * 1_000)))),
                Synchronize(),
            ),
        )
        for number, host in enumerate(host_us)
    )
    machine = Machine(jitter_ns=jitter_us * 1_000)
    return hg.Trace.from_events(simulate(Program(body, machine=machine)).events).compile()


def test_steps_that_are_the_same_predict_each_other():
    found = hg.what_if(stepping(30, 30, 30, 30)).hold_out

    assert found.error == 0
    assert found.spread == 0
    assert "within 0.0%" in str(found)


def test_host_time_of_a_step_is_its_own():
    """A step is predicted with its own durations: what it takes longer is no error."""
    found = hg.what_if(stepping(30, 32, 30, 33)).hold_out

    assert found.error == pytest.approx(0, abs=0.001)
    assert found.spread > 0


def test_another_run_may_differ_by_three_deviations_of_the_steps():
    """Steps of 56.85 us and one of 62.85 deviate by 3 us, 5.14%: 8.77 us of the first kind.

    What a change is expected to save is no other for it, and without a change nothing differs.
    """
    graph = stepping(30, 30, 30, 36).window("median")
    saves = hg.what_if(graph, hg.scale("gemm", by=0.5)).saves_ns

    assert saves.expected_ns == 10_000
    assert (saves.low_ns, saves.high_ns) == (10_000 - 8_769, 10_000 + 8_769)
    assert hg.what_if(graph).saves_ns[:3] == (0, 0, 0)


def test_one_step_predicts_nothing_and_says_so():
    found = hg.what_if(stepping(30)).hold_out

    assert found.error is None
    assert not found.is_too_large
    assert str(found) == "no two steps do the same, so no step was predicted from another"


def test_of_steps_that_do_not_predict_each_other_nothing_is_predicted():
    """Kernels start when they like: up to 200 us after their launch, in steps of about as much."""
    graph = stepping(*[5] * 12, kernel_us=5, jitter_us=200)
    scenario = hg.what_if(graph, hg.scale("gemm", by=0.5))

    assert scenario.hold_out.is_too_large
    assert scenario.saves_ns is None
    assert "nothing is predicted" in scenario.withheld
    assert graph.opportunities().empty


def test_steps_in_which_nothing_was_recorded_are_not_compared():
    """Marks of no length at one time say nothing of each other."""
    marks = [{"name": f"ProfilerStep#{number}", "cat": "user_annotation"} for number in (1, 2, 3)]
    place = {"ph": "X", "pid": 1, "tid": 1, "ts": 5, "dur": 0}
    events = [{**mark, **place} for mark in (*marks, {"name": "aten::mm", "cat": "cpu_op"})]
    graph = hg.load(json.dumps({"traceEvents": events}).encode()).compile()

    assert hg.what_if(graph).hold_out.error is None
    assert graph.opportunities().empty


def test_the_last_twelve_pairs_of_steps_are_predicted():
    assert len(hg.what_if(stepping(*[30] * 30)).hold_out.errors) == 12


def test_a_median_error_above_a_fifth_is_too_large():
    assert not HoldOut((0.01, 0.15, 0.9)).is_too_large
    assert HoldOut((0.01, -0.25, 0.9)).is_too_large


def test_runs_of_damaged_times_differ_by_what_fits():
    """A spread of 4 of a window of 2^62 ns."""
    assert run_to_run_ns(4.0, 2**62) == 2**60
