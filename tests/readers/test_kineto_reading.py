"""The Kineto reader on one file: times, ids, kinds, lanes, what is left out, and limits."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.errors import QueryError, TraceError, TraceFormatError, TraceLimitError
from htagraph.model.kinds import EventKind
from htagraph.model.progress import BYTES, Progress, listening
from htagraph.readers import byte_stream
from htagraph.readers.kineto import trace_document
from htagraph.readers.kineto.reader import read_kineto


def one(text: str) -> Any:
    """The trace of a bare list with one event."""
    return read_kineto(f"[{text}]".encode())


# times


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("12", 12_000),
        ("12.5", 12_500),
        ("12.005", 12_005),
        ("1716299299443212.345", 1_716_299_299_443_212_345),
        ("0.0004", 0),
        ("0.0005", 0),
        ("0.0015", 2),
        ("0.00150000000000000000000000001", 2),
        ("0.00050000000000000000000000001", 1),
        ("-3.25", -3_250),
        ("1.5e3", 1_500_000),
        ("25E-1", 2_500),
        ('"7.125"', 7_125),
    ],
)
def test_decimal_microseconds_become_exact_nanoseconds(text: str, ns: int) -> None:
    """Half a nanosecond goes to the even side; no float is involved."""
    assert one(
        f'{{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": {text}, "dur": 1}}'
    ).events.ts_ns.tolist() == [ns]


@given(st.integers(-(10**15), 10**15), st.integers(0, 999))
def test_three_decimals_are_nanoseconds(us: int, ns: int) -> None:
    """Any time that Kineto writes is read exactly."""
    trace = one(f'{{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": {us}.{ns:03}, "dur": 0.001}}')

    assert trace.events.ts_ns.tolist() == [us * 1000 + (ns if us >= 0 else -ns)]
    assert trace.events.dur_ns.tolist() == [1]


def test_base_time_is_added_in_integers_wherever_it_stands(event: Any) -> None:
    """Files of 2024 have it after the events."""
    data = (
        b'{"traceEvents": ['
        + json.dumps(event(ts=1.001)).encode()
        + b'], "baseTimeNanoseconds": 1711964646000000000}'
    )

    trace = read_kineto(data)

    assert (trace.origin.base_time_ns, trace.events.ts_ns.tolist()) == (
        1711964646000000000,
        [1711964646000001001],
    )


def test_times_too_late_to_be_microseconds_are_nanoseconds(event: Any, file_of: Any) -> None:
    """Some exporters write nanoseconds since the epoch into ``ts``."""
    trace = read_kineto(file_of(event(ts=1716299299443212345, dur=2500)))

    assert (trace.events.ts_ns.tolist(), trace.events.dur_ns.tolist()) == (
        [1716299299443212345],
        [2500],
    )
    assert [repair.kind for repair in trace.repairs] == ["time in nanoseconds"]


def test_a_duration_that_cannot_be_true_is_unknown(event: Any, file_of: Any) -> None:
    """Below zero, over seven days, or absent: 0, and counted."""
    trace = read_kineto(
        file_of(
            event(dur=-1),
            event(dur=7447424400000000.0),
            event(dur=604_800_000_000),
            event(dur=None),
        )
    )

    assert trace.events.dur_ns.tolist() == [0, 0, 604_800_000_000_000, 0]
    assert [(repair.kind, repair.n) for repair in trace.repairs] == [
        ("no duration", 1),
        ("impossible duration", 2),
    ]


def test_a_begin_and_its_end_are_one_event(event: Any, file_of: Any) -> None:
    """Halves nest per thread; what has no other half is said."""
    data = file_of(
        event("outer", ph="B", ts=1),
        event("inner", ph="B", ts=2),
        event("", ph="E", ts=3),
        event("other thread", ph="B", ts=3, tid=2),
        event("", ph="E", ts=9),
        event("", ph="E", ts=10),
        event("last", tid=2, ts=20, dur=5),
    )

    trace = read_kineto(data)

    found = dict(zip(trace.events.names(), trace.events.dur_ns.tolist(), strict=True))
    assert found == {"outer": 8_000, "inner": 1_000, "other thread": 22_000, "last": 5_000}
    assert [(repair.kind, repair.n) for repair in trace.repairs] == [
        ("begin without end", 1),
        ("end without begin", 1),
    ]


def test_an_operator_of_no_length_at_time_zero_is_no_defect(event: Any, file_of: Any) -> None:
    """Only where nothing of any length begins at 0 have times been lost."""
    trace = read_kineto(file_of(event("step", ts=0, dur=9), event("op", ts=0, dur=0)))

    assert (trace.events.names().tolist(), trace.repairs) == (["step", "op"], ())


# ids


def test_ids_beyond_int64_are_kept_as_their_bits(event: Any, file_of: Any) -> None:
    """Two's complement: distinct stays distinct, and the number can be had back."""
    trace = read_kineto(
        file_of(event(args={"Comms Id": 16253213563157461241}), event(args={"Comms Id": 2**64 - 1}))
    )

    assert trace.events.columns["comms_id"].value.astype("uint64").tolist() == [
        16253213563157461241,
        2**64 - 1,
    ]


