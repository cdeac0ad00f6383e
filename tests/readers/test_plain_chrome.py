"""Chrome traces of any program: slices without the categories of PyTorch's profiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import htagraph as hg
from htagraph.model.kinds import EventKind
from htagraph.readers.kineto.reader import read_kineto


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
