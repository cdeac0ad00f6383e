"""What a Kineto file says of itself, and how far its numbers go."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.errors import TraceLimitError
from htagraph.model.recording import Recording
from htagraph.readers.kineto import trace_document
from htagraph.readers.kineto.event_table import lane_table
from htagraph.readers.kineto.pieces import Piece, PieceStream
from htagraph.readers.kineto.reader import read_kineto

EVENTS = ", ".join(
    f'{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": 1, "ts": {ts}, "dur": 2}}'
    for name, ts in (("first", 1), ("second", 5))
)


def before_the_events(metadata: str) -> str:
    """A file as Kineto writes it: each key on a line of its own, metadata before the events."""
    return f"""{{
  "schemaVersion": 1,
  {metadata},
  "distributedInfo": {{"backend": "nccl", "rank": 3, "world_size": 4}},
  "baseTimeNanoseconds": 7,
  "traceEvents": [{EVENTS}],
  "traceName": "t.json"
}}"""


def after_the_events(metadata: str) -> str:
    """A file as older versions of Kineto wrote it: metadata after the events."""
    return f"""{{
  "schemaVersion": 1,
  "traceEvents": [{EVENTS}],
  {metadata},
  "distributedInfo": {{"backend": "nccl", "rank": 3, "world_size": 4}},
  "baseTimeNanoseconds": 7, "traceName": "t.json"
}}"""


LAYOUTS = pytest.mark.parametrize("layout", [before_the_events, after_the_events])


def header_of(trace: Recording) -> dict[str, Any]:
    """The header, of which the keys around the broken one were read."""
    header = dict(trace.origin.metadata)
    assert trace.events.names().tolist() == ["first", "second"]
    assert header.pop("distributedInfo") == {"backend": "nccl", "rank": 3, "world_size": 4}
    assert (header.pop("schemaVersion"), header.pop("baseTimeNanoseconds")) == (1, 7)
    assert header.pop("traceName") == "t.json"
    assert (trace.rank, trace.world_size, trace.origin.base_time_ns) == (3, 4, 7)
    return header


@LAYOUTS
@pytest.mark.parametrize(
    ("written", "value", "repair"),
    [
        ('"x(name="run")"', 'x(name="run")', "raw quote"),
        (
            '"Namespace(name=/"run one/", lr=0.1)"',
            'Namespace(name=/"run one/", lr=0.1)',
            "raw quote",
        ),
        ('"x(name="run", "b": 1)"', 'x(name="run", "b": 1)', "raw quote"),
        ('""quoted""', '"quoted"', "raw quote"),
        ('"a", b"', 'a", b', "raw quote"),
        ('"unclosed', "unclosed", "raw quote"),
        ('Namespace(a=1, b="x")', 'Namespace(a=1, b="x")', "bare word"),
        ('"C:\\new\\dir"', "C:\\new\\dir", "bad escape"),
        ('"two\nlines"', "two\nlines", "control byte"),
        ('{"a": "b"c", "rank": 9,\n "d": NaN}', {"a": 'b"c', "rank": 9, "d": None}, "raw quote"),
        (
            '{"a": "b"c",\n "d": "' + "d" * 9000 + '"}',
            {"a": 'b"c', "d": "d" * 9000},
            "raw quote",
        ),
        ('{"a": 1', None, "unreadable metadata"),
        ("[1, 2", None, "unreadable metadata"),
    ],
)
def test_a_broken_value_costs_no_other_key(
    layout: Callable[[str], str], written: str, value: object, repair: str
) -> None:
    """`add_metadata` writes what it is given; the value is kept as far as it can be read."""
    trace = read_kineto(layout(f'"args": {written}').encode())

    assert header_of(trace) == {"args": value}
    assert repair in [one.kind for one in trace.repairs]


@LAYOUTS
def test_a_broken_key_costs_itself(layout: Callable[[str], str]) -> None:
    """Reading goes on at the next key."""
    trace = read_kineto(layout('"a "key"": 1').encode())

    assert header_of(trace) == {}
    assert "unreadable metadata" in [one.kind for one in trace.repairs]


def test_thousands_of_broken_keys_are_an_error() -> None:
    """Each is searched for its end: the limit is said."""
    metadata = ",\n  ".join(f'"k{k}": {{"open": "x' for k in range(50_000))

    with pytest.raises(TraceLimitError, match=r"more than 1000 keys and values .* are not JSON"):
        read_kineto(before_the_events(metadata).encode())
    assert trace_document.MAX_BROKEN == 1000


@pytest.mark.parametrize("number", ["²", "--5", "9" * 5000, "", "rank", 2**70, -(2**70), 1.5, [3]])
def test_numbers_of_the_header_that_are_none_are_repairs(number: object) -> None:
    """The value is left out and the file read on."""
    info = {"rank": number, "world_size": number}
    header = {"baseTimeNanoseconds": number, "distributedInfo": info, "traceEvents": []}

    trace = read_kineto(json.dumps(header).encode())

    assert (trace.rank, trace.rank_source, trace.world_size) == (0, "default", None)
    assert trace.origin.base_time_ns == 0
    assert [(repair.kind, repair.n) for repair in trace.repairs] == [("unreadable metadata", 3)]


def test_more_ranks_than_any_job_has_are_a_repair() -> None:
    """A billion missing ones would be listed."""
    info = {"rank": 1 << 20, "world_size": 10**9}

    trace = read_kineto(json.dumps({"distributedInfo": info, "traceEvents": []}).encode())

    assert (trace.rank, trace.world_size) == (0, None)
    assert [(repair.kind, repair.n) for repair in trace.repairs] == [("unreadable metadata", 2)]


def test_an_integer_of_five_thousand_digits_is_a_repair() -> None:
    """Python refuses to read one; only that value is lost."""
    digits = "9" * 5000
    text = f'{{"distributedInfo": {{"rank": {digits}, "world_size": 4}}, "traceEvents": []}}'

    trace = read_kineto(text.encode())

    assert (trace.rank, trace.world_size) == (0, 4)
    assert [(repair.kind, repair.n) for repair in trace.repairs] == [("unreadable metadata", 1)]


def test_numbers_of_the_header_may_stand_as_text() -> None:
    """Some producers quote them."""
    info = {"rank": "3", "world_size": " 4 "}
    header = {"baseTimeNanoseconds": "-7", "distributedInfo": info, "traceEvents": []}

    trace = read_kineto(json.dumps(header).encode())

    assert (trace.rank, trace.world_size, trace.origin.base_time_ns) == (3, 4, -7)
    assert trace.repairs == ()


@pytest.mark.parametrize(
    ("warning", "repairs"),
    [
        ("CuptiActivityApi.cpp:258] Dropped 12 activity records", [("dropped records", 12)]),
        (
            "CuptiActivityApi.cpp:174] Exceeded max GPU buffer count (33 > 32) - terminating",
            [("full buffers", 1)],
        ),
        ("CuptiActivityApi.cpp:174] Requested GPU activity buffer", []),
    ],
)
def test_what_the_profiler_says_that_it_lost_is_counted(
    warning: str, repairs: list[tuple[str, int]]
) -> None:
    """Kineto keeps its warnings in the header."""
    said = json.dumps([f"WARNING:2026-01-08 08:51:59 865:3386 {warning}"])
    trace = read_kineto(f'{{"traceEvents": [], "WARNING": {said}}}'.encode())

    assert [(one.kind, one.n) for one in trace.repairs] == repairs
    assert {one.damage for one in trace.repairs} <= {"dropped events"}


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
    """Its own name is a list, so it names nothing."""
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
    assert trace_document.MAX_DOCUMENTS == 1000
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
