"""Headers that are not JSON: what profilers write around the events is read key by key."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from htagraph.errors import TraceLimitError
from htagraph.model.recording import Recording
from htagraph.readers.kineto import trace_document
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
