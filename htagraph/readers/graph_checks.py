"""Checks of a graph that was read from a file: everything that compiled code takes for granted.

The compiler only makes graphs that pass. Compiled code walks them unchecked: an index out of range,
in a file that was tampered with, would read foreign memory, and a cycle would never end. Each check
is a pass over arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.model.dag import Calibration, Dag
from htagraph.model.devices import DeviceProperties
from htagraph.model.edges import EdgeTable
from htagraph.model.events import (
    CAPTURED_DTYPES,
    CAPTURED_LAUNCH,
    EVENT_DTYPES,
    LIST_COLUMNS,
    EventTable,
    LaneTable,
)
from htagraph.model.kinds import EventKind, KernelClass
from htagraph.model.recording import MAX_RANKS, Recording
from htagraph.model.rules import Rule
from htagraph.model.samples import SampleTable
from htagraph.readers.beside.execution_nodes import TEXTS as NODE_TEXTS
from htagraph.readers.kineto.event_fields import COLUMNS, Read

Array = npt.NDArray[Any]

_LAST_NS = 1 << 62
"""Times and durations stay below, so that two of them add up in int64."""

_FLOWS = {
    "ts_ns": np.int64, "id": np.int64, "lane": np.int32, "phase": np.int8, "category": np.int32,
    "event": np.int64,
}  # fmt: skip
_SAMPLES = {"ts_ns": np.int64, "value": np.float64, "series": np.int32}
_EDGES = {
    "tail": np.int32, "head": np.int32, "kind": np.int8, "lag_ns": np.int64, "event": np.int32,
    "rule": np.int8,
}  # fmt: skip
_PER_EVENT = {"parent": np.int32, "launch": np.int32, "is_work": np.bool_}
_PER_NODE = {"binding": np.int32}
_TEXTS = {column.name for column in COLUMNS if column.read is Read.TEXT} | set(NODE_TEXTS)


def check_graph(dag: Dag) -> None:
    """Raise unless a graph obeys the laws of the compiler."""
    _check_facts(dag)
    check_events(dag.events)
    _check_edges("edges", dag.edges, dag)
    _check_edges("rejected edges", dag.rejected.edges, dag)
    _check_shapes(
        "rejected edges",
        {"skew_ns": dag.rejected.skew_ns},
        {"skew_ns": np.int64},
        len(dag.rejected.edges),
    )
    _check_links(dag)
    _check_path(dag)
    _check_repairs(dag)


def check_events(events: EventTable) -> None:
    """Raise unless a table of events can be compiled."""
    _check_lanes(events.lanes)
    _check_events(events)
    _check_columns(events)
    _check_captured(events)
    _check_devices(events.devices)
    _check_samples(events.samples)


def check_places(arrays: Mapping[str, Array], dag: Dag) -> None:
    """Raise unless the stored places and moves are about existing events."""
    moved = arrays["recording.moved"]
    _check_shapes(
        "recording",
        {"moved": moved, "moved_ns": arrays["recording.moved_ns"]},
        {"moved": np.int64, "moved_ns": np.int64},
        len(moved),
    )
    _ensure_within("an event that was moved", moved, 0, len(dag.events))
    _ensure_within("a move", arrays["recording.moved_ns"], -_LAST_NS, _LAST_NS + 1)
    offset, length = arrays["args.offset"], arrays["args.length"]
    places = {"offset": offset, "length": length}
    n = len(dag.events) if len(offset) else 0
    _check_shapes("events", places, {"offset": np.int64, "length": np.int32}, n)
    _ensure_within("offset of an event", offset, 0, _LAST_NS)
    _ensure_within("length of an event", length, 0, 1 << 31)


def check_recording(recording: Recording) -> None:
    """Raise unless the small facts of a recording have their types."""
    origin = recording.origin
    counts = (recording.skipped, recording.n_bytes)
    attached = [(one.instrument, one.detail, one.n, one.n_matched) for one in recording.attached]
    _ensure(
        type(recording.rank_source) is str
        and (recording.world_size is None or _is_int(recording.world_size))
        and (recording.world_size or 0) < MAX_RANKS
        and origin is not None
        and _is_int(origin.base_time_ns)
        and type(origin.metadata) is dict
        and all(type(one) is dict and all(map(_is_int, one.values())) for one in counts)
        and all(type(a) is type(b) is str and _is_int(n) and _is_int(m) for a, b, n, m in attached),
        "the recording is not described by texts and numbers",
    )


def _check_repairs(dag: Dag) -> None:
    """Repairs of the file are described by texts and numbers."""
    _ensure(
        all(
            type(one.kind) is type(one.detail) is type(one.damage) is str
            and _is_int(one.n)
            and _is_int(one.first_offset)
            for one in dag.repairs
        ),
        "a repair is not described by texts and numbers",
    )


def _ensure(is_true: object, what: str) -> None:
    if not is_true:
        raise ValueError(what)


def _check_shapes(
    what: str, arrays: Mapping[str, Array], dtypes: Mapping[str, npt.DTypeLike], n: int
) -> None:
    for name, dtype in dtypes.items():
        array = arrays[name]
        _ensure(
            array.dtype == np.dtype(dtype) and array.shape == (n,),
            f"{name} of the {what} is {array.dtype} of shape {array.shape}, "
            f"not {np.dtype(dtype)} of shape ({n},)",
        )


def _ensure_within(what: str, array: Array, low: int, high: int) -> None:
    _ensure(
        not len(array) or (array.min() >= low and array.max() < high), f"{what} is out of range"
    )


def _is_int(value: object) -> bool:
    return type(value) is int and abs(value) <= _LAST_NS


def _check_facts(dag: Dag) -> None:
    span, rules = dag.span, dag.classification.rules
    measured = {item.name: getattr(dag.calibration, item.name) for item in fields(Calibration)}
    since = [number for step in measured.pop("clock_steps") for number in step]
    _ensure(all(map(_is_int, [*measured.values(), *since])), "the calibration is no numbers")
    _ensure(since[::2] == sorted(since[::2]), "the steps of the clock are not in order of time")
    _ensure(
        all(map(_is_int, (span.start_ns, span.end_ns, span.anchor))) and type(span.name) is str,
        "the window is none",
    )
    _ensure(all(isinstance(rule, str) for rule in rules), "a rule has no name")
    _ensure(
        type(dag.notes) is dict and all(map(_is_int, dag.notes.values())),
        "the notes are no numbers",
    )


def _check_lanes(lanes: LaneTable) -> None:
    for item in fields(LaneTable):
        values = getattr(lanes, item.name)
        kinds = (int, str) if item.name in {"pid", "tid"} else int if "sort" in item.name else str
        _ensure(
            len(values) == len(lanes) and all(isinstance(value, kinds) for value in values),
            f"{item.name} of the threads is broken",
        )


def _check_events(events: EventTable) -> None:
    """The columns of events and flows fit, and their codes are defined."""
    _check_shapes("events", vars(events), EVENT_DTYPES, len(events.ts_ns))
    _check_shapes("flows", vars(events.flows), _FLOWS, len(events.flows.ts_ns))
    _ensure_within("kind of an event", events.kind, 0, len(EventKind))
    _ensure_within("phase of a flow", events.flows.phase, 0, 4)
    _ensure_within("event of a flow", events.flows.event, -1, len(events))
    _ensure_within("device of an event", events.device, -1, 1 << 31)
    _ensure_within("dur_ns of an event", events.dur_ns, 0, _LAST_NS)
    for table in (events, events.flows):
        _ensure_within("lane", table.lane, 0, len(events.lanes))
        _ensure_within("category", table.category, 0, len(events.symbols))
        _ensure_within("ts_ns", table.ts_ns, -_LAST_NS, _LAST_NS + 1)
    _ensure_within("end of an event", events.end_ns, -_LAST_NS, _LAST_NS + 1)
    _ensure_within("name of an event", events.name, 0, len(events.symbols))


def _check_columns(events: EventTable) -> None:
    """Sparse columns are about existing events, in order."""
    for name, column in events.columns.items():
        value, n = column.value, len(column.event)
        _check_shapes(f"column {name}", {"event": column.event}, {"event": np.int64}, n)
        _ensure(value.shape == (n,), f"column {name} is of another length")
        is_code = value.dtype == np.int32
        _ensure(
            (is_code or value.dtype in (np.int64, np.float64))
            and is_code == (name in {*_TEXTS, *LIST_COLUMNS}),
            f"column {name} is of another type",
        )
        _ensure_within(f"event of column {name}", column.event, 0, len(events))
        _ensure((np.diff(column.event) > 0).all(), f"column {name} is out of order")
        if is_code:
            texts = events.lists if name in LIST_COLUMNS else events.symbols
            _ensure_within(f"column {name}", value, 0, len(texts))


def _check_captured(events: EventTable) -> None:
    """Captured calls nest, and replayed work was launched by some of them."""
    calls, n = events.captured, len(events.captured)
    _check_shapes("captured calls", vars(calls), CAPTURED_DTYPES, n)
    _ensure_within("kind of a captured call", calls.kind, 0, len(EventKind))
    _ensure_within("name of a captured call", calls.name, 0, len(events.symbols))
    _ensure_within("lane of a captured call", calls.lane, 0, max(n, 1))
    for name in LIST_COLUMNS:
        _ensure_within(f"{name} of a captured call", getattr(calls, name), -1, len(events.lists))
    _ensure_within("ts_ns of a captured call", calls.ts_ns, -_LAST_NS, _LAST_NS + 1)
    _ensure_within("dur_ns of a captured call", calls.dur_ns, 0, _LAST_NS)
    _ensure_within("parent of a captured call", calls.parent, -1, n)
    _ensure_forest(calls.parent, "a captured call is its own parent")
    launched = events.columns.get(CAPTURED_LAUNCH)
    if launched is not None:
        _ensure(events.is_device[launched.event].all(), "captured work is not of the device")
        _ensure_within("captured launch", launched.value, 0, n)


def _ensure_forest(parent: Array, what: str) -> None:
    """No event is above itself."""
    above = parent
    for _ in range(len(parent).bit_length()):
        if above.max(initial=-1) < 0:
            break
        above = np.where(above >= 0, above[above], -1)
    _ensure(above.max(initial=-1) < 0, what)


def _check_devices(devices: tuple[DeviceProperties, ...]) -> None:
    for device in devices:
        described = asdict(device)
        name = described.pop("name")
        _ensure(
            type(name) is str and all(map(_is_int, described.values())),
            "a device is not described by numbers",
        )


def _check_samples(samples: SampleTable) -> None:
    """Samples are in order, and their series described."""
    _check_shapes("samples", vars(samples), _SAMPLES, len(samples.ts_ns))
    _ensure_within("series of a sample", samples.series, 0, len(samples.all_series))
    _ensure_within("ts_ns", samples.ts_ns, -_LAST_NS, _LAST_NS + 1)
    steps = np.diff(samples.series.astype(np.int64))
    in_order = (steps > 0) | ((steps == 0) & (np.diff(samples.ts_ns) >= 0))
    _ensure(in_order.all(), "samples are out of order")
    for series in samples.all_series:
        texts = (series.name, series.unit, series.instrument)
        _ensure(
            all(type(text) is str for text in texts)
            and _is_int(series.device)
            and _is_int(series.uncertainty_ns),
            "a series is not described by texts and numbers",
        )


def _check_edges(what: str, edges: EdgeTable, dag: Dag) -> None:
    n = len(dag.events)
    _check_shapes(what, vars(edges), _EDGES, len(edges.tail))
    for name in ("tail", "head"):
        _ensure_within(f"{name} of the {what}", getattr(edges, name), 0, 2 * n)
    _ensure_within(f"event of the {what}", edges.event, -1, n)
    _ensure_within(f"rule of the {what}", edges.rule, 0, len(Rule))
    _ensure((edges.kind == Rule.kinds()[edges.rule]).all(), f"kind of the {what} is not the rule's")


def _check_links(dag: Dag) -> None:
    """Parents and launches are possible events, and the window is that of the work."""
    events, n = dag.events, len(dag.events)
    _check_shapes("events", vars(dag), _PER_EVENT, n)
    classes = {
        "kernel_class": dag.classification.kernel_class,
        "class_rule": dag.classification.rule,
    }
    _check_shapes("events", classes, dict.fromkeys(classes, np.int8), n)
    _ensure_within("class of an event", classes["kernel_class"], 0, len(KernelClass))
    _ensure_within("class of an event", classes["class_rule"], -1, len(dag.classification.rules))
    _ensure_within("parent of an event", dag.parent, -1, n)
    _ensure_within("launch of an event", dag.launch, -1, n)
    launched = np.flatnonzero(dag.launch >= 0)
    _ensure(
        events.is_device[launched].all()
        and (events.kind[dag.launch[launched]] == EventKind.RUNTIME).all(),
        "launch of an event is none",
    )
    _ensure_forest(dag.parent, "an event is its own parent")
    work = np.flatnonzero(dag.is_work)
    bounds = (
        (int(events.ts_ns[work].min()), int(events.end_ns[work].max())) if len(work) else (0, 0)
    )
    _ensure((dag.span.start_ns, dag.span.end_ns) == bounds, "the window is not that of the work")


def _check_path(dag: Dag) -> None:
    """Edges run forward in time and order, and the last to arrive binds."""
    edges, times = dag.edges, dag.events.node_ts_ns
    n = len(times)
    _check_shapes("nodes", vars(dag), _PER_NODE, n)
    _check_shapes("nodes", vars(dag), {"order": np.int32}, len(dag.order))
    _ensure((edges.lag_ns >= 0).all(), "a lag is below zero")
    residual = times[edges.head] - times[edges.tail] - edges.lag_ns
    _ensure((residual >= 0).all(), "an edge runs backward in time")
    _ensure((np.diff(edges.head) >= 0).all(), "edges are out of order")
    _ensure_within("binding", dag.binding, -1, len(edges))
    bound = np.flatnonzero(dag.binding >= 0)
    _ensure((edges.head[dag.binding[bound]] == bound).all(), "an edge binds another node")
    first = np.flatnonzero(np.diff(edges.head, prepend=-1))  # edge into each node that has any
    _ensure(np.array_equal(edges.head[first], bound), "a node with edges has none that binds")
    least = np.minimum.reduceat(residual, first) if len(first) else residual
    _ensure((residual[dag.binding[bound]] == least).all(), "an edge binds that is not the last")
    in_graph = np.repeat(dag.events.is_host | dag.events.is_device, 2)
    _ensure_within("order", dag.order, 0, n)
    position = np.full(n, -1, dtype=np.int32)
    position[dag.order] = np.arange(len(dag.order), dtype=np.int32)
    _ensure(
        len(dag.order) == np.count_nonzero(in_graph) and (position[in_graph] >= 0).all(),
        "order lacks nodes",
    )
    place, after = position[edges.tail], position[edges.head]
    _ensure(((place >= 0) & (place < after)).all(), "order is cyclic")
