"""Slices of a Perfetto trace as columns, and their bytes, encoded by column.

A slice is written as two packets, begin and end, which a viewer matches by their order on a track;
so each track must nest strictly, as `rows` of `arrays/intervals.py` makes it.

Messages with the same fields differ only in their numbers. With numbers padded to one width
(protobuf allows leading zeros in a varint) all messages have the same size, so a field is a few
columns of a matrix of bytes, with a row for each message::

    08 96 81 00  50 01  5a 04 ...      row 0: field 8 = 150, field 10 = 1, field 11 of length 4 ...
    08 ff ff 03  50 01  5a 04 ...      row 1

A message is a list of pieces: bytes that are equal in all rows, and blocks (matrices) that are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.model import perfetto_fields as proto
from htagraph.model.arrays import I32, I64, U8, Bools
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
