"""Slices and tracks of a Perfetto trace: slices as columns, encoded by column; names and order.

A slice is written as two packets, begin and end, which a viewer matches by their order on a track;
so each track must nest strictly, as `rows` of `arrays/intervals.py` makes it.

Messages with the same fields differ only in their numbers. With numbers padded to one width
(protobuf allows leading zeros in a varint) all messages have the same size, so a field is a few
columns of a matrix of bytes, with a row for each message::

    08 96 81 00  50 01  5a 04 ...      row 0: field 8 = 150, field 10 = 1, field 11 of length 4 ...
    08 ff ff 03  50 01  5a 04 ...      row 1

A message is a list of pieces: bytes that are equal in all rows, and blocks (matrices) that are not.

Tracks are in this order::

    Findings               root track
      Critical path
    GPU 0                  root track of the device
      stream 7               its streams, each with its counters below it
        queue length
      memory bandwidth       counters of the whole device
    python 1234            a process, and its threads: viewers show the id after the name
      Spans: PyTorch ...     what is no process, such as spans of the profiler, in the first one

Viewers cut ids to 32 bits, merge negative ones, and take equal ids for one process. So an id that
no process can have becomes a track without one, and a process whose id is taken in another part of
the file gets a new one; the names then contain the original ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.model import perfetto_fields as proto
from htagraph.model.arrays import I32, I64, U8, Bools
from htagraph.model.events import EventTable
from htagraph.model.kinds import DEVICE_KINDS, EventKind, among
from htagraph.model.perfetto_fields import (
    DESCRIPTOR_PROCESS_ORDERING,
    EXPLICIT,
    PROCESS_ORDERING_EXPLICIT,
)
from htagraph.model.progress import counted

Piece = bytes | U8

_VARINT, _FIXED64, _BYTES = 0, 1, 2
"""Wire types of protobuf."""


def utf8(text: str) -> str:
    """A text without what UTF-8 cannot encode: half a surrogate pair, as in truncated names."""
    return text.encode("utf-8", "replace").decode()


def varint(number: int) -> bytes:
    """A number as a varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _tag(field: int, wire_type: int) -> bytes:
    return varint(field << 3 | wire_type)


def _width(piece: Piece) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.shape[1]


