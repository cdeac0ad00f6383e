"""Traces of other tools: tracks as lanes, slices as events, with flows and counters.

The category of a slice decides its kind if it is one of the PyTorch profiler or rocprofv3, and the
lane fits: device work needs a device. Any other slice on a thread is an operator. A slice on no
thread is context, unless the file has no threads at all.

A track with a thread descriptor is a thread. AMD's rocprofv3 describes only one thread, and encodes
the others in track names::

    THREAD 1 (4711)                    a thread
    COMPUTE AGENT [4] STREAM [1] (GPU) kernels of a stream of a device
    COPY to AGENT [4] STREAM [1] (GPU) copies to it
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import I8, I64, U8, Bools
from htagraph.model.events import EVENT_DTYPES, EventTable, FlowTable, LaneTable, SparseColumn
from htagraph.model.kinds import DEVICE_KINDS, HOST_KINDS, EventKind, among
from htagraph.model.names import CRITICAL_PATH
from htagraph.model.samples import SampleTable, Series
from htagraph.model.symbols import SymbolTable
from htagraph.readers.event_filter import taken
from htagraph.readers.kineto.event_fields import ARG_KEYS, COLUMNS, Field, Read
from htagraph.readers.kineto.event_kinds import event_kinds
from htagraph.readers.perfetto.scan import EXTRA, FLOAT
from htagraph.readers.perfetto.trace_content import TraceContent, Track, dense

_THREAD = re.compile(r"THREAD \d+ \((\d{1,18})\)")
_DEVICE = re.compile(
    r"(COMPUTE|COPY to) [\w-]+ \[(\d{1,9})\] (STREAM|QUEUE|THREAD) \[(\d{1,18})\] *\(?(\w*)\)?"
)
_UUIDS = 1 << 64


Described = tuple[int | str, int | str, str, str, bool, int, int, bool]
"""A lane: process, thread and their names; whether it is a thread; its device and stream, -1 for
none; and whether that device is not called a CPU."""


def _lanes(found: TraceContent) -> tuple[LaneTable, I64, tuple[npt.NDArray[Any], ...]]:
    """Lanes of all tracks with slices, bits of these tracks' uuids, ascending, and their places.

    Places: the last four of each as `Described`.
    """
    tracks, first = np.unique(found.slices.track, return_index=True)
    packets = found.slices.packet[first].tolist()
    described = [
        _lane(found, uuid % _UUIDS, found.sequences.thread_of(packet))
        for uuid, packet in zip(tracks.tolist(), packets, strict=True)
    ]
    seen: Counter[tuple[int | str, int | str]] = Counter()
    tids: list[int | str] = []
    for pid, tid, *_ in described:
        seen[pid, tid] += 1
        n = seen[pid, tid]
        tids.append(tid if n == 1 else f"{tid} ({n})")
    columns: list[tuple[Any, ...]] = list(zip(*described, strict=True)) or [()] * 8
    pids, _, processes, threads, *places = columns
    n = len(described)
    table = LaneTable(
        pid=pids,
        tid=tuple(tids),
        process=processes,
        thread=threads,
        process_sort=(0,) * n,
        thread_sort=(0,) * n,
        process_labels=("",) * n,
    )
    dtypes = (np.bool_, np.int64, np.int64, np.bool_)
    typed = zip(places, dtypes, strict=True)
    return table, tracks, tuple(np.array(of, dtype) for of, dtype in typed)


def _lane(found: TraceContent, uuid: int, writer: tuple[int, int] | None) -> Described:
    tracks = found.tracks
    line = tracks.ancestors(uuid)
    thread = line[0].thread if line else writer if uuid == 0 else None
    process = tracks.process_of(uuid)
    process_name = tracks.processes.get(process, "") if process is not None else ""
    name = line[0].name if line else ""
    if thread is not None:
        name = name or tracks.threads.get(thread, "")
        return *thread, tracks.processes.get(thread[0], ""), name, True, -1, -1, True
    pid: int | str = "" if process is None else process
    if amd := _THREAD.fullmatch(name):
        return pid, int(amd[1]), process_name, name, True, -1, -1, True
    if amd := _DEVICE.match(name):
        device, name = int(amd[2]), name.strip()
        stream = -1 if amd[3] == "THREAD" else int(amd[4])
        return device, name, process_name, name, False, device, stream, amd[5] != "CPU"
    parents = [track.name for track in line[1:] if track.name]
    tid: int | str = name or (f"track {uuid}" if uuid else "no track")
    return pid, tid, process_name or ": ".join(reversed(parents)), "", False, -1, -1, True


Sparse = dict[str, SparseColumn]

_KINDS = {
    "hip_api": EventKind.RUNTIME,
    "hsa_api": EventKind.RUNTIME,
    "rccl_api": EventKind.OP,
    "rocdecode_api": EventKind.OP,
    "rocjpeg_api": EventKind.OP,
    "openmp": EventKind.OP,
    "marker_api": EventKind.ANNOTATION,
    "kernel_dispatch": EventKind.KERNEL,
    "memory_copy": EventKind.MEMCPY,
}
"""Kinds of rocprofv3's categories."""

