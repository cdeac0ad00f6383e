"""Broken Kineto files: what is repaired, what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.errors import TraceFormatError
from htagraph.model.recording import Recording
from htagraph.readers.kineto.reader import read_kineto
from htagraph.readers.kineto.rewriting import repair_kineto
from tests.readers.malformed_files import MALFORMED, written

NAMES = st.sampled_from(
    ["aten::mm", "Memcpy HtoD (Pageable -> Device)", 'é \\ " /', "void f<int>(int*)", ""]
)


@st.composite
def traces(draw: st.DrawFn) -> list[str]:
    """Draw the texts of the events of a valid trace, compact or indented."""
    n = draw(st.integers(2, 12))
    indent = draw(st.sampled_from([None, 2]))
    events = []
    for k in range(n):
        event: dict[str, Any] = {
            "ph": "X",
            "cat": draw(st.sampled_from(["cpu_op", "kernel"])),
            "name": draw(NAMES),
        }
        event |= {
            "pid": 1,
            "tid": draw(st.integers(-3, 3)),
            "ts": 10 * k,
            "dur": draw(st.integers(1, 9)),
        }
        if draw(st.booleans()):
            event["args"] = {"External id": k, "Input Dims": [[k], []], "Call stack": draw(NAMES)}
        events.append(json.dumps(event, indent=indent))
    return events


def read(texts: list[str | bytes], end: bytes = b'\n], "traceName": "x"}') -> Recording:
    """Read a file of events."""
    events = [text if isinstance(text, bytes) else text.encode() for text in texts]
    return read_kineto(b'{"schemaVersion": 1, "traceEvents": [\n' + b",\n".join(events) + end)


def rows(trace: Recording) -> list[tuple[Any, ...]]:
    """The events as tuples, without their number."""
    return list(trace.events.frame().drop(columns="event").itertuples(index=False, name=None))


def odd(name: bytes = b"odd", args: bytes = b"") -> bytes:
    """An event whose name and args are as given."""
    return (
        b'{"ph": "X", "cat": "cpu_op", "name": "'
        + name
        + b'", "pid": 1, "tid": 1, "ts": 5, "dur": 1, "args": {'
        + args
        + b"}}"
    )


IN_NAME = {
    b'{"device": "cpu"}(12): run': ('{"device": "cpu"}(12): run', "raw quote"),
    b'Library("x", "IMPL")': ('Library("x", "IMPL")', "raw quote"),
    b'say "hello", he said': ('say "hello", he said', "raw quote"),
    b'{"a": "b", "c": "d"}(3)': ('{"a": "b", "c": "d"}(3)', "raw quote"),
    b"first\nsecond": ("first\nsecond", "control byte"),
    b"|||S\x01(1)": ("|||S\x01(1)", "control byte"),
    b"nul\x00nul": ("nul\x00nul", "control byte"),
    b"config.py: \xff\xfe!": ("config.py: \ufffd\ufffd!", "invalid UTF-8"),
    b"cut \xe2\x82": ("cut \ufffd\ufffd", "invalid UTF-8"),
    b"torch\\cuda\\__init__.py": ("torch\\cuda\\__init__.py", "bad escape"),
    b"C:\\new\\x": ("C:\\new\\x", "bad escape"),
    b"\\u12": ("\\u12", "bad escape"),
}
IN_ARGS = {
    b'"memory bandwidth (GB/s)": inf': "not a number",
    b'"x": NaN, "y": -Infinity': "not a number",
    b'"src": 0x7f162bc09600': "hexadecimal number",
    b'"x": undefined': "bare word",
    b'"x": 1,': "comma",
    b'"x": [1, 2,]': "comma",
    b'"x": 007': "bare word",
    b'"x": ': "bare word",
    b'"log": "he said "no", twice"': "raw quote",
}


@pytest.mark.some(1)
@pytest.mark.parametrize("name", IN_NAME)
@given(texts=traces(), data=st.data())
def test_a_broken_name_is_read_and_no_other_event_changes(
    name: bytes, texts: list[str], data: st.DataObject
) -> None:
    """The event with the broken name is kept, its name as it was meant."""
    at = data.draw(st.integers(0, len(texts)))
    expected_name, repair = IN_NAME[name]

    trace = read([*texts[:at], odd(name), *texts[at:]])

    found = rows(trace)
    assert trace.events.names()[at] == expected_name
    assert found[:at] + found[at + 1 :] == rows(read(list(texts)))
    assert [(one.kind, one.n) for one in trace.repairs] == [(repair, 1)]


@pytest.mark.some(1)
@pytest.mark.parametrize("args", IN_ARGS)
@given(texts=traces(), data=st.data())
def test_broken_args_cost_no_event(args: bytes, texts: list[str], data: st.DataObject) -> None:
    """The event is kept, and so are all others."""
    at = data.draw(st.integers(0, len(texts)))

    trace = read([*texts[:at], odd(args=args), *texts[at:]])

    assert rows(trace) == rows(read([*texts[:at], odd(), *texts[at:]]))
    assert [(one.kind, one.n) for one in trace.repairs] == [(IN_ARGS[args], 1)]


@given(texts=traces(), data=st.data())
def test_a_file_cut_anywhere_keeps_all_whole_events(texts: list[str], data: st.DataObject) -> None:
    """Only the event that the cut goes through is lost."""
    whole = b'{"schemaVersion": 1, "traceEvents": [\n' + ",\n".join(texts).encode()
    ends = [
        len(b'{"schemaVersion": 1, "traceEvents": [\n' + ",\n".join(texts[: k + 1]).encode())
        for k in range(len(texts))
    ]
    cut = data.draw(st.integers(ends[0], len(whole)))

    trace = read_kineto(whole[:cut])

    assert rows(trace) == rows(read(list(texts[: sum(end <= cut for end in ends)])))
    assert "no end" in [one.kind for one in trace.repairs]


@given(texts=traces(), data=st.data())
def test_a_write_torn_by_another_costs_one_event(texts: list[str], data: st.DataObject) -> None:
    """Ranks that write to one file at once tear events apart; all that are whole are kept."""
    at = data.draw(st.integers(1, len(texts) - 1))
    stump = odd()[: data.draw(st.integers(1, len(odd()) - 12))]
    header = b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [\n'

    trace = read([*texts[:at], stump + header + texts[at].encode(), *texts[at + 1 :]])

    assert rows(trace) == rows(read(list(texts)))
    assert [one.kind for one in trace.repairs] == ["torn event"]


@given(texts=traces(), data=st.data(), separator=st.sampled_from([b"\n", b",,", b", ,\n", b""]))
def test_commas_too_many_or_too_few_cost_nothing(
    texts: list[str], data: st.DataObject, separator: bytes
) -> None:
    """Hand-edited files are read as they are meant."""
    at = data.draw(st.integers(1, len(texts) - 1))
    joined = ",\n".join(texts[:at]).encode() + separator + ",\n".join(texts[at:]).encode()

    trace = read([joined])

    assert rows(trace) == rows(read(list(texts)))
    assert [one.kind for one in trace.repairs] == ["comma"]


@given(texts=traces(), block=st.integers(1, 400), n_threads=st.integers(1, 3))
def test_where_the_bytes_are_cut_into_pieces_changes_nothing(
    texts: list[str], block: int, n_threads: int
) -> None:
    """Pieces are scanned ahead on a guess; a wrong guess costs time, never an event."""
    nested = '{"ph": "X", "name": "n", "pid": 1, "tid": 1, "ts": 3, "dur": 1, '
    nested += '"args": {"a": [{"b": 1}, {"ph": 2}, {"name": 3}]}}'
    content = [*texts, nested, odd(b'a "b" c').decode(), nested, *texts]

    assert pieced(content, block, n_threads) == rows(read(list(content)))


def pieced(texts: list[str], block: int, n_threads: int) -> list[tuple[Any, ...]]:
    """The rows of a file that is read in small pieces by some threads."""
    from htagraph.readers.event_filter import EventFilter
    from htagraph.readers.kineto import pieces, reader

    usual = pieces.BLOCK
    data = (
        b'{"schemaVersion": 1, "traceEvents": [\n'
        + ",\n".join(texts).encode()
        + b'\n], "traceName": "x"}'
    )
    pieces.BLOCK = block
    try:
        loaded = reader.load_file(data, EventFilter(), n_threads=n_threads)
    finally:
        pieces.BLOCK = usual
    return list(loaded.events.frame().drop(columns="event").itertuples(index=False, name=None))


OPENED = {
    "absolute_ns_ts.json": (["k"], []),
    "bare_array.json": (["k", "op"], []),
    "bare_array_open.json": (["k", "op"], ["open list"]),
    "bare_hex.json": (["op"], ["hexadecimal number"]),
    "bom.json": (["k"], ["byte order mark"]),
    "control_char_name.json": (["|||S\x01(1): <module>", "k"], ["control byte"]),
    "dup_key.json": (["k"], []),
    "gz_named_json.json": (["k"], ["gzip by another name"]),
    "huge_dur.json": (["k"], ["impossible duration"]),
    "inf_bandwidth.json": (["op"], ["not a number"]),
    "int_overflow_pid.json": (["k"], []),
    "interleaved_ranks.json": (["k", "k"], ["torn event"]),
    "invalid_utf8.json": (["config.py(0): \ufffd\ufffd", "k"], ["invalid UTF-8"]),
    "json_named_gz.json.gz": (["k"], ["not gzip"]),
    "metadata_only.json": ([], []),
    "nan_arg.json": (["op"], ["not a number"]),
    "negative_dur.json": (["k"], ["impossible duration"]),
    "negative_tid.json": (["k"], []),
    "newline_in_name.json": (["lib = Library(\n(1): <module>", "k"], ["control byte"]),
    "ok.json": (["k"], []),
    "partial_overlap_stream.json": (["k", "k"], []),
    "raw_backslash_path.json": (["torch\\cuda\\__init__.py(219)", "k"], ["bad escape"]),
    "string_tid_stream.json": (["k"], []),
    "trailing_comma.json": (["k"], ["comma"]),
    "truncated.json": (["k"], ["truncated", "no end"]),
    "truncated.json.gz": ([], ["truncated", "no end", "gzip truncated"]),
    "truncated_clean.json": (["k", "op"], ["no end"]),
    "ts_string.json": (["k"], ["number as text"]),
    "uint64_comms_id.json": (["op"], []),
    "unescaped_quote.json": (['{"device": "cpu"}(12): run', "k"], ["raw quote"]),
    "zero_ts_half.json": (["k"], ["zero timestamp"]),
}
REFUSED = {
    "empty.json": "the file is empty. Hint: was the profiler stopped before it could export?",
    "no_traceEvents.json": "this JSON has no event list (`traceEvents`). "
    "Hint: is it a trace of torch.profiler?",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all malformed files."""
    return written(tmp_path_factory.mktemp("malformed"))