def test_ids_beyond_64_bits_are_no_value_and_said(event: Any, file_of: Any) -> None:
    """Nothing is wrapped around in silence."""
    trace = read_kineto(
        file_of(event(args={"correlation": 2**64}), event(args={"correlation": -(2**63) - 1}))
    )

    assert trace.events.correlation.tolist() == [-1, -1]
    assert [(repair.kind, repair.n) for repair in trace.repairs] == [("number out of range", 2)]


def test_numeric_text_is_the_number_and_other_text_stays(event: Any, file_of: Any) -> None:
    """`"25738"` and 25738 are one thread."""
    trace = read_kineto(
        file_of(
            event(pid=25738, tid="25738"), event(pid="25738", tid=25738), event(pid="Spans", tid=-7)
        )
    )

    assert list(zip(trace.events.lanes.pid, trace.events.lanes.tid, strict=True)) == [
        (25738, 25738),
        ("Spans", -7),
    ]
    assert trace.events.lane.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("tid", "args", "stream"),
    [
        (7, {}, 7),
        ("stream 7", {}, 7),
        (1, {"stream": 20}, 20),
        (1, {"stream": "20"}, 20),
        (1, {"stream": "0x14"}, 20),
        (1, {"stream": -1}, -1),
        (1, {"stream": 4294967295}, -1),
        (1, {"stream": 140737488355328}, 140737488355328),
    ],
)
def test_stream_of_device_work(
    event: Any, file_of: Any, tid: Any, args: dict[str, Any], stream: int
) -> None:
    """What the args say, else the row; every way to write that there is none is -1."""
    trace = read_kineto(file_of(event(cat="kernel", pid=3, tid=tid, args=args)))

    assert (trace.events.stream.tolist(), trace.events.device.tolist()) == ([stream], [3])


def test_correlation_zero_is_an_id(event: Any, file_of: Any) -> None:
    """Only absence is -1."""
    trace = read_kineto(file_of(event(args={"correlation": 0, "External id": 0}), event()))

    assert (trace.events.correlation.tolist(), trace.events.external_id.tolist()) == (
        [0, -1],
        [0, -1],
    )


@given(st.lists(st.text(max_size=20), min_size=1, max_size=6))
def test_any_name_is_read_as_it_was_written(names: list[str]) -> None:
    """Escapes, quotes and every script; ``json.dumps`` writes, the reader reads."""
    events = [{"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": 1, "dur": 1} for name in names]
    for ensure_ascii in (True, False):
        trace = read_kineto(
            json.dumps(events, ensure_ascii=ensure_ascii).encode("utf-8", "replace")
        )
        expected = (
            [name.encode("utf-8", "replace").decode() for name in names]
            if not ensure_ascii
            else names
        )
        assert trace.events.names().tolist() == expected


def test_more_names_than_any_table_begins_with(event: Any, file_of: Any) -> None:
    """Tables grow; no name is lost."""
    names = [f"kernel_{k}_{'x' * (k % 90)}" for k in range(30_000)]

    trace = read_kineto(file_of(*(event(name, tid=k % 3000) for k, name in enumerate(names))))

    assert trace.events.names().tolist() == names
    assert len(trace.events.lanes) == 3000