_DENSE = ("device", "stream", "correlation", "external_id")
_FORMS = {Read.INT: "int", Read.REAL: "float", Read.TEXT: "text"}
_DTYPES: dict[str, type[np.generic]] = {"int": np.int64, "float": np.float64, "text": np.int32}
_SOURCE = "src_agent"
_FLOW = "flow"
_INSTRUMENT = "Perfetto"


def _known_names() -> dict[str, tuple[str, str]]:
    """Column, and kind of its values, by annotation name."""
    by_field = dict(
        zip((Field.DEVICE, Field.STREAM, Field.CORRELATION, Field.EXTERNAL_ID), _DENSE, strict=True)
    )
    out = {
        key: (
            by_field.get(field) or COLUMNS[field - Field.FIRST_SPARSE].name,  # type: ignore[call-overload]
            _FORMS[read],
        )
        for key, (field, read) in ARG_KEYS.items()
        if read in _FORMS
    }
    out |= {column.name: (column.name, _FORMS.get(column.read, "int")) for column in COLUMNS}
    out |= {name: (name, "int") for name in _DENSE}
    out |= {"corr_id": ("correlation", "int"), "copy_bytes": ("bytes", "int")}
    return out | {_SOURCE: (_SOURCE, "text")}


def foreign_events(found: TraceContent) -> EventTable:
    """The events of a trace that htagraph did not write."""
    slices = found.slices
    every = np.arange(len(slices))
    table, tracks, (is_thread, *places) = _lanes(found)
    drawn = found.symbols.code(CRITICAL_PATH)  # of htagraph, where the supplement is damaged
    lane = np.searchsorted(tracks, slices.track)
    name, category = found.names(every), found.categories(every)
    columns = _columns(found, every)
    flow = found.symbols.code(_FLOW)
    symbols = SymbolTable(tuple(found.symbols.texts))
    device, stream = _places(columns, [of[lane] for of in places], symbols)
    point = np.where(slices.is_point, ord("i"), ord("X")).astype(np.uint8)
    kind = _kinds(symbols, category, name, point)
    kind = _placed(kind, is_thread[lane], device)
    on_device = among(kind, DEVICE_KINDS)
    every_row = {key: dense(columns.pop(key, None), len(slices)) for key in _DENSE}
    every_row |= {
        "device": np.where(on_device, device, -1),
        "stream": np.where(on_device, stream, -1),
    }
    events = EventTable(
        ts_ns=slices.ts_ns + found.day_ns,
        dur_ns=slices.dur_ns,
        kind=kind,
        name=name.astype(np.int32),
        category=category.astype(np.int32),
        lane=lane.astype(np.int32),
        **{key: values.astype(EVENT_DTYPES[key]) for key, values in every_row.items()},  # type: ignore[arg-type]
        symbols=symbols,
        lanes=table,
        flows=_flows(found, lane, (every_row["correlation"] >= 0) | (category == drawn), flow),
        columns=columns,
        samples=_samples(found),
    )
    extra = found.scan.what[slices.packet] & EXTRA != 0
    found.skip("counter value of a slice", int(extra.sum()))
    order = np.argsort(events.ts_ns, kind="stable")
    is_drawn = category[order] == drawn
    found.skip("critical path", int(is_drawn.sum()))
    return taken(events, order[~is_drawn])


def _columns(found: TraceContent, every: I64) -> Sparse:
    known, out = _known_names(), Sparse()
    for symbol, form, event, found_values in found.annotations(every):
        column, wanted = known.get(found.symbols.texts[symbol], ("", ""))
        is_right = form == wanted or (form == "int" and wanted == "float")
        if column and is_right and column not in out:
            out[column] = SparseColumn(event, found_values.astype(_DTYPES[wanted]))
    return out


