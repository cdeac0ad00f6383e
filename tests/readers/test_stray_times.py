"""One wrong time in a trace does not become its length."""

from __future__ import annotations

import json
from typing import Any

import pytest

import htagraph as hg

BASE_US = 1_700_000_000_000_000
DAY_US = 86_400 * 10**6


def traced(*more: dict[str, Any], n: int = 100) -> hg.Trace:
    """Operators of 8 us, one every 10 us, and others."""
    rows = [event(BASE_US + 10 * number, 8) for number in range(n)]
    return hg.load(json.dumps({"traceEvents": [*rows, *more]}).encode())


def event(ts_us: int, dur_us: int) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": ts_us, "dur": dur_us,
    }  # fmt: skip


@pytest.mark.parametrize("stray_us", [0, BASE_US - DAY_US, BASE_US + DAY_US])
def test_an_event_far_from_all_others_is_left_out_and_counted(stray_us: int) -> None:
    trace = traced(event(stray_us, 5))

    assert trace.compile().critical_path().dur_ns == 998_000
    assert trace.repairs[["kind", "n"]].values.tolist() == [["stray time", 1]]


def test_an_end_far_behind_all_others_is_unknown() -> None:
    trace = traced(event(BASE_US + 3, DAY_US))

    assert trace.compile().critical_path().dur_ns == 998_000
    assert trace.repairs[["kind", "n"]].values.tolist() == [["stray duration", 1]]


@pytest.mark.parametrize(
    "more",
    [
        [event(BASE_US - 600 * 10**6, 5)],  # ten minutes before
        [event(BASE_US - DAY_US + number, 5) for number in range(5)],  # not only a few
        [event(BASE_US + 1, 3_000 * 10**6)],  # less than an hour
    ],
)
def test_what_may_be_meant_stays(more: list[dict[str, Any]]) -> None:
    trace = traced(*more)

    assert len(trace.events) == 100 + len(more)
    assert trace.repairs.empty


def test_of_a_few_events_none_is_far_from_the_others() -> None:
    trace = traced(event(0, 5), n=3)

    assert len(trace.events) == 4