# kinds


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"cat": "cpu_op"}, EventKind.OP),
        ({"cat": "Operator"}, EventKind.OP),
        ({"cat": "cpu_op", "name": "ProfilerStep#3"}, EventKind.ANNOTATION),
        ({"cat": "hip_api"}, EventKind.RUNTIME),
        ({"cat": "privateuse1_anything"}, EventKind.RUNTIME),
        ({"cat": "kernel", "name": "Stream Wait Event"}, EventKind.SYNC),
        ({"cat": "mtia_ccp_events", "name": "event_wait"}, EventKind.SYNC),
        ({"ph": "i", "cat": "kernel"}, EventKind.INSTANT),
        ({"ph": "C"}, EventKind.COUNTER),
        ({"cat": "cuda_event"}, EventKind.SYNC),
        ({"cat": "xpu_sync"}, EventKind.SYNC),
        ({"cat": "graph_event_node"}, EventKind.SYNC),
        ({"cat": "graph_host_node"}, EventKind.SYNC),
        ({"cat": "hpu_op"}, EventKind.RUNTIME),
        ({"cat": "collective_comm"}, EventKind.DEVICE_ANNOTATION),
        ({"cat": "xpu_scope_profiler"}, EventKind.COUNTER_RANGE),
        ({"cat": "hardware_counters"}, EventKind.COUNTER),
        ({"ph": "n"}, EventKind.INSTANT),
    ],
)
def test_kind_of_an_event(
    event: Any, file_of: Any, fields: dict[str, Any], kind: EventKind
) -> None:
    """One table, old and new categories; a few names overrule it."""
    assert read_kineto(file_of(event(**fields))).events.kind.tolist() == [kind]


# what is left out


def test_stacks_are_skipped_and_counted_unless_asked_for(event: Any, file_of: Any) -> None:
    """Python frames are most of many files, and no part of the graph."""
    data = file_of(event(), event("a.py(3): f", cat="python_function"))

    assert (len(read_kineto(data).events), read_kineto(data).skipped) == (1, {"python_function": 1})
    assert read_kineto(data, stacks=True).events.names().tolist() == ["aten::mm", "a.py(3): f"]


def test_categories_select_events(event: Any, file_of: Any) -> None:
    """Events of other categories are counted."""
    trace = read_kineto(
        file_of(event(), event("k", cat="kernel"), event("g", cat="gpu_memcpy")),
        categories=["kernel"],
    )

    assert (trace.events.names().tolist(), trace.skipped) == (["k"], {"cpu_op": 1, "gpu_memcpy": 1})


def test_a_window_selects_what_touches_it(event: Any) -> None:
    """Half open, on the clock of ``ts_ns``, also if the base time follows the events."""
    events = [
        event(name, ts=ts, dur=dur)
        for name, ts, dur in (("before", 0, 10), ("into", 5, 6), ("at", 10, 0), ("after", 20, 1))
    ]
    data = json.dumps({"traceEvents": events, "baseTimeNanoseconds": 1_000_000}).encode()

    trace = read_kineto(data, window=(1_010_000, 1_020_000))

    assert (trace.events.names().tolist(), trace.skipped) == (
        ["into", "at"],
        {"outside the window": 2},
    )


def test_a_window_that_ends_before_it_starts_is_an_error(event: Any, file_of: Any) -> None:
    """Nothing is loaded by mistake."""
    with pytest.raises(QueryError, match="ends before it starts"):
        read_kineto(file_of(event()), window=(2, 1))


def test_events_of_unknown_phases_are_counted(event: Any, file_of: Any) -> None:
    """Nothing vanishes."""
    assert read_kineto(file_of(event(), event(ph="O"))).skipped == {"phase 'O'": 1}


# files