def _places(
    columns: Sparse, of_lane: Sequence[npt.NDArray[Any]], symbols: SymbolTable
) -> tuple[I64, I64]:
    """Device and stream of each event: its own, else its lane's; -1 for none.

    A copy to a CPU is on the device it comes from.
    """
    lane_device, lane_stream, is_gpu = of_lane
    device, stream = (dense(columns.get(name), len(is_gpu)) for name in ("device", "stream"))
    device = np.where(device < 0, lane_device, device)
    stream = np.where(stream < 0, lane_stream, stream)
    source = columns.pop(_SOURCE, None)
    if source is not None:
        digits = ["".join(filter(str.isdecimal, text))[-9:] for text in symbols.texts]
        number = np.array([int(text or -1) for text in digits], dtype=np.int64)
        origin = np.full(len(is_gpu), -1, dtype=np.int64)
        origin[source.event] = number[source.value]
        device = np.where(~is_gpu & (origin >= 0), origin, device)
    most = np.iinfo(np.int32).max
    return np.where(device > most, -1, device), np.maximum(stream, -1)


def _kinds(symbols: SymbolTable, category: I64, name: I64, point: U8) -> I8:
    """The kind of each event by its category; OTHER for an unknown one."""
    kinds = event_kinds(symbols, category.astype(np.int32), name.astype(np.int32), point)
    rocprof = np.array([_KINDS.get(text, -1) for text in symbols.texts], dtype=np.int8)[category]
    is_slice = point == ord("X")
    return np.where((rocprof >= 0) & is_slice, rocprof, kinds).astype(np.int8)


def _placed(kind: I8, on_thread: Bools, device: I64) -> I8:
    """Kinds that fit the lane of each event."""
    on_host = on_thread | (not on_thread.any() and device < 0)
    needs_device = among(kind, DEVICE_KINDS) & (device < 0)
    is_plain = (kind == EventKind.OTHER) | needs_device
    astray = among(kind, HOST_KINDS) & ~on_host
    out = np.where(is_plain | astray, np.where(on_host, EventKind.OP, EventKind.ASYNC), kind)
    return out.astype(np.int8)


def _flows(found: TraceContent, lane: I64, repeats: Bools, category: int) -> FlowTable:
    """The flows between slices, except where a correlation id already links them."""
    scan, slices = found.scan, found.slices
    event = slices.of_packets(len(scan.at), np.arange(len(slices)))[scan.flow_packet]
    rows = np.flatnonzero(event >= 0)
    rows = rows[~repeats[event[rows]]]
    event, ids, ends = event[rows], scan.flow_id[rows], scan.flow_ends[rows] != 0
    order = np.lexsort((slices.ts_ns[event], ids))
    event, ids, ends = event[order], ids[order], ends[order]
    is_first = np.diff(ids, prepend=ids[:1] - 1) != 0
    is_first |= np.concatenate([[False], ends[:-1]])[: len(ids)]
    chain = np.cumsum(is_first) - 1
    is_last = np.append(is_first[1:], True)[: len(ids)]
    keep = ~(is_first & is_last)
    phase = np.where(is_first, 0, np.where(is_last, 2, 1))[keep]
    event = event[keep]
    return FlowTable(
        ts_ns=slices.ts_ns[event] + found.day_ns,
        id=chain[keep].astype(np.int64),
        lane=lane[event].astype(np.int32),
        phase=phase.astype(np.int8),
        category=np.full(len(event), category, dtype=np.int32),
        event=event,
    )


def _samples(found: TraceContent) -> SampleTable:
    slices, packet = found.slices, found.slices.sample_packet
    parts: list[tuple[Series, I64, npt.NDArray[Any]]] = []
    raw = found.scan.value[packet]
    is_float = found.scan.what[packet] & FLOAT != 0
    values = np.where(is_float, raw.view(np.float64), raw.astype(np.float64))
    for bits in np.unique(slices.sample_track).tolist():
        uuid = bits % _UUIDS
        track = found.tracks.by_uuid.get(uuid, Track())
        rows = np.flatnonzero(slices.sample_track == bits)
        rows = rows[np.argsort(slices.sample_ts_ns[rows], kind="stable")]
        value = np.cumsum(values[rows]) if track.is_incremental else values[rows]
        series = Series(track.name or f"counter {uuid}", track.unit, -1, _INSTRUMENT)
        ts_ns = slices.sample_ts_ns[rows] + found.day_ns
        parts.append((series, ts_ns, value * track.multiplier))
    return SampleTable.of(parts)
