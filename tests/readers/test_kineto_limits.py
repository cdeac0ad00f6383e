"""The door: whatever a file holds, its times can be computed with, and its bytes are few steps."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.errors import TraceLimitError
from htagraph.readers.kineto import json_document
from htagraph.readers.kineto.event_table import lane_table
from htagraph.readers.kineto.pieces import Piece, PieceStream
from htagraph.readers.kineto.reader import read_kineto

FARTHEST_NS = 2**62
TIMES_US = st.one_of(
    st.integers(-(2**64), 2**64),
    st.sampled_from([s * (2**62 // 1000 + d) for s in (-1, 1) for d in (-1, 0, 1)]),
    st.floats(),
)


@given(
    st.lists(st.tuples(st.sampled_from("XBEiCs"), TIMES_US, TIMES_US), max_size=8),
    st.integers(-(2**62), 2**62),
)
def test_every_time_and_end_lies_within_146_years(
    drawn: list[tuple[str, float, float]], base_time_ns: int
) -> None:
    """Base time included, and no duration is negative: differences and sums of two fit in int64."""
    events = [
        {"ph": ph, "cat": "c", "name": "e", "pid": 1, "tid": 1, "id": 1, "ts": ts, "dur": dur}
        for ph, ts, dur in [*drawn, ("X", 1, 1)]
    ]
    data = json.dumps({"traceEvents": events, "baseTimeNanoseconds": base_time_ns}).encode()

    trace = read_kineto(data)

    assert (trace.events.dur_ns >= 0).all()
    for times in (trace.events.ts_ns, trace.events.end_ns, trace.events.flows.ts_ns):
        assert (np.abs(times) <= FARTHEST_NS).all()


def test_an_event_beyond_146_years_is_left_out_and_counted(event: Any, file_of: Any) -> None:
    """Its base time may be what makes it so."""
    trace = read_kineto(
        file_of(
            event("near", ts=1),
            event("far", ts=2e15),
            event("far", ts=2e15, ph="s", id=1),
            baseTimeNanoseconds=2**62 - 10_000,
        )
    )

    assert trace.events.names().tolist() == ["near"]
    assert [(repair.kind, repair.n) for repair in trace.repairs] == [("time out of range", 2)]


def test_a_begin_and_an_end_weeks_apart_have_no_duration(event: Any, file_of: Any) -> None:
    """As for complete events: over seven days is unknown, and counted."""
    trace = read_kineto(file_of(event(ph="B", ts=-4e15), event(ph="E", ts=4e15)))

    assert trace.events.dur_ns.tolist() == [0]
    assert [(repair.kind, repair.n) for repair in trace.repairs] == [("impossible duration", 1)]


@pytest.mark.parametrize(
    "window", [(-(10**30), 10**30), (-(2**70), 11_000)], ids=["all", "from ever"]
)
def test_a_window_may_be_wider_than_all_time(
    event: Any, file_of: Any, window: tuple[int, int]
) -> None:
    """It holds what it holds."""
    assert len(read_kineto(file_of(event(ts=10)), window=window).events) == 1


@pytest.mark.parametrize(
    ("fields", "thread"),
    [
        ({"args": {"name": ["a"]}}, "['a']"),
        ({"args": {"name": {"a": 1}}}, "{'a': 1}"),
        ({"args": {"name": "\ud800"}}, "\ufffd"),
        ({"args": ["main"]}, ""),
        ({"args": {"name": None}}, ""),
    ],
)
def test_the_name_of_a_thread_may_be_anything(
    event: Any, file_of: Any, fields: dict[str, Any], thread: str
) -> None:
    """A name is text that can be printed; what is no name is none."""
    name = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main"}}

    lanes = read_kineto(file_of(event(), name | fields)).events.lanes

    assert lanes.thread == (thread,)


def test_a_metadata_event_that_names_nothing_is_a_repair(event: Any, file_of: Any) -> None:
    """Its own name is a list: nobody knows what it is about."""
    nameless = {"ph": "M", "name": ["thread_name"], "pid": 1, "tid": 1, "args": {"name": "main"}}

    trace = read_kineto(file_of(event(), nameless))

    assert trace.events.lanes.thread == ("",)
    assert [(repair.kind, repair.n) for repair in trace.repairs] == [("unreadable metadata", 1)]


@pytest.mark.parametrize("tid", ["9" * 5000, "²", "stream " + "9" * 5000, "٣", 10**39])
def test_a_row_may_be_named_by_anything_like_a_number(event: Any, file_of: Any, tid: Any) -> None:
    """What is no stream is no stream."""
    assert read_kineto(file_of(event(cat="kernel", tid=tid))).events.stream.tolist() == [-1]


# few steps for each byte


@pytest.mark.parametrize("one", [b"[]", b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1}]}'])
def test_documents_that_follow_each_other_have_a_limit(one: bytes) -> None:
    """Each is read ahead of; the limit is named, and reading stops there."""
    assert json_document.MAX_DOCUMENTS == 1000
    read_kineto(b"\n".join([one] * 1000))

    with pytest.raises(TraceLimitError, match="more than 1000 JSON documents") as caught:
        read_kineto(b"\n".join([one] * 50_000))

    assert caught.value.offset == 1000 * (len(one) + 1)


def test_a_header_of_many_keys_is_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in pieces of a size of their own: under a kilobyte for each key."""
    looked_at, peek = 0, PieceStream.peek

    def counted(self: PieceStream, n_bytes: int) -> Piece:
        nonlocal looked_at
        looked_at += n_bytes
        return peek(self, n_bytes)

    monkeypatch.setattr(PieceStream, "peek", counted)
    header = {f"key {k}": k for k in range(2000)}

    trace = read_kineto(json.dumps(header | {"traceEvents": []}).encode())

    assert trace.origin.metadata == header
    assert looked_at < 2000 * 1024


class _Counted(int):
    """A process that counts how often it is compared."""

    n = 0

    def __eq__(self, other: object) -> bool:
        type(self).n += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_a_process_is_not_compared_with_all_others() -> None:
    """A thousand names for a thousand processes: thousands of comparisons, not a million."""
    names = [
        {"name": "process_name", "pid": pid, "tid": 0, "args": {"name": f"rank {pid}"}}
        for pid in range(2000)
    ]

    lanes = lane_table([(_Counted(pid), 1) for pid in range(1000)], names)

    assert (len(lanes), lanes.process[1999]) == (2000, "rank 1999")
    assert _Counted.n < 10_000