@pytest.mark.parametrize(
    ("header", "name", "rank"),
    [
        ({"distributedInfo": {"rank": 3, "world_size": 8}}, "worker5.json", (3, "distributedInfo")),
        ({}, "worker5_step_12.pt.trace.json", (5, "file name")),
        ({}, "rank-34.Jul_15.json", (34, "file name")),
        ({}, "trace.json", (0, "default")),
    ],
)
def test_rank(
    file_of: Any, tmp_path: Path, header: dict[str, Any], name: str, rank: tuple[int, str]
) -> None:
    """The header, else the file's name, else 0 and say so."""
    (tmp_path / name).write_bytes(file_of(**header))

    trace = read_kineto(tmp_path / name)

    assert (trace.rank, trace.rank_source) == rank


def test_metadata_events_name_the_lanes(event: Any, file_of: Any) -> None:
    """Names may come after the events they are for."""
    names = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "process_labels", "pid": 1, "tid": 0, "args": {"labels": "CPU"}},
        {
            "ph": "M",
            "name": "thread_name",
            "pid": 1,
            "tid": "1",
            "args": {"name": "thread 1 (main)"},
        },
        {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": 1, "args": {"sort_index": 4}},
    ]

    lanes = read_kineto(file_of(event(), *names)).events.lanes

    assert (lanes.process[0], lanes.process_labels[0], lanes.thread[0], lanes.thread_sort[0]) == (
        "python",
        "CPU",
        "thread 1 (main)",
        4,
    )


def test_args_are_read_again_on_demand(event: Any, file_of: Any, tmp_path: Path) -> None:
    """Of a plain file, a compressed one, and a broken event."""
    args = {"Input Dims": [[2, 3]], "x": 1}
    data = file_of(
        event(args=args),
        '{"ph": "X", "name": "a "b" c", "ts": 1, "dur": 1, "args": {"y": NaN}}',
        event(),
    )
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(data))

    for source in (data, tmp_path / "t.json.gz"):
        assert read_kineto(source).origin.args.decode([2, 0, 1]) == [{}, args, {"y": None}]


@pytest.mark.parametrize("n_bytes", [0, 1_000])
def test_args_of_a_file_that_was_cut_since_say_so(tmp_path: Path, n_bytes: int) -> None:
    """Never the args of another event."""
    file = tmp_path / "rank0.json"
    events = [{"ph": "X", "ts": k, "name": "op", "args": {"k": k}} for k in range(100)]
    file.write_text(json.dumps(events))
    args = read_kineto(file).origin.args
    os.truncate(file, n_bytes)

    with pytest.raises(TraceError, match=r"rank0\.json: the file has changed since it was loaded"):
        args.decode([90])


def test_args_of_a_file_that_was_written_anew_say_so(tmp_path: Path) -> None:
    """Its events begin elsewhere."""
    file = tmp_path / "rank0.json"
    file.write_text(json.dumps([{"ph": "X", "ts": k, "name": "op"} for k in range(100)]))
    args = read_kineto(file).origin.args
    file.write_text(json.dumps([{"ph": "X", "ts": k, "name": "other"} for k in range(100)]))

    with pytest.raises(TraceError, match="the file has changed since it was loaded"):
        args.decode([50])


def test_progress_ends_at_the_size_of_the_file(event: Any, file_of: Any, tmp_path: Path) -> None:
    """In bytes of the file as it is on disk."""
    (tmp_path / "t.json.gz").write_bytes(
        gzip.compress(file_of(*(event(str(k)) for k in range(20_000))))
    )
    heard: list[Progress] = []

    with listening(heard.append):
        read_kineto(tmp_path / "t.json.gz")

    size = (tmp_path / "t.json.gz").stat().st_size
    assert [one.done for one in heard] == sorted(one.done for one in heard)
    assert heard[-1] == Progress("", BYTES, size, size)


def test_two_gzip_members_are_one_file(event: Any, file_of: Any) -> None:
    """As `cat a.gz b.gz` makes them."""
    data = file_of(event("a"), event("b"))

    assert read_kineto(
        gzip.compress(data[:50]) + gzip.compress(data[50:])
    ).events.names().tolist() == ["a", "b"]


def test_what_precedes_damage_in_gzip_is_kept(event: Any, file_of: Any) -> None:
    """A wrong checksum costs nothing but trust."""
    packed = bytearray(gzip.compress(file_of(*(event(str(k)) for k in range(100)))))
    packed[-6] ^= 1

    trace = read_kineto(bytes(packed))

    assert len(trace.events) == 100
    assert [repair.kind for repair in trace.repairs] == ["gzip damaged"]


