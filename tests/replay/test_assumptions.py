"""Readings of a trace: which apply, and the typical lags they start from."""

from __future__ import annotations

import numpy as np
import pytest

import htagraph as hg
from htagraph.model.rules import Rule
from htagraph.replay.assumptions import Assumption, readings
from htagraph.replay.replay import replay_of
from htagraph.synth import timeline
from tests.event_rows import taken
from tests.real_traces import located


def _compiled(drawing: str) -> hg.TraceGraph:
    return hg.Trace.from_events(timeline(drawing)).compile()


@pytest.mark.parametrize(("left_us", "waits"), [(100, True), (150, False)])
def test_a_gap_may_wait_for_work_that_ends_in_its_last_tenth(left_us, waits):
    """A gap of 1 ms; 24 us more are usual, four times the launch delay."""
    kernel = "[gemm <a".ljust(1_004 - left_us) + "]"
    graph = _compiled(
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
    graph = _compiled(f"cpu 1 |{cpu}\nstream 7 |{''.join(kernels)}")
    usual = next(readings(graph.dag, replay_of(graph.dag))).replay
    event = usual.node[usual.head] >> 1
    launches = np.flatnonzero(usual.rule == Rule.CORRELATION)
    last = launches[np.argmax(graph.dag.events.ts_ns[event[launches]])]

    assert usual.lag_ns[last] == expected_us * 1_000
