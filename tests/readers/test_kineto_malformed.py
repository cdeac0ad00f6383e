"""Malformed files that users reported: each opens with its repair recorded, or fails clearly."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from htagraph.errors import TraceFormatError
from htagraph.readers.kineto.reader import read_kineto
from htagraph.readers.kineto.rewriting import repair_kineto
from tests.readers.malformed_files import MALFORMED, written

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
