"""What a replay assumes, chooses and predicts."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import htagraph as hg
from htagraph.model.kinds import Bound, Cause
from htagraph.model.rules import Rule
from htagraph.replay.assumptions import Assumption, readings
from htagraph.replay.changes import Change, scale
from htagraph.replay.charges import Charges
from htagraph.replay.predictions import Candidate, Trials, of_parts
from htagraph.replay.rehearsal import HoldOut, Rehearsal, run_to_run_ns
from htagraph.replay.replay import replay_of
from htagraph.synth import timeline
from tests.drawn import drawn_graph
from tests.event_rows import taken
from tests.real_traces import located
from tests.replay.drawn import drawn
from tests.synth.program import Annotation, Launch, Machine, Op, Program, Spend, Synchronize, Work
from tests.synth.simulator import simulate


@pytest.mark.parametrize(("left_us", "waits"), [(100, True), (150, False)])
def test_a_gap_may_wait_for_work_that_ends_in_its_last_tenth(left_us, waits):
    """A gap of 1 ms; 24 us more are usual, four times the launch delay."""
    kernel = "[gemm <a".ljust(1_004 - left_us) + "]"
    graph = drawn_graph(
        f"cpu 1 |[launch >a]{' ' * 1_000}[aten::b]\nstream 7 |      {kernel}",
    )
    found = {reading.assumption for reading in readings(graph.dag, replay_of(graph.dag))}

    assert (Assumption.GAPS_WAIT in found) is waits


def test_what_ends_with_a_gap_is_judged_alike_in_any_order_of_the_file():
    """A kernel that ends at the very time at which the gap does: the file says which is first."""
    kernel = "[gemm <a".ljust(1_004) + "]"
    events = timeline(f"cpu 1 |[launch >a]{' ' * 1_000}[aten::b]\nstream 7 |      {kernel}")
    assert events.end_ns[events.is_device].max() in events.ts_ns
    found = []
    for order in (np.arange(len(events)), np.arange(len(events))[::-1]):
        dag = hg.Trace.from_events(taken(events, order)).compile().dag
        found.append([reading.assumption for reading in readings(dag, replay_of(dag))])

    assert found[0] == found[1]


@pytest.mark.public("hta/trace_diff/control/control.json.gz")
def test_a_saving_has_the_same_interval_in_any_order_of_the_file():
    """The upper ends differed by 44 us."""
    trace = hg.load(located("hta/trace_diff/control/control.json.gz"))
    order = np.random.default_rng(1).permutation(len(trace.recording.events))
    again = hg.Trace.from_events(taken(trace.recording.events, order))

    assert again.compile().opportunities().equals(trace.compile().opportunities())


@pytest.mark.parametrize(("n_bound", "expected_us"), [(4, 6), (6, 10)])
def test_launches_that_did_not_bind_take_what_five_others_took(n_bound, expected_us):
    """The last kernel is queued. One launch took 6 us, which is the floor, the others 10."""
    cpu = "".join(f"[launch >{n}]".ljust(30) for n in range(n_bound)) + "[launch >q]"
    starts = [6, *[10] * (n_bound - 1)]
    kernels = [(" " * us + f"[k <{n}]").ljust(30) for n, us in enumerate(starts)]
    kernels[-1] = " " * 10 + f"[long <{n_bound - 1}".ljust(60) + "][queued <q]"
    graph = drawn_graph(f"cpu 1 |{cpu}\nstream 7 |{''.join(kernels)}")
    usual = next(readings(graph.dag, replay_of(graph.dag))).replay
    event = usual.node[usual.head] >> 1
    launches = np.flatnonzero(usual.rule == Rule.CORRELATION)
    last = launches[np.argmax(graph.dag.events.ts_ns[event[launches]])]

    assert usual.lag_ns[last] == expected_us * 1_000


_N = 25


def _of_kind(kind: str, segments: pd.DataFrame, cause: str = "", **options) -> set[str]:
    """Targets of a kind, if all of a path is charged to a cause."""
    names = segments["name"]
    charged = pd.DataFrame(
        {
            "segment": range(len(segments)),
            "dur_ns": segments["dur_ns"],
            "cause": cause or Cause.UNKNOWN_WAITS.value,
            "name": names,
            "op": names,
            "place": names,
            "frame": "",
        }
    )
    found = of_parts(segments, charged, **options)
    return {one.target for one in found if one.kind == kind}


def _path(bound: Bound, dur_ns: list[int]) -> pd.DataFrame:
    rows = range(len(dur_ns))
    names = [f"name {row}" for row in rows]
    return pd.DataFrame(
        {"name": names, "bound": bound.label, "dur_ns": dur_ns, "event": rows, "edge": rows}
    )


@pytest.mark.parametrize(("is_large", "n_names"), [(False, 10), (True, 4)])
def test_the_names_with_the_most_time_are_tried(is_large, n_names):
    for kind, bound in (("kernel", Bound.COMPUTE), ("operator", Bound.HOST)):
        segments = _path(bound, [1_000 - row for row in range(_N)])

        assert _of_kind(kind, segments, is_large=is_large) == set(segments["name"][:n_names])


@pytest.mark.parametrize(
    ("kind", "cause"), [("Python code", Cause.HOST_CODE), ("wait", Cause.GPU_SYNCHRONIZATION)]
)
def test_eight_places_are_tried(kind, cause):
    segments = _path(Bound.HOST, [1_000 - row for row in range(_N)])

    assert _of_kind(kind, segments, cause) == set(segments["name"][:8])


def test_less_than_a_thousandth_of_the_path_is_not_tried():
    segments = _path(Bound.COMPUTE, [997_800, 1_500, 700])

    assert _of_kind("kernel", segments) == {"name 0", "name 1"}


def _predicted(drawing: str, *asked: tuple[Change, ...]) -> pd.DataFrame:
    """Predictions of changes made together, each with a target of its own."""
    graph = drawn(drawing)
    made = [Candidate("operator", str(number), changes) for number, changes in enumerate(asked)]
    rehearsal = Rehearsal(graph.dag, graph.interval)

    def charges() -> Charges:
        return Charges.of(graph.dag, rehearsal.replay)

    return Trials(rehearsal, charges, lambda _: (), lambda: made).opportunities


@pytest.mark.parametrize(("share", "is_interval"), [(0.0015, False), (0.003, True)])
def test_small_savings_are_replayed_by_one_reading(share, is_interval):
    """The collective is 42 of 48 us. If other ranks do not change, it ends no earlier."""
    drawing = """
        cpu 1    |[launch >a]
        stream 7 |      [ncclAllReduce <a                        ]
    """

    found = _predicted(drawing, (scale("ncclAllReduce", by=1 - share * 48 / 42),)).iloc[0]

    assert bool(found["low_ns"] < found["saves_ns"]) is is_interval


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
    """Steps of 56.85 us and one of 62.85 deviate by 3 us, 5.14%: 8.77 us of the first kind."""
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
