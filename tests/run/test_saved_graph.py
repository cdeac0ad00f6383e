"""A saved graph is read back unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from htagraph import Trace, TraceGraph, load
from htagraph.errors import TraceFormatError
from htagraph.model.archive import pack
from tests.drawn import drawn_graph
from tests.fuzzing import graphs
from tests.fuzzing.graphs import Arrays
from tests.synth.simulator import simulate
from tests.synth.strategies import programs


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs(max_blocks=3))
def test_every_array_survives(tmp_path, program):
    """Events, edges, bindings, names: all of it."""
    graph = Trace.from_events(simulate(program).events, rank=3).compile()
    again = TraceGraph.open(graph.save(tmp_path / "graph.npz"))
    before, after = (pack(g.dag, rank=g.rank, origin=g.origin) for g in (graph, again))

    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert repr(graph) == repr(again)


def test_names_of_any_content_survive():
    """A name may hold what is no valid text."""
    from htagraph.model.archive import unpack

    graph = drawn_graph("cpu 1 |[op  ]", names={"op": "a\ud800\n\u0000é"})
    dag, _, _ = unpack(pack(graph.dag, rank=0, origin=None))

    assert dag.events.names()[0] == "a\ud800\n\u0000é"


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 broken"])
def test_what_is_no_graph_is_refused_clearly(tmp_path, content):
    """One line, not a trace of calls."""
    path = tmp_path / "broken.npz"
    path.write_bytes(content)

    with pytest.raises(TraceFormatError, match="not a valid saved graph"):
        TraceGraph.open(path)


def test_a_pickle_in_the_file_is_not_executed(tmp_path):
    """Object arrays are refused."""
    path = tmp_path / "pickled.npz"
    np.savez(
        path, **{"facts.bytes": np.array([{}], dtype=object), "facts.offsets": np.array([0, 1])}
    )

    with pytest.raises(TraceFormatError):
        TraceGraph.open(path)


@pytest.fixture
def arrays() -> Arrays:
    return dict(graphs.arrays())


def _set(name: str, place: int, value: int) -> Callable[[Arrays], None]:
    def tamper(arrays: Arrays) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name][place] = value

    return tamper


def _change(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Arrays], None]:
    def tamper(arrays: Arrays) -> None:
        arrays[name] = change(arrays[name])

    return tamper


def _facts(**changed: Any) -> Callable[[Arrays], None]:
    def tamper(arrays: Arrays) -> None:
        facts = json.loads(arrays["facts.bytes"].tobytes()) | changed
        text = json.dumps(facts).encode()
        arrays["facts.bytes"] = np.frombuffer(text, dtype=np.uint8)
        arrays["facts.offsets"] = np.array([0, len(text)])

    return tamper


def _own_parent(arrays: Arrays) -> None:
    arrays["dag.parent"] = arrays["dag.parent"].copy()
    arrays["dag.parent"][:2] = 1, 0


def _bound_early(arrays: Arrays) -> None:
    """Of the edges into some node, the one that arrives first binds it."""
    times = np.stack([arrays["events.ts_ns"], arrays["events.ts_ns"] + arrays["events.dur_ns"]], 1)
    head = arrays["edges.head"]
    arrival = times.ravel()[arrays["edges.tail"]] + arrays["edges.lag_ns"]
    before = np.flatnonzero((head[1:] == head[:-1]) & (arrival[1:] != arrival[:-1]))[0]
    arrays["dag.binding"] = arrays["dag.binding"].copy()
    arrays["dag.binding"][head[before]] = before + int(arrival[before + 1] < arrival[before])


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (_set("edges.tail", 0, 2**31 - 1), "tail of the edges is out of range"),
        (_set("edges.head", 0, -1), "head of the edges is out of range"),
        (_set("edges.rule", 0, 99), "rule of the edges is out of range"),
        (_set("edges.lag_ns", 0, 2**62), "an edge runs backward in time"),
        (_set("edges.lag_ns", 0, -5), "a lag is below zero"),
        (_set("events.name", 0, 10**6), "name of an event is out of range"),
        (_set("events.lane", 3, -1), "lane is out of range"),
        (_set("events.kind", 3, 120), "kind of an event is out of range"),
        (_set("events.ts_ns", 3, 2**63 - 1), "ts_ns is out of range"),
        (_set("events.dur_ns", 3, -1), "dur_ns of an event is out of range"),
        (_set("dag.parent", 0, 10**6), "parent of an event is out of range"),
        (_own_parent, "an event is its own parent"),
        (_set("dag.binding", 1, 10**6), "binding is out of range"),
        (_bound_early, "an edge binds that is not the last"),
        (_change("dag.order", lambda a: a[::-1].copy()), "order is cyclic"),
        (_change("dag.order", np.zeros_like), "order lacks nodes"),
        (_change("dag.launch", lambda a: a[:-1]), "launch of the events is int32 of shape"),
        (_change("events.ts_ns", lambda a: a.astype(float)), "ts_ns of the events is float64"),
        (_change("events.ts_ns", lambda a: a.astype(">i8")), "ts_ns of the events is >i8"),
        (_change("edges.kind", lambda a: a[:, None]), "kind of the edges is int8 of shape"),
        (_change("edges.kind", lambda a: a[:3]), "edge columns differ in length"),
        (_change("events.ts_ns", lambda a: a[0]), "unsized object"),
        (_facts(lanes={}), "lane is out of range"),
        (_facts(span={"start_ns": 0, "end_ns": 2**60, "name": "x"}), "not that of the work"),
        (_facts(span={"start_ns": "0", "end_ns": 9, "name": "x"}), "not supported between"),
        (_facts(calibration={"launch_latency_ns": None}), "the calibration is no numbers"),
        (_facts(rank="0"), "its rank or its time is no number"),
        (_facts(notes=[]), "the notes are no numbers"),
    ],
)
def test_a_graph_that_was_tampered_with_is_refused_in_a_line(
    tmp_path: Path, arrays: Arrays, tamper: Callable[[Arrays], None], message: str
) -> None:
    """Its indices lead out of the arrays, its order is a circle: compiled code would follow."""
    path, broken = tmp_path / "graph.npz", dict(arrays)
    tamper(broken)
    np.savez(path, **broken)

    with pytest.raises(TraceFormatError, match=message) as refused:
        TraceGraph.open(path)
    assert str(refused.value).startswith(f"{path}: not a valid saved graph: ")
    assert "\n" not in str(refused.value)


def test_a_compressed_archive_is_refused(tmp_path: Path, arrays: Arrays) -> None:
    """A saved graph is not compressed, so no small file can become a large one."""
    np.savez_compressed(tmp_path / "graph.npz", **arrays)

    with pytest.raises(TraceFormatError, match="it is compressed"):
        TraceGraph.open(tmp_path / "graph.npz")


def test_a_saved_graph_keeps_what_its_file_lost(tmp_path):
    """Its verdict says so, too."""
    event = b'{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 5, "dur": 2}'
    graph = load(b'{"traceEvents": [' + event + b', {"ph": "X", "ca').compile()
    again = TraceGraph.open(graph.save(tmp_path / "graph.npz"))

    assert again.damage()["kind"].tolist() == ["cut file"]
    assert again.verdict().damage == graph.verdict().damage
