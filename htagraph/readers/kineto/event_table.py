"""Columns of a file as the event table and the counters of the model."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from htagraph.model.arrays import I8, I32, I64, Bools
from htagraph.model.devices import DeviceProperties
from htagraph.model.events import EventTable, FlowTable, LaneTable, SparseColumn
from htagraph.model.kinds import DEVICE_KINDS, EventKind, codes
from htagraph.model.recording import ArgsReader
from htagraph.model.samples import SampleTable, Series
from htagraph.model.symbols import SymbolTable
from htagraph.readers.kineto.event_kinds import event_kinds
from htagraph.readers.kineto.merging import Columns
from htagraph.readers.kineto.worker import Id, canonical_id

ABSENT = np.iinfo(np.int64).min
_ON_STREAM = codes((*DEVICE_KINDS, EventKind.SYNC, EventKind.DEVICE_ANNOTATION))
_STREAM_TID = re.compile(r"(?:stream\s*)?([0-9]{1,19})", re.IGNORECASE)
_SYNC_ROWS = 1_000_000
"""Some versions of PyTorch put sync records on the row ``stream + 1000000``."""

_NO_STREAM = 4_294_967_295
"""CUPTI_SYNCHRONIZATION_INVALID_VALUE: the sync record is about no stream."""

_MAX_DEVICE = 4096
"""A pid below this may be a device number, as Kineto writes it on device rows (chosen)."""

_MAX_INT32 = np.iinfo(np.int32).max
_PHASES = np.zeros(256, dtype=np.int8)
_PHASES[ord("t")], _PHASES[ord("f")], _PHASES[ord("F")] = 1, 2, 3


def event_table(
    columns: Columns,
    metadata_events: Iterable[Mapping[str, Any]],
    base_time_ns: int,
    devices: tuple[DeviceProperties, ...] = (),
    *,
    is_plain: bool = False,
) -> EventTable:
    """The event table of a file, from its cleaned columns."""
    rows, sparse = columns.rows, dict(columns.sparse)
    symbols = SymbolTable(tuple(columns.symbols))
    kind = event_kinds(symbols, rows["category"], rows["name"], rows["phase"], is_plain=is_plain)
    steps, _ = sparse.get("step_num", (np.empty(0, dtype=np.int64), None))
    kind[steps[kind[steps] == EventKind.OP]] = EventKind.ANNOTATION
    lanes = lane_table(columns.lanes, metadata_events)
    on_stream = np.isin(kind, _ON_STREAM)
    named = np.flatnonzero(~on_stream & (rows["stream"] != ABSENT))
    if len(named):
        sparse["api_stream"] = named, _stream(rows["stream"][named])
    if "wait_on_stream" in sparse:
        events, values = sparse["wait_on_stream"]
        sparse["wait_on_stream"] = events, _stream(values)
    rows["ts_ns"] += base_time_ns
    device, stream = _devices(rows, lanes, on_stream), _streams(rows, lanes, on_stream, kind)
    del rows["device"], rows["stream"]
    flows = FlowTable(
        ts_ns=columns.flows[0] + base_time_ns,
        id=columns.flows[1].copy(),
        lane=columns.flows[2].astype(np.int32),
        phase=_PHASES[columns.flows[3]],
        category=columns.flows[4].astype(np.int32),
        event=np.full(columns.flows.shape[1], -1, dtype=np.int64),
    )
    return EventTable(
        ts_ns=rows["ts_ns"],
        dur_ns=rows["dur_ns"],
        kind=kind,
        name=rows["name"],
        category=rows["category"],
        lane=rows["lane"],
        device=device,
        stream=stream,
        correlation=_or_none(rows["correlation"]),
        external_id=_or_none(rows["external_id"]),
        symbols=symbols,
        lanes=lanes,
        flows=flows,
        lists=SymbolTable(tuple(columns.lists)),
        columns={name: SparseColumn(events, values) for name, (events, values) in sparse.items()},
        devices=devices,
    )


def _or_none(ids: I64) -> I64:
    """Ids with -1 for none, in place."""
    ids[ids == ABSENT] = -1
    return ids


def _stream(ids: I64) -> I64:
    """Stream ids with -1 for none."""
    return np.where((ids == ABSENT) | (ids == _NO_STREAM), -1, ids)


def _devices(rows: Mapping[str, I64], lanes: LaneTable, on_stream: Bools) -> I32:
    """The device of each device event: its own, else the pid of its row if plausible."""
    events = np.flatnonzero(on_stream)
    by_lane = [pid if isinstance(pid, int) and 0 <= pid < _MAX_DEVICE else -1 for pid in lanes.pid]
    of_lane = np.array(by_lane, dtype=np.int64)[rows["lane"][events]]
    given = rows["device"][events]
    device = np.full(len(on_stream), -1, dtype=np.int32)
    device[events] = np.where(
        given == ABSENT, of_lane, np.where((given >= 0) & (given <= _MAX_INT32), given, -1)
    )
    return device


def _streams(rows: Mapping[str, I64], lanes: LaneTable, on_stream: Bools, kind: I8) -> I64:
    """The stream of each device event: its own, else the number in the tid of its row."""
    events = np.flatnonzero(on_stream)
    of_lane = np.array([_stream_of_tid(tid) for tid in lanes.tid], dtype=np.int64)[
        rows["lane"][events]
    ]
    is_sync_row = (kind[events] == EventKind.SYNC) & (of_lane >= _SYNC_ROWS)
    given = rows["stream"][events]
    stream = np.full(len(on_stream), -1, dtype=np.int64)
    stream[events] = _stream(np.where(given == ABSENT, of_lane - _SYNC_ROWS * is_sync_row, given))
    return stream


def _stream_of_tid(tid: Id) -> int:
    """The stream in the name of a row, -1 for none."""
    found = _STREAM_TID.fullmatch(str(tid))
    number = int(found.group(1)) if found else -1
    return number if number <= np.iinfo(np.int64).max else -1


def lane_table(
    lanes: list[tuple[Id, Id]], metadata_events: Iterable[Mapping[str, Any]]
) -> LaneTable:
    """The lanes with the names from metadata events; lanes without events are last."""
    of_process: dict[str, dict[Id, Any]] = {
        "process_name": {},
        "process_labels": {},
        "process_sort_index": {},
    }
    of_thread: dict[str, dict[tuple[Id, Id], Any]] = {"thread_name": {}, "thread_sort_index": {}}
    known = dict.fromkeys(lanes)
    for event in metadata_events:
        args, name = event.get("args"), event["name"]
        value = next(iter(args.values()), None) if isinstance(args, dict) else None
        pid, tid = canonical_id(event.get("pid")), canonical_id(event.get("tid"))
        if name in of_process:
            of_process[name][pid] = value
        elif name in of_thread:
            of_thread[name][pid, tid] = value
            known.setdefault((pid, tid))
    with_lanes = {pid for pid, _ in known}
    known |= {(pid, ""): None for pid in of_process["process_name"] if pid not in with_lanes}
    names = list(known)
    return LaneTable(
        pid=tuple(pid for pid, _ in names),
        tid=tuple(tid for _, tid in names),
        process=tuple(text_of(of_process["process_name"].get(pid, "")) for pid, _ in names),
        thread=tuple(text_of(of_thread["thread_name"].get(lane, "")) for lane in names),
        process_sort=tuple(_index(of_process["process_sort_index"].get(pid)) for pid, _ in names),
        thread_sort=tuple(_index(of_thread["thread_sort_index"].get(lane)) for lane in names),
        process_labels=tuple(
            text_of(of_process["process_labels"].get(pid, "")) for pid, _ in names
        ),
    )


def text_of(value: object) -> str:
    """A name, whatever its JSON type; half a surrogate pair becomes U+FFFD."""
    text = "" if value is None else str(value)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _index(value: object) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 63 else 0


_INSTRUMENT = "trace counter"


def counter_samples(events: EventTable, args: ArgsReader) -> tuple[SampleTable, int]:
    """Samples of the counters of a trace (``ph: C``), and how many values are no numbers.

    Each value of a counter is a series, named after both, and after the process if several count.
    """
    rows = np.flatnonzero(events.kind == EventKind.COUNTER)
    if not len(rows):
        return SampleTable(), 0
    texts, lanes = events.symbols.texts, events.lanes
    lane_of = events.lane[rows].tolist()
    several = len({lanes.pid[lane] for lane in lane_of}) > 1
    n_left_out = 0
    points: dict[str, tuple[list[int], list[float]]] = {}
    for ts_ns, name, lane, values in zip(
        events.ts_ns[rows].tolist(),
        events.name[rows].tolist(),
        lane_of,
        args.decode(rows),
        strict=True,
    ):
        where = f" ({lanes.process[lane] or lanes.pid[lane]})" if several else ""
        for key, value in values.items():
            number = number_of(value)
            if math.isfinite(number):
                label = texts[name] if len(values) == 1 else f"{texts[name]}: {key}"
                times, numbers = points.setdefault(label + where, ([], []))
                times.append(ts_ns)
                numbers.append(number)
            else:
                n_left_out += 1
    samples = SampleTable.of(
        [
            (Series(name, instrument=_INSTRUMENT), times, numbers)
            for name, (times, numbers) in points.items()
        ]
    )
    return samples, n_left_out


def number_of(value: object) -> float:
    """A value as a float, NaN if it is no number or too large."""
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan
