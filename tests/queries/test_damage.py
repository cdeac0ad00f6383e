"""What the damage of a trace is."""

from __future__ import annotations

import json

import htagraph as hg

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