def varint_field(field: int, values: int | npt.NDArray[np.integer[Any]]) -> list[Piece]:
    """A field with one number, or one per row; in two's complement, as protobuf has it."""
    if isinstance(values, int):
        return [_tag(field, _VARINT) + varint(values & 0xFFFFFFFFFFFFFFFF)]
    if len(values) and (values == values[0]).all():
        return varint_field(field, int(values[0]))
    rest = values.astype(np.int64).view(np.uint64)
    width = max(1, -(-int(rest.max(initial=0)).bit_length() // 7))
    block = np.empty((len(rest), width), dtype=np.uint8)
    for column in range(width):
        block[:, column] = (rest >> np.uint64(7 * column)) & np.uint64(0x7F)
    block[:, :-1] |= 0x80
    return [_tag(field, _VARINT), block]


def fixed64_field(field: int, values: npt.NDArray[Any]) -> list[Piece]:
    """A field with 8 bytes per row: an int64 or a float64."""
    return [
        _tag(field, _FIXED64),
        np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8),
    ]


def message_field(field: int, pieces: Sequence[Piece]) -> list[Piece]:
    """A field that holds a message."""
    return [_tag(field, _BYTES) + varint(sum(map(_width, pieces))), *pieces]


def assemble(n: int, pieces: Iterable[Piece]) -> U8:
    """Rows of a message, shape (n, sum of widths)."""
    parts = list(pieces)
    out = np.empty((n, sum(map(_width, parts))), dtype=np.uint8)
    column = 0
    for part in parts:
        width = _width(part)
        out[:, column : column + width] = (
            np.frombuffer(part, dtype=np.uint8) if isinstance(part, bytes) else part
        )
        column += width
    return out


_CHUNK = 1 << 16
"""Packets encoded at once, which bounds memory (chosen)."""
_SPARSE = 4
"""Slices for each that has an argument, beyond which it is searched: a table would take more memory
than the argument. Changes only speed and memory."""

_VALUE_FIELD = {
    "flag": proto.ANNOTATION_BOOL_VALUE,
    "int": proto.ANNOTATION_INT_VALUE,
    "float": proto.ANNOTATION_DOUBLE_VALUE,
    "text": proto.ANNOTATION_STRING_VALUE_IID,
}


class Strings:
    """Interned strings of packets, numbered from 1; 0 is none."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)

    def add(self, values: npt.ArrayLike | pd.Series[Any]) -> I64:
        """Numbers of some strings."""
        codes, texts = pd.factorize(np.asarray(values, dtype=object))
        first = len(self.texts) + 1
        self.texts.extend(map(str, texts))
        return np.where(codes >= 0, codes + first, 0).astype(np.int64)


@dataclass(frozen=True)
class Arg:
    """A debug annotation that some slices have."""

    name: str
    row: I64  # Slices that have it, ascending
    value: npt.NDArray[Any]  # Numbers, numbers of `Strings`, or 1 for a flag
    form: Literal["int", "float", "text", "flag"]

    def has(self, rows: I64) -> Bools:
        """Whether each of some slices has it."""
        at = np.minimum(np.searchsorted(self.row, rows), len(self.row) - 1)
        found: Bools = self.row[at] == rows
        return found

    def _places(self, rows: I64) -> npt.NDArray[np.integer[Any]]:
        """Where some slices are among those that have it."""
        if self.row[-1] > _SPARSE * len(self.row):
            return np.searchsorted(self.row, rows)
        return self._place[rows]

    @cached_property
    def _place(self) -> I32:
        """Where each slice is among those that have it."""
        place = np.zeros(int(self.row[-1]) + 1, dtype=np.int32)
        place[self.row] = np.arange(len(self.row), dtype=np.int32)
        return place

    def pieces(self, name: int, rows: I64) -> list[Piece]:
        """The field for slices that have it."""
        values = self.value[self._places(rows)]
        encode = fixed64_field if self.form == "float" else varint_field
        body = varint_field(proto.ANNOTATION_NAME_IID, name)
        body += encode(_VALUE_FIELD[self.form], values)
        return message_field(proto.EVENT_DEBUG_ANNOTATIONS, body)


@dataclass(frozen=True)
class Flows:
    """Ends of arrows: slices with the same id are linked, from the earlier to the later."""

    # row, id: slices, ascending, and ids
    row: I64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    id: I64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(cls, row: npt.NDArray[np.integer[Any]], ids: I64) -> Flows:
        """A table from ends in any order."""
        order = np.lexsort((ids, row))
        return cls(row[order].astype(np.int64), ids[order].astype(np.int64))


@dataclass(frozen=True)
class Slices:
    """Slices as columns."""

    # ts_ns, dur_ns: ``ts_ns >= 0``
    ts_ns: I64
    dur_ns: I64
    track: I64  # The slices of a track are disjoint or nested
    # name, category, color: numbers of `Strings`, 0 for none; slices with one color string get one
    # color
    name: I64
    category: I64
    color: I64
    is_instant: Bools
    # Of shape (2 * n,). Begins (``2 * i``) and ends (``2 * i + 1``), in order on each track.
    boundary: I64
    args: Sequence[Arg] = ()
    flows: Flows = field(default_factory=Flows)

    def __len__(self) -> int:
        return len(self.ts_ns)

    def shapes(self) -> I64:
        """Number of the set of fields of each slice."""
        shape = 4 * self.is_instant + 2 * (self.category > 0) + (self.color > 0)
        n_flows = np.bincount(self.flows.row, minlength=len(self))
        _, shape = np.unique(n_flows * 8 + shape, return_inverse=True)
        for first in range(0, len(self.args), 32):
            has = np.zeros(len(self), dtype=np.int64)
            for bit, arg in enumerate(self.args[first : first + 32]):
                has[arg.row] |= 1 << bit
            _, shape = np.unique((shape.astype(np.int64) << 32) | has, return_inverse=True)
        return shape.astype(np.int64)


def _packets(n: int, ts_ns: I64, event: Sequence[Piece], sequence: int) -> U8:
    """Packets of one shape, as fields of the trace."""
    body: list[Piece] = [
        *varint_field(proto.PACKET_TIMESTAMP, ts_ns),
        *varint_field(proto.PACKET_TRUSTED_PACKET_SEQUENCE_ID, sequence),
        *varint_field(proto.PACKET_SEQUENCE_FLAGS, proto.SEQ_NEEDS_INCREMENTAL_STATE),
        *message_field(proto.PACKET_TRACK_EVENT, event),
    ]
    return assemble(n, message_field(proto.TRACE_PACKET, body))


def _begins(slices: Slices, rows: I64, arg_names: Mapping[int, int], sequence: int) -> U8:
    """Begins of slices of one shape; `arg_names`: names of the arguments that they have."""
    first = int(rows[0])
    is_instant = slices.is_instant[first]
    event = varint_field(
        proto.EVENT_TYPE, proto.TYPE_INSTANT if is_instant else proto.TYPE_SLICE_BEGIN
    )
    event += varint_field(proto.EVENT_TRACK_UUID, slices.track[rows])
    event += varint_field(proto.EVENT_NAME_IID, slices.name[rows])
    if slices.category[first]:
        event += varint_field(proto.EVENT_CATEGORY_IIDS, slices.category[rows])
    if slices.color[first]:
        event += varint_field(proto.EVENT_CORRELATION_ID_STR_IID, slices.color[rows])
    for number, name in arg_names.items():
        event += slices.args[number].pieces(name, rows)
    low, high = np.searchsorted(slices.flows.row, (first, first + 1))
    if high > low:
        starts = np.searchsorted(slices.flows.row, rows)
        for k in range(high - low):
            event += fixed64_field(proto.EVENT_FLOW_IDS, slices.flows.id[starts + k])
    return _packets(len(rows), slices.ts_ns[rows], event, sequence)


def _ends(slices: Slices, rows: I64, sequence: int) -> U8:
    event = varint_field(proto.EVENT_TYPE, proto.TYPE_SLICE_END)
    event += varint_field(proto.EVENT_TRACK_UUID, slices.track[rows])
    return _packets(len(rows), slices.ts_ns[rows] + slices.dur_ns[rows], event, sequence)


def _interleave(blocks: Sequence[tuple[npt.NDArray[np.intp], U8]], n: int) -> memoryview:
    """Merge the rows of blocks, each with its positions among `n` rows."""
    width = np.zeros(n, dtype=np.int64)
    for positions, block in blocks:
        width[positions] = block.shape[1]
    offset = np.cumsum(width) - width
    out = np.empty(int(width.sum()), dtype=np.uint8)
    for positions, block in blocks:
        windows = np.lib.stride_tricks.sliding_window_view(out, block.shape[1], writeable=True)
        windows[offset[positions]] = block
    return out.data


def encode_slices(slices: Slices, arg_names: Sequence[int], sequence: int) -> Iterator[memoryview]:
    """Yield the packets of slices, a bounded number at a time.

    `arg_names`: interning ids, in `sequence`, of the names of ``slices.args``.
    """
    shapes = slices.shapes()
    is_end = (slices.boundary & 1).astype(bool)
    boundary = slices.boundary[~(is_end & slices.is_instant[slices.boundary >> 1])]
    for first in counted("part", range(0, len(boundary), _CHUNK)):
        chunk = boundary[first : first + _CHUNK]
        rows = chunk >> 1
        shape = np.where(chunk & 1, -1, shapes[rows])
        by_shape = np.argsort(shape, kind="stable")
        cuts = np.flatnonzero(np.diff(shape[by_shape])) + 1
        groups = np.split(by_shape, cuts)
        firsts = by_shape[np.append(0, cuts)]
        has = [arg.has(rows[firsts]) for arg in slices.args]
        blocks = []
        for number, at in enumerate(groups):
            if shape[at[0]] < 0:
                blocks.append((at, _ends(slices, rows[at], sequence)))
                continue
            names = {arg: name for arg, name in enumerate(arg_names) if has[arg][number]}
            blocks.append((at, _begins(slices, rows[at], names, sequence)))
        yield _interleave(blocks, len(chunk))


def encode_counter(track: int, ts_ns: I64, value: npt.NDArray[Any], sequence: int) -> memoryview:
    """Packets of the samples of a counter."""
    n = len(ts_ns)
    number = (
        varint_field(proto.EVENT_COUNTER_VALUE, value)
        if np.issubdtype(value.dtype, np.integer)
        else fixed64_field(proto.EVENT_DOUBLE_COUNTER_VALUE, value.astype(np.float64))
    )
    event = varint_field(proto.EVENT_TYPE, proto.TYPE_COUNTER)
    event += varint_field(proto.EVENT_TRACK_UUID, track) + number
    body = [
        *varint_field(proto.PACKET_TIMESTAMP, ts_ns),
        *varint_field(proto.PACKET_TRUSTED_PACKET_SEQUENCE_ID, sequence),
        *message_field(proto.PACKET_TRACK_EVENT, event),
    ]
    return assemble(n, message_field(proto.TRACE_PACKET, body)).reshape(-1).data


_UUIDS_PER_RANK = 1_000_000
"""Range of track ids of each rank."""

_MAX_ID = (1 << 31) - 1
"""Largest id of a process or thread in viewers."""

_ROOTS_PER_RANK = 1_000
"""Range of the order of root tracks of each rank."""

_NUMBER = re.compile(r"\b(thread )?(\d+)\b")
_ON_DEVICE = (*DEVICE_KINDS, EventKind.DEVICE_ANNOTATION, EventKind.SYNC)


class Process(NamedTuple):
    """The track of a process, its id in the file, and its name.

    The id is 0 if it is no process: in the track of another one, its threads have its name.
    """

    uuid: int
    pid: int
    name: str


class Tracks:
    """Descriptors of tracks under construction.

    `place`: from 1: the range of ids, and the packet sequence; by default the rank's. `moved_by`:
    by how much device times were shifted to fit the host clock, in words. `taken`: process ids of
    other parts of the file; gets those of this part.
    """

    def __init__(
        self,
        rank: int | None,
        *,
        place: int | None = None,
        moved_by: str = "",
        run: str = "",
        taken: set[int] | None = None,
    ) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2  # noqa: PLC0415

        self._trace = perfetto_trace_pb2.Trace()
        self.place = place if place is not None else 1 if rank is None else rank + 1
        of_rank = "" if rank is None else f"rank {rank}"
        self._of = tuple(filter(None, (of_rank, run)))
        self._uuid = self.place * _UUIDS_PER_RANK
        self._taken = set() if taken is None else taken
        self._first = 0
        self._n_roots = 0
        self.moved_by = moved_by
        everything = self.add().track_descriptor
        everything.uuid, everything.child_ordering = 0, EXPLICIT
        # As bytes: older versions of the schema lack it. Viewers without it put busy ones first.
        everything.MergeFromString(
            varint(DESCRIPTOR_PROCESS_ORDERING << 3) + varint(PROCESS_ORDERING_EXPLICIT)
        )

    def add(self) -> Any:  # noqa: ANN401  a message of a package without types
        """New packet of the descriptors."""
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = self.place
        return packet

    def _new(self, name: str, parent: int | None) -> Any:  # noqa: ANN401
        descriptor = self.add().track_descriptor
        self._uuid += 1
        descriptor.uuid = self._uuid
        if name:
            descriptor.name = utf8(name)
        if parent is not None:
            descriptor.parent_uuid = parent
        return descriptor

    def called(self, name: str) -> str:
        """A name with the rank and the run, unless it says them."""
        said = (of for of in self._of if not re.search(rf"\b{re.escape(of)}\b", name))
        return ", ".join([name, *said])

    def root(self, name: str, description: str = "") -> int:
        """New track above all processes, below earlier roots."""
        self._n_roots += 1
        order = self.place * _ROOTS_PER_RANK + self._n_roots
        return self.child(self.called(name), None, order, description)

    def child(self, name: str, parent: int | None, order: int = 0, description: str = "") -> int:
        """New track within a track; children with one name are drawn as one track with rows."""
        descriptor = self._new(name, parent)
        descriptor.sibling_order_rank = order
        descriptor.child_ordering = EXPLICIT
        if description:
            descriptor.description = utf8(description)
        return int(descriptor.uuid)

    def process(self, name: str, pid: int | str) -> Process:
        """New track of a process; what is none is drawn in the first process, if there is one."""
        if not _is_id(pid):
            called = _named(name, pid)
            return (
                Process(self._first, 0, called)
                if self._first
                else Process(self.root(called), 0, "")
            )
        new = next(number for number in chain([int(pid)], count(1)) if number not in self._taken)
        self._taken.add(new)
        descriptor = self._new("", None)
        descriptor.process.pid, descriptor.sibling_order_rank = new, self.place
        label = (name or "process") if new == pid else _named(name, pid)
        descriptor.process.process_name = utf8(self.called(label))
        self._first = self._first or int(descriptor.uuid)
        return Process(int(descriptor.uuid), new, name)

    def thread(self, label: str, tid: int | str, process: Process, n_rows: int = 1) -> list[int]:
        """New tracks of a thread in the track of its process, one for each row."""
        if not _is_id(tid) or not process.pid:
            name = f"thread {tid}" if isinstance(tid, int) and label == str(tid) else label
            name = name or "no thread"
            first = self.child(name, process.uuid, self._uuid % _UUIDS_PER_RANK)
        else:
            descriptor = self._new("", process.uuid)
            descriptor.thread.pid, descriptor.thread.tid = process.pid, int(tid)
            bare = _NUMBER.sub(lambda at: "" if at[2] == str(tid) else at[0], label).strip(" ()")
            name = "thread" if bare == process.name else bare or "thread"
            descriptor.thread.thread_name = utf8(name)
            first = int(descriptor.uuid)
        return [first, *(self.child(f"{name}, overlapping", first) for _ in range(n_rows - 1))]

    def counter(self, name: str, unit: str, parent: int | None) -> int:
        """New counter track, below the slices of its parent."""
        descriptor = self._new(name, parent)
        descriptor.sibling_order_rank = self._uuid % _UUIDS_PER_RANK
        descriptor.counter.unit_name = unit
        return int(descriptor.uuid)

    def serialize(self) -> bytes:
        """Descriptors as bytes."""
        return bytes(self._trace.SerializeToString())


def _is_id(number: int | str) -> bool:
    """Whether viewers accept a process or thread id."""
    return isinstance(number, int) and 0 < number <= _MAX_ID


def _named(process: str, pid: int | str) -> str:
    number = f"pid {pid}" if isinstance(pid, int) else pid
    return f"{process} ({number})" if process and number != process else number


def device_of_lane(events: EventTable) -> I32:
    """Device whose stream a lane is, -1 for a host thread."""
    on_device = among(events.kind, _ON_DEVICE)
    out = np.full(len(events.lanes), -1, dtype=np.int32)
    out[events.lane[on_device]] = 0
    by_pid = [pid if isinstance(pid, int) and 0 <= pid < 1 << 20 else 0 for pid in events.lanes.pid]
    out = np.where(out == 0, np.array(by_pid, dtype=np.int32), out)
    known = on_device & (events.device >= 0)
    out[events.lane[known]] = events.device[known]
    return out.astype(np.int32)


def _stream_name(events: EventTable, lane: int) -> str:
    tid, name = events.lanes.tid[lane], events.lanes.thread[lane].strip()
    if name and (str(tid) in name.split() or (isinstance(tid, int) and tid < 0)):
        return name
    if name:
        return f"{name} ({tid})"
    # Old profilers write the word themselves.
    return str(tid) if str(tid).startswith("stream") else f"stream {tid}"


def lane_tracks(
    tracks: Tracks, events: EventTable, row: I32
) -> tuple[I64, dict[int, int], dict[tuple[int, int], int]]:
    """Make the tracks of all lanes that have events: those of events, of devices and of streams.

    `row` of shape (n_events,): row within the lane; rows after the first get tracks of their own.
    """
    device, lanes = device_of_lane(events), events.lanes
    stream = np.full(len(lanes), -1, dtype=np.int64)
    known = events.stream >= 0
    stream[events.lane[known]] = events.stream[known]
    n_rows = np.zeros(len(lanes), dtype=np.int64)
    np.maximum.at(n_rows, events.lane, row.astype(np.int64) + 1)
    used = sorted(
        np.flatnonzero(n_rows).tolist(),
        key=lambda lane: (  # numbers before texts
            isinstance(lanes.pid[lane], str),
            lanes.pid[lane],
            lanes.thread_sort[lane],
            isinstance(lanes.tid[lane], str),
            lanes.tid[lane],
        ),
    )
    moved_by = tracks.moved_by
    shift = f"Shifted by {moved_by} to fit the host clock." if moved_by else ""
    found = sorted({int(device[lane]) for lane in used} - {-1})
    groups = {number: tracks.root(f"GPU {number}", shift) for number in found}
    streams: dict[tuple[int, int], int] = {}
    processes: dict[int | str, Process] = {}
    table = np.zeros((len(lanes), int(n_rows.max(initial=1))), dtype=np.int64)
    for order, lane in enumerate(used):
        if device[lane] >= 0:
            name = _stream_name(events, lane)
            uuids = [
                tracks.child(name, groups[int(device[lane])], order) for _ in range(n_rows[lane])
            ]
            streams.setdefault((int(device[lane]), int(stream[lane])), uuids[0])
        else:
            pid = lanes.pid[lane]
            if pid not in processes:
                processes[pid] = tracks.process(lanes.process[lane], pid)
            label = lanes.label(lane)
            if not processes[pid].pid:
                label = ": ".join(filter(None, (processes[pid].name, label)))
            uuids = tracks.thread(label, lanes.tid[lane], processes[pid], n_rows[lane])
        table[lane, : len(uuids)] = uuids
    return table[events.lane, row], groups, streams
