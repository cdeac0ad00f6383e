"""What the damage of a trace is."""

from __future__ import annotations

import json

import pytest

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


def _launched(n: int, *, behind_us: int, n_worked: int | None = None) -> str:
    """Launches every 10 us, each of a kernel that runs so much later; some without."""
    events = []
    for at in range(n):
        ids = {"pid": 1, "tid": 1, "ts": 10 * at, "dur": 5, "args": {"correlation": at + 1}}
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **ids})
        if n_worked is None or at < n_worked:
            work = {"ts": 10 * at + behind_us, "args": {**ids["args"], "device": 0, "stream": 7}}
            events.append({"ph": "X", "cat": "kernel", "name": "k", **ids, "pid": 0, **work})
    return json.dumps({"traceEvents": events})


def test_launches_without_device_work_are_damage():
    """The last twenty of sixty, and the device was idle."""
    found = _graph(_launched(60, behind_us=5, n_worked=40)).damage()

    assert found[["kind", "n", "n_all"]].to_numpy().tolist() == [["lost device work", 20, 20]]


@pytest.mark.parametrize(
    "left_out",
    [{"window": (0, 400_000)}, {"categories": ["cuda_runtime"]}],
    ids=["of a window", "of categories"],
)
def test_device_work_that_was_not_asked_for_is_not_lost(left_out):
    """It runs 300 us after its launch: in a window, many launches are without it."""
    graph = hg.load(_launched(60, behind_us=300).encode(), **left_out).compile()
    checks = graph.quality().set_index("check")

    assert checks.loc["launches with their device work", "n_all"] == 0
    assert graph.damage().empty