def test_every_malformed_file_has_an_outcome() -> None:
    """A file that is added there must be added here."""
    assert MALFORMED.keys() == OPENED.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", OPENED)
def test_opens_with_its_repair_recorded(folder: Path, name: str) -> None:
    """All events that can be placed are there, and what was mended is said."""
    trace = read_kineto(folder / name)

    assert (trace.events.names().tolist(), [repair.kind for repair in trace.repairs]) == OPENED[
        name
    ]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_trace_fails_with_one_line(folder: Path, name: str) -> None:
    """The error names the file and what to do."""
    with pytest.raises(TraceFormatError) as caught:
        read_kineto(folder / name)

    assert str(caught.value) == f"{folder / name}: {REFUSED[name]}"


@pytest.mark.parametrize("name", OPENED)
def test_repaired_file_is_valid_json_with_the_same_events(folder: Path, name: str) -> None:
    """A strict parser reads what the repair wrote, and the reader reads the same events from it."""
    file = io.BytesIO()

    repair_kineto(folder / name, file)

    json.loads(file.getvalue(), parse_constant=pytest.fail)
    assert (
        read_kineto(file.getvalue())
        .events.frame()
        .equals(read_kineto(folder / name).events.frame())
    )


def test_times_are_exact_where_float64_is_not(folder: Path) -> None:
    """Absolute microseconds with three decimals need 19 digits."""
    assert read_kineto(folder / "absolute_ns_ts.json").events.ts_ns.tolist() == [
        1716299299443212345
    ]
