"""What the damage of a trace is."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import htagraph as hg
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

_EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": f"op {at}", "pid": 1, "tid": 1, "ts": at, "dur": 5}
    for at in range(0, 100, 10)
]


def _graph(text: str) -> hg.TraceGraph:
    return hg.load(text.encode()).compile()


def test_a_whole_file_has_no_damage():
    """Ten events, all read."""
    assert _graph(json.dumps({"traceEvents": _EVENTS})).damage().empty


def test_a_file_that_ends_in_an_event_is_cut_off():
    """One row, however many repairs that takes: the event is lost, the brackets are added."""
    found = _graph(json.dumps({"traceEvents": _EVENTS})[:-30]).damage()

    assert found["kind"].tolist() == ["cut file"]


def test_events_that_cannot_be_read_are_lost():
    """One of ten has no time."""
    events = [*_EVENTS[:-1], {**_EVENTS[-1], "ts": "soon"}]
    found = _graph(json.dumps({"traceEvents": events})).damage()

    assert found[["kind", "n", "n_all"]].to_numpy().tolist() == [["lost events", 1, 10]]


def test_what_is_read_a_little_differently_is_no_damage():
    """A comma too many."""
    text = json.dumps({"traceEvents": _EVENTS})
    trace = hg.load(text.replace("]}", ",]}").encode())

    assert [repair.kind for repair in trace.recording.repairs] == ["comma"]
    assert trace.compile().damage().empty


@pytest.mark.parametrize(
    ("back_ns", "kinds"), [(0, []), (200_000, []), (2_000_000, ["lost times"])]
)
def test_a_clock_that_was_set_back_is_damage(back_ns, kinds):
    """By more than two clocks of one machine are apart: work begins before its launch."""
    events = simulate(training_rank(steps=2, layers=2)).events
    at_ns = int(np.median(events.ts_ns))
    moved = np.where(events.ts_ns > at_ns, events.ts_ns - back_ns, events.ts_ns)
    found = hg.Trace.from_events(replace(events, ts_ns=moved)).compile().damage()

    assert found["kind"].tolist() == kinds
    if kinds:
        assert "a clock was set during the capture" in found["consequence"][0]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((4, 5, 6), []),
        ((4, 6, 9), ["1 step between ProfilerStep#4 and ProfilerStep#6 is missing",
                     "2 steps between ProfilerStep#6 and ProfilerStep#9 are missing"]),
        ((4, 4, 6), []),
    ],
)  # fmt: skip
def test_the_numbers_of_steps_tell_which_are_missing(numbers, said):
    """The profiler counts up by one; two threads may both have steps."""
    steps = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1,
         "ts": 100 * place, "dur": 90}
        for place, number in enumerate(numbers)
    ]  # fmt: skip
    found = _graph(json.dumps({"traceEvents": steps})).damage()

    assert [one.split(":")[0] for one in found["consequence"]] == said
