"""Perfetto's native trace format: the events of a trace, and its critical path on top.

A file is a list of packets: descriptors of tracks and the clock, one packet with all strings, then
slices that refer to both by number. Many slices are compressed inside packets, which readers
unpack. All ids are in a range of their rank, or chosen to differ (`taken`), so that ``cat`` joins
files of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import distinct
from htagraph.arrays.intervals import rows
from htagraph.errors import OutputError
from htagraph.model import frames
from htagraph.model import perfetto_fields as proto
from htagraph.model.arrays import I64
from htagraph.model.events import LIST_COLUMNS, EventTable, FlowTable, LaneTable
from htagraph.model.kinds import EventKind, among
from htagraph.model.perfetto_fields import FIELD, Supplement
from htagraph.writers.output_file import output_file
from htagraph.writers.path_tracks import DrawnPath, answer_slices, path_slices, wait_slices
from htagraph.writers.slice_packets import (
    Arg,
    Flows,
    Piece,
    Slices,
    Strings,
    Tracks,
    assemble,
    encode_counter,
    encode_slices,
    lane_tracks,
    message_field,
    utf8,
    varint_field,
)

Ends = tuple[npt.NDArray[np.integer[Any]], npt.NDArray[np.integer[Any]]]

_FLOWS_PER_RANK = 1 << 40
"""Range of arrow ids of each rank."""

_POINTS = (EventKind.INSTANT, EventKind.COUNTER)
_WORTH_PACKING, _PACKED = 1 << 20, 1
"""Bytes of packets that are worth compression, and its level (chosen)."""

_NO_FACTS: Mapping[str, Any] = MappingProxyType({})
_NOTHING_COMPUTED: Mapping[str, tuple[I64, npt.NDArray[Any]]] = MappingProxyType({})
_NO_ENDS = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class CounterTrack:
    """A number over time, drawn as a track of its own."""

    name: str
    unit: str
    ts_ns: I64  # When the value begins
    value: npt.NDArray[Any]  # int64 or float64
    # device, stream: what it belongs to, -1 for none: it is drawn below its stream, or else its
    # device
    device: int = -1
    stream: int = -1


def _arrows(
    links: Ends, path_event: I64, first_id: int, event_ends: Ends, segment_ends: Ends
) -> tuple[Flows, Flows]:
    """Ends of arrows at events and at path slices: of links, of each path slice about an event."""
    at, n_links = np.flatnonzero(path_event >= 0), len(links[0])
    ids = first_id + np.arange(n_links + len(at), dtype=np.int64)
    events = np.concatenate([*links, path_event[at], event_ends[0]])
    segments = np.concatenate([at, segment_ends[0]])
    return (
        Flows.of(events, np.concatenate([ids[:n_links], ids, event_ends[1]])),
        Flows.of(segments, np.concatenate([ids[n_links:], segment_ends[1]])),
    )


def _event_args(
    events: EventTable,
    critical: I64,
    computed: Mapping[str, tuple[I64, npt.NDArray[Any]]],
    strings: Strings,
) -> list[Arg]:
    """Annotations of events: everything besides time and name."""
    args = [Arg("critical", critical, np.ones(len(critical), dtype=np.int64), "flag")]
    for name in ("correlation", "external_id", "device", "stream"):
        values = getattr(events, name).astype(np.int64)
        at = np.flatnonzero(values != -1)
        args.append(Arg(name, at, values[at], "int"))
    for name, column in events.columns.items():
        value, form = column.value, "float" if column.value.dtype.kind == "f" else "int"
        if value.dtype == np.int32:  # codes of symbols, or of lists, which follow these
            first = 1 + (len(events.symbols) if name in LIST_COLUMNS else 0)
            value, form = value.astype(np.int64) + first, "text"
        args.append(Arg(name, column.event, value, form))  # type: ignore[arg-type]
    for name, (row, value) in computed.items():
        is_text = value.dtype.kind == "O"
        values = strings.add(value) if is_text else value
        args.append(Arg(name, row, values, "text" if is_text else "float"))
    return [arg for arg in args if len(arg.row)]


def _event_slices(
    events: EventTable, ts_ns: I64, tracks: Tracks, args: Sequence[Arg], flows: Flows
) -> tuple[Slices, dict[int, int], dict[tuple[int, int], int]]:
    """Events as slices, and the tracks of devices and streams."""
    row, boundary = rows(events.lane, events.ts_ns, events.end_ns)
    of_event, of_device, of_stream = lane_tracks(tracks, events, row)
    named = np.array([bool(text) for text in events.symbols.texts], dtype=bool)
    category = events.category.astype(np.int64)
    slices = Slices(
        ts_ns=ts_ns,
        dur_ns=events.dur_ns,
        track=of_event,
        name=events.name.astype(np.int64) + 1,
        category=np.where(named[category], category + 1, 0) if len(events) else category,
        color=np.zeros(len(events), dtype=np.int64),
        is_instant=among(events.kind, _POINTS) & (events.dur_ns == 0),
        boundary=boundary,
        args=args,
        flows=flows,
    )
    return slices, of_device, of_stream


def _intern(
    packet: Any,  # noqa: ANN401
    strings: Strings,
    batches: Sequence[Slices],
) -> dict[str, int]:
    """Put all strings of slices into a packet; return the ids of the annotation names."""
    packet.sequence_flags = proto.SEQ_INCREMENTAL_STATE_CLEARED
    data = packet.interned_data
    texts = [arg.value for slices in batches for arg in slices.args if arg.form == "text"]
    for target, numbers, encoded in (
        (data.event_names, [slices.name for slices in batches], False),
        (data.event_categories, [slices.category for slices in batches], False),
        (data.correlation_id_str, [slices.color for slices in batches], True),
        (data.debug_annotation_string_values, texts, True),
    ):
        is_used = np.zeros(len(strings.texts) + 1, dtype=bool)
        for each in numbers:
            is_used[each] = True
        for number in (np.flatnonzero(is_used[1:]) + 1).tolist():
            text = utf8(strings.texts[number - 1])
            target.add(iid=number, **({"str": text.encode()} if encoded else {"name": text}))
    names = dict.fromkeys(arg.name for slices in batches for arg in slices.args)
    numbered = {name: number for number, name in enumerate(names, start=1)}
    for name, number in numbered.items():
        data.debug_annotation_names.add(iid=number, name=utf8(name))
    return numbered


def _supplement(
    events: EventTable,
    slices: Slices,
    recorded: Mapping[str, Any],
    recorded_ns: tuple[I64, I64],
) -> Supplement:
    """What is needed to restore the events; its columns are in the order of the slices."""
    order = slices.boundary[slices.boundary & 1 == 0] >> 1
    tracks, first = np.unique(slices.track, return_index=True)
    categories, code = np.unique(events.flows.category, return_inverse=True)
    facts = {
        **recorded,
        "n_events": len(events),
        "lanes": {item.name: getattr(events.lanes, item.name) for item in fields(LaneTable)},
        "tracks": list(zip(tracks.tolist(), events.lane[first].tolist(), strict=True)),
        "devices": [asdict(device) for device in events.devices],
        "series": [asdict(series) for series in events.samples.all_series],
        "flow_categories": events.symbols.array[categories].tolist(),
    }
    flows = {item.name: getattr(events.flows, item.name) for item in fields(FlowTable)}
    samples = events.samples
    columns = {
        "order": order,
        "kind": events.kind[order],
        "later_ns": (events.ts_ns - recorded_ns[0])[order],
        "longer_ns": (events.dur_ns - recorded_ns[1])[order],
        **{f"flow_{name}": column for name, column in (flows | {"category": code}).items()},
        "sample_ts_ns": samples.ts_ns,
        "sample_value": samples.value.view(np.int64),
        "sample_series": samples.series,
    }
    return Supplement(facts, columns)


def _packet(body: Sequence[Piece]) -> memoryview:
    return assemble(1, message_field(proto.TRACE_PACKET, body)).reshape(-1).data


def _packed(packets: memoryview) -> memoryview:
    from isal import isal_zlib  # noqa: PLC0415  deferred: only large traces need it

    packed = isal_zlib.compress(packets, level=_PACKED)
    return _packet(message_field(proto.PACKET_COMPRESSED_PACKETS, [packed]))


def _first_ns(events: EventTable, segments: pd.DataFrame, counters: Sequence[CounterTrack]) -> int:
    starts = [events.ts_ns, *(counter.ts_ns for counter in counters)]
    starts.append(segments["start_ns"].to_numpy(np.int64))
    return min((int(ts_ns.min()) for ts_ns in starts if len(ts_ns)), default=0)


def write_pftrace(
    out: str | Path,
    events: EventTable,
    *,
    rank: int | None = None,
    path: DrawnPath | None = None,
    links: Ends | None = None,
    critical_events: npt.ArrayLike = (),
    computed: Mapping[str, tuple[I64, npt.NDArray[Any]]] = _NOTHING_COMPUTED,
    counters: Sequence[CounterTrack] = (),
    moved_by: str = "",
    origin_ns: int | None = None,
    place: int | None = None,
    segment_ends: Ends = _NO_ENDS,
    event_ends: Ends = _NO_ENDS,
    run: str = "",
    taken: set[int] | None = None,
    recorded: Mapping[str, Any] = _NO_FACTS,
    recorded_ns: tuple[I64, I64] | None = None,
) -> Path:
    """Write events and their analysis as a Perfetto trace.

    Every event is in the file: events that overlap partially on one thread or stream get rows of
    their own. Files of several ranks can be concatenated, if they share `taken` (process ids) and
    `origin_ns` (time 0, by default the first).

    `links`: arrows from event to event (launch to device work, forward to backward). `computed`:
    more annotations by name: events, ascending, and their values, floats or texts. `place`: from 1:
    the range of ids, and the place among concatenated files; by default the rank's. `segment_ends`,
    `event_ends`: segments, or events, and ids from 1 to 2**40: arrows join equal ids, also across
    files. `recorded`: facts besides the events, to be restored. `recorded_ns`: starts and durations
    of events as they were recorded, if changed since.
    """
    path = path or DrawnPath(frames.SEGMENTS.empty(), pd.DataFrame(), MappingProxyType({}))
    first_ns = _first_ns(events, path.segments, counters)
    zero_ns = first_ns if origin_ns is None else origin_ns
    if zero_ns > first_ns:
        hint = f"give origin_ns <= {first_ns}."
        raise OutputError("the trace begins before the origin that was given.", path=out, hint=hint)
    tracks, strings = (
        Tracks(rank, place=place, moved_by=moved_by, run=run, taken=taken),
        Strings([*events.symbols.texts, *events.lists.texts]),
    )
    about = path.segments["event"].to_numpy(np.int64)
    links, first_id = links or _NO_ENDS, tracks.place * _FLOWS_PER_RANK
    event_arrows, path_arrows = _arrows(links, about, first_id, event_ends, segment_ends)
    batches = path_slices(path, zero_ns, tracks, strings, path_arrows)
    if path.waits is not None and len(path.waits):
        free_id = first_id + len(links[0]) + len(about)
        batches.append(wait_slices(path.waits, zero_ns, tracks, strings, free_id))
    batches += [
        answer_slices(title, frame, zero_ns, tracks, strings)
        for title, frame in path.answers.items()
    ]
    critical = distinct(np.asarray(critical_events, dtype=np.int64))
    args = _event_args(events, critical, computed, strings)
    slices, of_device, of_stream = _event_slices(
        events, events.ts_ns - zero_ns, tracks, args, event_arrows
    )
    batches.append(slices)
    samples = []
    for counter in counters:
        parent = of_stream.get((counter.device, counter.stream), of_device.get(counter.device))
        samples.append((tracks.counter(counter.name, counter.unit, parent), counter))
    if zero_ns >= 0:  # the time of day at time 0 of the file
        clocks = tracks.add().clock_snapshot.clocks
        clocks.add(clock_id=proto.BUILTIN_CLOCK_BOOTTIME, timestamp=0)
        clocks.add(clock_id=proto.BUILTIN_CLOCK_REALTIME, timestamp=zero_ns)
    names = _intern(tracks.add(), strings, batches)
    times = recorded_ns or (events.ts_ns, events.dur_ns)
    facts = {**recorded, "zero_ns": zero_ns, "opens_at": path.opening(zero_ns)}
    facts["findings"] = [*path.findings.values()]
    supplement = _supplement(events, slices, facts, times)
    packed = Path(out).suffix != ".gz"
    with output_file(out) as file:
        file.write(tracks.serialize())
        of_sequence = varint_field(proto.PACKET_TRUSTED_PACKET_SEQUENCE_ID, tracks.place)
        file.write(_packet([*of_sequence, *message_field(FIELD, [supplement.packed()])]))
        for batch in batches:
            numbers = [names[arg.name] for arg in batch.args]
            for chunk in encode_slices(batch, numbers, tracks.place):
                file.write(_packed(chunk) if packed and len(chunk) > _WORTH_PACKING else chunk)
        for track, counter in samples:
            file.write(encode_counter(track, counter.ts_ns - zero_ns, counter.value, tracks.place))
    return Path(out)
