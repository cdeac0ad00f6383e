"""Execution traces: which node is which operator, and which operator wrote what it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import htagraph as hg
from htagraph.errors import HTAGraphError, TraceFormatError
from htagraph.model.events import EventTable, SparseColumn
from htagraph.model.recording import Recording
from htagraph.model.rules import Rule
from htagraph.readers.beside.execution_trace import is_execution_trace, with_execution_trace
from htagraph.synth import timeline
from tests.real_traces import CAPTURES

TWO_THREADS = """
    cpu 1    |[aten::mm ][aten::t]                    [aten::sum]
    cpu 2    |                      [aten::relu]
"""
FUNCTIONAL = "aten::f(Tensor self) -> Tensor"
VIEW = "aten::t(Tensor(a) self) -> Tensor(a)"
IN_PLACE = "aten::relu_(Tensor(a!) self) -> Tensor(a!)"
A, B, C = 101, 102, 103


def tensor(storage: int) -> list[Any]:
    return [storage + 1000, storage, 0, 16, 4, "cpu"]


def node(
    name: str,
    rf_id: int,
    *,
    reads: tuple[int, ...] = (),
    makes: tuple[int, ...] = (),
    schema: str = FUNCTIONAL,
    thread: int = 1,
) -> dict[str, Any]:
    """A node as PyTorch 2 writes it; its id is in the order of the ids of calls."""

    def side(storages: tuple[int, ...]) -> dict[str, Any]:
        return {
            "values": [tensor(storage) for storage in storages],
            "shapes": [[4, 4] for _ in storages],
            "types": ["Tensor(float)" for _ in storages],
            "strides": [],
        }

    attributes = {"rf_id": rf_id, "tid": thread, "op_schema": schema}
    return {
        "id": 10 * rf_id,
        "name": name,
        "ctrl_deps": 1,
        "inputs": side(reads),
        "outputs": side(makes),
        "attrs": [{"name": key, "type": "", "value": value} for key, value in attributes.items()],
    }


MM = node("aten::mm", 1, reads=(A,), makes=(B,))
T = node("aten::t", 2, reads=(B,), makes=(B,), schema=VIEW)
RELU = node("aten::relu", 3, reads=(B,), makes=(C,), thread=2)
SUM = node("aten::sum", 4, reads=(C,), makes=(104,))


def recorded(drawing: str = TWO_THREADS, *, ids: str = "record_function") -> EventTable:
    """Operators of a drawing; each has an id of its call, in order of start."""
    events = timeline(drawing)
    order = np.argsort(events.ts_ns, kind="stable")
    number = np.empty(len(events), dtype=np.int64)
    number[order] = np.arange(1, len(events) + 1)
    if ids == "external_id":
        return replace(events, external_id=number)
    column = {"record_function": SparseColumn(np.arange(len(events)), number)}
    return replace(events, columns=column) if ids else events


Added = Callable[..., Recording]


@pytest.fixture
def added(tmp_path: Path) -> Added:
    """A recording with an execution trace of some nodes."""

    def make(*nodes: dict[str, Any], events: EventTable | None = None) -> Recording:
        path = tmp_path / "et.json"
        path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes}))
        assert is_execution_trace(path)
        return with_execution_trace(Recording(recorded() if events is None else events), path)

    return make


def dependencies(recording: Recording) -> list[tuple[str, str]]:
    """Edges of tensors, from the end of one operator to the start of the other."""
    dag = hg.Trace(recording).compile().dag
    rows = dag.edges.take(dag.edges.rule == Rule.TENSOR_DEPENDENCY)
    assert (rows.tail & 1 == 1).all()
    assert (rows.head & 1 == 0).all()
    names = dag.events.names()
    return sorted(zip(names[rows.tail >> 1], names[rows.head >> 1], strict=True))


@pytest.mark.parametrize(
    ("ids", "found_by"),
    [
        ("record_function", "record function id"),
        ("external_id", "external id"),
        ("", "order of names (inferred)"),
    ],
)
def test_operators_are_matched_by_the_best_there_is(added: Added, ids: str, found_by: str):
    recording = added(MM, T, RELU, SUM, events=recorded(ids=ids))
    attached = recording.attached[0]

    assert (attached.n, attached.n_matched) == (4, 4)
    assert attached.detail.startswith(f"matched by {found_by};")
    frame = hg.Trace(recording).compile().execution_nodes()
    assert frame[["name", "node", "n_inputs"]].to_numpy().tolist() == [
        ["aten::mm", 10, 1],
        ["aten::t", 20, 1],
        ["aten::relu", 30, 1],
        ["aten::sum", 40, 1],
    ]


def test_an_id_with_another_name_is_no_match_and_counted(added: Added):
    attached = added(MM, T, RELU, node("aten::mean", 4), node("aten::late", 9)).attached[0]

    assert attached.n_matched == 3
    assert "2 nodes not in the trace" in attached.detail
    assert "1 pair of one id, but different names" in attached.detail


def test_a_file_of_another_run_matches_nothing_and_changes_nothing(added: Added):
    events = recorded()
    recording = added(node("aten::exp", 1), node("aten::log", 2), events=events)

    assert recording.attached[0].n_matched == 0
    assert recording.attached[0].detail.startswith("nothing matched")
    assert recording.events is events


def test_a_thread_reads_what_another_one_wrote(added: Added):
    """A view writes nothing; what one thread wrote and read is in order anyway."""
    assert dependencies(added(MM, T, RELU, SUM)) == [
        ("aten::mm", "aten::relu"),
        ("aten::relu", "aten::sum"),
    ]


def test_an_operator_writes_what_its_schema_says_it_changes(added: Added):
    """The schema of relu_ has an exclamation mark; it makes no storage."""
    in_place = node("aten::relu", 3, reads=(B,), makes=(B,), schema=IN_PLACE, thread=2)

    assert dependencies(added(MM, T, in_place, node("aten::sum", 4, reads=(B,)))) == [
        ("aten::mm", "aten::relu"),
        ("aten::relu", "aten::sum"),
    ]


def test_tensors_in_lists_are_tensors(added: Added):
    listed = node("aten::relu", 3, thread=2)
    listed["inputs"]["values"] = [[tensor(A), tensor(B)], [4, 4, 4, 4, 4, 4], 3]

    recording = added(MM, T, listed)
    assert dependencies(recording) == [("aten::mm", "aten::relu")]
    assert hg.Trace(recording).compile().execution_nodes()["n_inputs"].tolist() == [1, 1, 2]


def test_a_thread_that_records_nothing_until_the_tensor_is_there_waits_for_it(added: Added):
    """Without the execution trace the gap of thread 2 is time of its own."""
    events = recorded("""
        cpu 1    |[aten::mm                  ]
        cpu 2    |[aten::t]                     [aten::relu]
    """)
    at_start = [node("aten::mm", 1, makes=(B,)), node("aten::t", 2, thread=2)]
    recording = added(*at_start, node("aten::relu", 3, reads=(B,), thread=2), events=events)

    def path(recording: Recording) -> list[list[Any]]:
        segments = hg.Trace(recording).compile().critical_path().segments
        return segments[["name", "dur_ns"]].to_numpy().tolist()

    assert path(recording) == [
        ["aten::mm", 28_000],
        ["aten::relu", 2_000],
        ["aten::relu", 12_000],
    ]
    assert path(Recording(events))[0] == ["aten::t", 9_000]


def test_older_versions_have_their_attributes_beside_the_name(added: Added):
    old = {
        "name": "aten::mm", "id": 10, "rf_id": 1, "parent": 1, "tid": 1, "op_schema": FUNCTIONAL,
        "inputs": [tensor(A)], "input_shapes": [[4, 4]], "input_types": ["Tensor(float)"],
        "outputs": [tensor(B)], "output_shapes": [[4, 4]], "output_types": ["Tensor(float)"],
    }  # fmt: skip

    recording = added(old, T, RELU)
    assert dependencies(recording) == [("aten::mm", "aten::relu")]
    first = hg.Trace(recording).compile().execution_nodes().iloc[0]
    assert (first["op_schema"], first["input_shapes"]) == (FUNCTIONAL, "[[4,4]]")


def test_what_breaks_off_is_an_error_that_says_why(tmp_path: Path):
    path = tmp_path / "et.json"
    path.write_text('{"schema": "1.0", "nodes": [{"id": 1, "na')

    with pytest.raises(TraceFormatError, match="not valid JSON"):
        with_execution_trace(Recording(recorded()), path)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 70) | st.floats() | st.text(max_size=3),
    lambda one: st.lists(one, max_size=6) | st.dictionaries(st.text(max_size=3), one, max_size=2),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    at=st.integers(0, 3),
    key=st.sampled_from(["id", "name", "inputs", "outputs", "attrs", "values", "value"]),
    value=_VALUES,
)
def test_a_node_of_nonsense_costs_itself(tmp_path: Path, at: int, key: str, value: Any):
    nodes = json.loads(json.dumps([MM, T, RELU, SUM]))
    inside = {"values": nodes[at]["inputs"], "value": nodes[at]["attrs"][0]}
    inside.get(key, nodes[at])[key] = value
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"schema": "1", "nodes": nodes}))
    try:
        recording = with_execution_trace(Recording(recorded()), path)
    except HTAGraphError:
        return
    attached = recording.attached[0]
    assert attached.n_matched >= 3
    assert attached.n + attached.detail.count("unreadable") == 4
    hg.Trace(recording).compile()


def test_a_real_execution_trace_matches_every_operator():
    """Parity with HTA's correlate_execution_trace: the node of each cpu_op and user_annotation."""
    folder = CAPTURES / "features"
    trace = hg.load(folder / "et.pt.trace.json.gz", beside=[folder / "et.et.json.gz"])

    attached = trace.attached.iloc[0]
    assert (attached["n"], attached["n_matched"]) == (2025, 2025)
    found = trace.compile().execution_nodes()
    ranges = trace.events["category"].isin(["cpu_op", "user_annotation"])
    assert sorted(found["event"]) == trace.events.index[ranges].tolist()