# errors and limits


@pytest.mark.parametrize(
    "data",
    [b"hello", b"SQLite format 3\0", b"\x00\x01", b'"text"', b"[1, 2, 3]", b'{"traceEvents": 5}'],
)
def test_what_is_no_trace_is_refused(data: bytes) -> None:
    """One line, with the place."""
    with pytest.raises(TraceFormatError):
        read_kineto(data)


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (bz2.compress(b'{"traceEvents": []}'), "this is bzip2; decompress it first."),
        (lzma.compress(b'{"traceEvents": []}'), "this is xz; decompress it first."),
        (b"PK\x03\x04", "this is a zip archive; extract it first."),
        ('{"traceEvents": []}'.encode("utf-16"), "this is UTF-16; traces are UTF-8."),
        ('{"traceEvents": []}'.encode("utf-16-be"), "this is UTF-16; traces are UTF-8."),
    ],
    ids=["bzip2", "xz", "zip", "utf-16", "utf-16-be"],
)
def test_what_would_be_a_trace_is_told_how(data: bytes, hint: str) -> None:
    with pytest.raises(TraceFormatError) as refused:
        read_kineto(data)

    assert refused.value.hint == hint


def test_an_empty_event_list_is_a_trace_without_events() -> None:
    """It was written by the profiler, and nothing happened."""
    trace = read_kineto(b'{"traceEvents": []}')

    assert (len(trace.events), trace.repairs) == (0, ())


@pytest.mark.parametrize(
    "window", [("a", "b"), (None, 1), (1,), (1, 2, 3), 5, "ab", (2.0, float("nan"))]
)
def test_what_is_no_window_is_told(window: Any) -> None:
    with pytest.raises(QueryError, match="window"):
        read_kineto(b'{"traceEvents": []}', window=window)


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3_000, "a\0b"], ids=["long", "deep", "null"])
def test_a_name_that_no_file_can_have_is_an_error_of_ours(name: str) -> None:
    """Not that of the operating system."""
    for read in (hg.load, hg.load_job, hg.load_graph):
        with pytest.raises(TraceError):
            read(name)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """The package's own error, not that of the operating system."""
    with pytest.raises(TraceError, match=r"absent\.json: no such file"):
        read_kineto(tmp_path / "absent.json")
    with pytest.raises(TraceError, match="no such file"):
        read_kineto(tmp_path / "a\0b")
    with pytest.raises(TraceError, match="File name too long"):
        read_kineto(tmp_path / ("a" * 400))
    with pytest.raises(TraceError, match="is a folder"):
        read_kineto(tmp_path)


@pytest.mark.parametrize("where", ['"args": {"x": %s}', '"name": %s'])
def test_absurd_nesting_is_an_error(where: str) -> None:
    """Deeper than `MAX_DEPTH`; the place is said."""
    nested = "[" * 100_000 + "]" * 100_000

    with pytest.raises(TraceLimitError, match="nested more than 256 deep") as caught:
        one('{"ph": "X", "ts": 1, "dur": 1, ' + where % nested + "}")

    assert caught.value.offset == 1


def test_an_event_larger_than_the_limit_is_an_error(
    monkeypatch: pytest.MonkeyPatch, event: Any, file_of: Any
) -> None:
    """Memory is bounded by the largest event that is allowed."""
    monkeypatch.setattr(trace_document, "MAX_VALUE", 1 << 16)

    with pytest.raises(TraceLimitError, match="a single value is larger than"):
        read_kineto(file_of(event(), event("x" * 10_000_000), event()))


def test_a_decompression_bomb_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kilobyte that unpacks to a megabyte is no trace."""
    monkeypatch.setattr(byte_stream, "RATIO_FROM", 1 << 20)

    with pytest.raises(TraceLimitError, match="decompression bomb"):
        read_kineto(gzip.compress(b"[" + b" " * (1 << 24) + b"]"))


def test_importing_the_reader_imports_no_compiler() -> None:
    """Numba comes with the first file."""
    code = "import sys, htagraph.readers.kineto; sys.exit('numba' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
