"""Formats that are none of ours: plain Chrome, JAX, VizTracer's layout."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import htagraph as hg
from htagraph.errors import TraceFormatError
from htagraph.lookup.programs import user_ranges
from htagraph.model.kinds import EventKind
from htagraph.readers.kineto.reader import read_kineto
from tests.real_traces import CAPTURES


class Runs:
    """What runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Run it."""
        return os.system, (self.command,)


def field(number: int, content: bytes) -> bytes:
    """A field of a protobuf message: bytes with their length."""
    return bytes([number << 3 | 2, len(content)]) + content


SNAPSHOT = {"segments": [{"device": 0, "address": 1}], "device_traces": [[]]}
DUMP = {"version": "2.10", "pg_config": {"0": {}}, "entries": [{"collective_seq_id": 1}]}
PLANE = b"\x08\x01" + field(2, b"/device:GPU:0") + field(3, b"\x08\x07")
CONTENTS = {
    "a memory snapshot": (pickle.dumps(SNAPSHOT), "pytorch.org/memory_viz"),
    "a flight recorder dump": (pickle.dumps(DUMP), "htagraph hang"),
    "a flight recorder dump ": (json.dumps(DUMP).encode(), "htagraph hang"),
    "a pickle": (pickle.dumps([1, 2]), "memory snapshot"),
    "an XPlane": (field(1, PLANE), "TensorBoard"),
    "an XPlane ": (field(1, field(2, b"/host:CPU")), "trace.json.gz"),
    "a report of Nsight Compute": (b"NVR\0\x01\0\0\0", "ncu --import"),
    "a Chakra execution trace": (b"\x07" + field(1, b"0.0.4"), "Chakra"),
    "a timeline of all workers": (
        json.dumps(
            [{"name": "thread_name", "args": {"name": "PP rank 0, TP rank 0, compute"}}]
        ).encode(),
        "StragglerAnalysis",
    ),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_format_is_recognized_by_its_content(name: str, tmp_path: Path) -> None:
    """Whatever the file is called, and packed or not."""
    content, tool = CONTENTS[name]
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(content))

    for source in (content, packed):
        with pytest.raises(TraceFormatError, match=f"this is {name.strip()}") as caught:
            hg.load(source)
        assert tool in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("host.xplane.pb", "an XPlane"),
        ("gemm.ncu-rep", "a report of Nsight Compute"),
        ("snapshot.pickle", "a pickle"),
        ("rank0.et", "a Chakra"),
        ("run.rpd", "a database of ROCm"),
    ],
)
def test_else_by_its_name(name: str, what: str, tmp_path: Path) -> None:
    """A trace with such a name is a trace."""
    file = tmp_path / name
    file.write_bytes(b"\x03nothing known")
    with pytest.raises(TraceFormatError, match=f"this is {what}"):
        hg.load(file)

    file.write_bytes(gzip.decompress(hg.demo_trace("none").read_bytes()))
    assert len(hg.load(file).events)


def test_dumps_of_pytorch_are_recognized() -> None:
    (dump, *_) = sorted((CAPTURES / "flight_recorder").glob("*rank0*"))

    with pytest.raises(TraceFormatError, match="a flight recorder dump of PyTorch"):
        hg.load(dump)


def test_a_trace_that_names_process_groups_is_a_trace() -> None:
    """Its events are far behind; dumps of the flight recorder have the same keys."""
    groups = [{"pg_name": str(k), "pg_desc": "x" * 60} for k in range(90)]
    info = {"distributedInfo": {"rank": 3, "nccl_version": "2.10", "pg_config": groups}}
    event = {"ph": "X", "cat": "cpu_op", "name": "mm", "pid": 1, "tid": 1, "ts": 5, "dur": 2}
    for first in ({"schemaVersion": 1}, {}, {"version": 1}):
        document = first | info | {"traceEvents": [event]}

        assert hg.load(json.dumps(document).encode()).rank == 3


def test_a_database_of_rocm_is_told_by_its_tables(tmp_path: Path) -> None:
    file = tmp_path / "1_results.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE rocpd_kernel_dispatch_0 (id INTEGER)")

    with pytest.raises(TraceFormatError, match="a database of ROCm") as caught:
        hg.load(file)
    assert "rocpd convert" in str(caught.value.hint)


def test_traces_of_jax_are_read() -> None:
    """What XProf writes next to an XPlane is Chrome JSON."""
    rows = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "X", "pid": 1, "tid": 7, "ts": 10.5, "dur": 3.25, "name": "fusion.1"},
        {},
    ]
    document = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": rows}

    assert hg.load(gzip.compress(json.dumps(document).encode())).events["name"].tolist() == [
        "fusion.1"
    ]


def said_of(path: Path) -> str:
    """The error of `htagraph info`, in one line."""
    command = [sys.executable, "-m", "htagraph.cli.start", "info", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    return done.stderr


def test_the_command_says_what_a_file_is_and_runs_nothing(tmp_path: Path) -> None:
    """Also in a folder without traces, whose files have no ending."""
    file = tmp_path / "nccl_trace_rank_0"
    file.write_bytes(pickle.dumps({"pg_config": Runs(f"touch {tmp_path}/ran")}))

    assert said_of(file) == (
        f"error: {file}: this is a flight recorder dump of PyTorch, which is no trace of one rank. "
        f"Hint: `htagraph hang {tmp_path}` reads the dumps of all ranks.\n"
    )
    assert "nccl_trace_rank_0 is a flight recorder dump of PyTorch" in said_of(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["nccl_trace_rank_0"]


def test_a_report_of_nsight_compute_is_not_a_companion(tmp_path: Path) -> None:
    file = tmp_path / "gemm.ncu-rep"
    file.write_bytes(b"NVR\0")

    with pytest.raises(TraceFormatError, match="a report of Nsight Compute") as caught:
        hg.load(hg.demo_trace("none"), beside=[file])
    assert "--csv --page raw" in str(caught.value.hint)


FILE = CAPTURES / "jax" / "steps.trace.json.gz"
"""Five steps, each with a sleep of 20 ms in `make_batch`."""


@pytest.fixture(scope="module")
def trace() -> hg.Trace:
    return hg.load(FILE)


def test_it_opens_without_a_defect(trace):
    """Its list of events ends in ``{}``."""
    assert gzip.decompress(FILE.read_bytes()).endswith(b",{}]}")
    assert trace.repairs.empty
    assert trace.compile().damage().empty


def test_numbered_annotations_are_steps(trace):
    found = trace.steps

    assert found["name"].tolist() == ["train"] * 5
    assert set(found["found_by"]) == {"step number"}
    assert (found["dur_ns"] > 20_000_000).all()


def test_the_other_annotations_are_functions(trace):
    """Each step calls it once."""
    found = trace.compile().window("trace").operator_breakdown().set_index("name")

    assert found.loc["make_batch", "n_calls"] == 5


def test_a_step_is_no_range_of_the_user(trace):
    dag = trace.compile().dag
    _, ranges = user_ranges(dag, np.arange(len(dag.events)))

    assert ranges.tolist() == [""]


@pytest.mark.parametrize(
    ("more", "repaired"), [({}, []), ({"name": "lost"}, ["no phase"]), ({"args": {}}, ["no phase"])]
)
def test_only_an_empty_event_is_padding(more, repaired):
    event = {"ph": "X", "name": "work", "pid": 1, "tid": 1, "ts": 0, "dur": 10}
    text = json.dumps({"traceEvents": [event, more]})

    assert hg.load(text.encode()).repairs["kind"].tolist() == repaired


def slice_(name: str, ts: float, dur: float, **fields: Any) -> dict[str, Any]:
    """A slice of a thread, in microseconds."""
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1} | fields


def point(ph: str, name: str, ts: float, **fields: Any) -> dict[str, Any]:
    """What has a time and no duration."""
    return {"ph": ph, "name": name, "ts": ts, "pid": 1, "tid": 1} | fields


def file_of(*events: dict[str, Any], **header: Any) -> bytes:
    return json.dumps({"traceEvents": events, **header}).encode()


def test_slices_of_any_category_are_what_threads_did():
    graph = hg.load(
        file_of(
            slice_("main", 0, 10, cat="mine"),
            point("B", "inner", 2, cat="mine"),
            point("E", "inner", 5, cat="mine"),
        )
    ).compile()

    segments = graph.critical_path().segments
    assert segments[["name", "dur_ns"]].to_numpy().tolist() == [
        ["main", 2000],
        ["inner", 3000],
        ["main", 5000],
    ]


def test_a_profile_of_pytorch_stays_one():
    """One operator of PyTorch, and slices of other categories are context as before."""
    kinds = read_kineto(
        file_of(slice_("f", 0, 10, cat="mine"), slice_("aten::mm", 0, 10, cat="cpu_op"))
    ).events.kind.tolist()

    assert kinds == [EventKind.OTHER, EventKind.OP]


def test_what_is_asked_for_does_not_change_what_a_file_is():
    """The operator is neither in the window nor of the category, but it is in the file."""
    data = file_of(slice_("f", 0, 10, cat="mine"), slice_("aten::mm", 50, 10, cat="cpu_op"))

    by_window = read_kineto(data, window=(0, 20_000)).events
    by_category = read_kineto(data, categories=["mine"]).events
    assert by_window.kind.tolist() == by_category.kind.tolist() == [EventKind.OTHER]


def test_the_unit_of_display_is_no_unit_of_time():
    events = read_kineto(file_of(slice_("f", 1.5, 2), displayTimeUnit="ns")).events

    assert (events.ts_ns.tolist(), events.dur_ns.tolist()) == ([1500], [2000])


def test_a_range_on_no_thread_is_context_from_its_begin_to_its_end():
    """Begin and end share process, category and id; they may be on two threads."""
    request = {"cat": "net", "id": "0x7"}
    local = {"cat": "net", "id2": {"local": "a b"}}
    recording = read_kineto(
        file_of(
            slice_("f", 0, 1),
            point("b", "request", 5, **request),
            point("b", "part", 6, **request),
            point("b", "other", 7, **local),
            point("n", "mark", 7, **request),
            point("e", "part", 8, **request, tid=2),
            point("e", "request", 50, **request, tid=2),
            point("e", "other", 60, **local),
        )
    )

    found = recording.events.frame().iloc[1:]
    assert found[["name", "kind", "ts_ns", "dur_ns"]].to_numpy().tolist() == [
        ["request", "async", 5_000, 45_000],
        ["part", "async", 6_000, 2_000],
        ["other", "async", 7_000, 53_000],
        ["mark", "instant", 7_000, 0],
    ]
    assert recording.skipped == {}


def test_each_value_of_a_counter_is_a_series():
    recording = read_kineto(
        file_of(
            slice_("f", 0, 30),
            point("C", "memory", 20, args={"used": 3, "free": 1.5}),
            point("C", "memory", 10, args={"used": 4, "free": "none"}),
            point("C", "load", 10, args={"value": 7}),
        )
    )

    samples = recording.events.samples
    values = {
        series.name: samples.value[samples.series == number].tolist()
        for number, series in enumerate(samples.all_series)
    }
    assert recording.skipped == {"counter value that is no number": 1}
    assert values == {"memory: used": [4.0, 3.0], "memory: free": [1.5], "load": [7.0]}


def test_a_counter_too_large_for_a_number_is_no_sample():
    data = file_of(slice_("f", 0, 30), point("C", "load", 10, args={"a": 10**400, "b": 2}))
    recording = read_kineto(data)

    assert recording.events.samples.value.tolist() == [2.0]
    assert recording.skipped == {"counter value that is no number": 1}


def test_a_path_that_was_written_back_did_not_run(tmp_path: Path):
    graph = hg.load(file_of(slice_("f", 0, 10), slice_("g", 2, 3))).compile()
    again = hg.load(graph.critical_path().to_chrome_json(tmp_path / "path.json")).compile()

    def path(graph: hg.TraceGraph) -> list[list[Any]]:
        return graph.critical_path().segments[["name", "dur_ns"]].to_numpy().tolist()

    assert path(again) == path(graph)


def test_a_saved_graph_keeps_its_arrows_ranges_and_samples(tmp_path: Path):
    graph = hg.load(
        file_of(
            slice_("f", 0, 10),
            slice_("g", 20, 5, tid=2),
            point("b", "r", 1, cat="c", id=1),
            point("e", "r", 9, cat="c", id=1),
            point("s", "a", 5, cat="p", id=2),
            point("f", "a", 15, cat="p", id=2, tid=2),
            point("C", "load", 3, args={"value": 7}),
        )
    ).compile()
    again = hg.TraceGraph.open(graph.save(tmp_path / "graph.htagraph"))

    kept, was = again.dag.events, graph.dag.events
    assert kept.kind.tolist() == was.kind.tolist()
    assert kept.flows.phase.tolist() == was.flows.phase.tolist() == [0, 3]
    assert kept.samples.value.tolist() == [7.0]


def test_a_trace_of_functions_says_what_it_cannot_say():
    trace = hg.load(file_of(slice_("f", 0, 10)))

    quality = trace.compile().quality().set_index("check")["consequence"]
    assert quality["device work present"].startswith("a trace of functions, not of PyTorch")
    finding = hg.report(trace, write=False).verdict.findings[0]
    assert finding.title == "Program functions"
    assert "torch" not in finding.fix.do


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
