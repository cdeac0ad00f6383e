"""Events that are in a file twice are read once."""

from __future__ import annotations

import json
from typing import Any

import pytest

import htagraph as hg


def _event(at: int, **args: int) -> dict[str, Any]:
    name = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1}
    return {**name, "ts": at, "dur": 5, "args": args}


def _trace(events: list[dict[str, Any]]) -> hg.Trace:
    return hg.load(json.dumps({"traceEvents": events}).encode())


EVENTS = [_event(10 * at, correlation=at) for at in range(40)]
ARROWS = [
    {"ph": ph, "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 1, "tid": 1, "ts": at}
    for ph, at in (("s", 0), ("f", 10))
]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([*EVENTS, *ARROWS] * 2, id="the whole list twice"),
        pytest.param([one for one in (*EVENTS, *ARROWS) for _ in (0, 1)], id="each one twice"),
        pytest.param([*EVENTS, *ARROWS, *EVENTS[20:]], id="the second half twice"),
    ],
)
def test_a_trace_that_is_there_twice_is_read_once(events: list[dict[str, Any]]) -> None:
    """Forty events, and one arrow of two ends."""
    trace = _trace(events)

    assert (len(trace.recording.events), len(trace.recording.events.flows)) == (40, 2)
    assert [repair.kind for repair in trace.recording.repairs] == ["double"]


def test_a_long_trace_that_is_there_twice_is_read_once() -> None:
    """Only some events are compared first: enough of them are equal."""
    events = [_event(at, correlation=at) for at in range(5_000)]

    assert len(_trace(events * 2).recording.events) == 5_000


@pytest.mark.parametrize("other", [{"correlation": 99}, {"External id": 7}, {"bytes": 8}])
def test_events_with_other_ids_or_values_are_two(other: dict[str, int]) -> None:
    """Equal times and names: but an id, or a value, tells them apart."""
    again = [{**one, "args": {**one["args"], **other}} for one in EVENTS]

    assert len(_trace([*EVENTS, *again]).recording.events) == 80


@pytest.mark.parametrize(("n_equal", "n_read"), [(9, 49), (10, 40)])
def test_a_few_equal_events_are_kept(n_equal: int, n_read: int) -> None:
    """A function that calls itself may look like one: nine may be that, ten are a defect."""
    assert len(_trace([*EVENTS, *EVENTS[:n_equal]]).recording.events) == n_read


@pytest.mark.parametrize(("n_equal", "n_read"), [(30, 430), (50, 400)])
def test_equal_events_that_are_few_of_all_are_kept(n_equal: int, n_read: int) -> None:
    """Seven of a hundred, and eleven."""
    events = [_event(10 * at) for at in range(400)]

    assert len(_trace([*events, *events[:n_equal]]).recording.events) == n_read


def test_equal_instants_alone_are_kept() -> None:
    """Samples of two counters may be drawn at one time: what takes time is not repeated."""
    sample = {"ph": "i", "name": "memory", "pid": 1, "tid": 1, "s": "t"}
    samples = [{**sample, "ts": at // 2} for at in range(100)]

    assert len(_trace([*EVENTS, *samples]).recording.events) == 140
