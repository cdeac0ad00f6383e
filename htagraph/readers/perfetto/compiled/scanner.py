"""The compiled scanner: bytes of a trace → `scan.Scan`.

Protobuf's classes need 9 us per packet with its fields, and a slice takes two packets; this needs a
fiftieth. It knows the fields of which there are millions, and only notes that there are others. A
position of -1 means that a field is cut off.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.arrays.inner import called, inlined
from htagraph.arrays.passes import compiled
from htagraph.model import perfetto_fields
from htagraph.model import perfetto_fields as proto
from htagraph.model.perfetto_fields import FIELD
from htagraph.readers.perfetto import scan
from htagraph.readers.perfetto.scan import (
    AFTER_LOSS,
    BAD,
    BOOL,
    CLEARED,
    DOUBLE,
    EVENT,
    EXTRA,
    FLOAT,
    HAS_TIME,
    HAS_TRACK,
    INT,
    INTEGER,
    INTERNED,
    LEGACY,
    OTHER,
    SPECIAL,
    TEXT,
    UINT,
    Room,
)  # fmt: skip

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types of protobuf."""

_PACKET = 10
"""Tag of `Trace.packet`."""

_BYTE = np.uint64(0x7F)
_MORE = np.uint64(0x80)
_SEVEN = np.uint64(7)
_WIDE = np.uint64(64)
_THREE = np.uint64(3)
_ONE_FIELD = np.uint64(8)
_PACKETS, _ANNOTATIONS, _FLOWS, _TEXTS, _CUT, _LOST, _LOST_AT, _MAY_SEE = range(8)
"""Counts: packets, annotations, flows, texts; bytes of a packet that is cut off at the end; bytes
that are no packet, and where first; bytes that may still be searched for further packets."""

_IN_A_ROW = 4
"""Packets in a row that end damaged bytes (chosen)."""

_LONGEST = 1 << 16
"""Bytes of the longest of these (chosen)."""

_LOOKS = 8
"""How often each damaged byte may be read again while searching (chosen)."""

_AT, _N_BYTES, _TS, _CLOCK, _SEQUENCE, _WHAT, _OTHER, _TYPE, _TRACK, _NAME, _CATEGORY, _VALUE = (
    range(12)
)
"""Rows of `Room.packets`."""


_SPECIAL_FIELDS = (
    proto.PACKET_PROCESS_TREE,
    proto.PACKET_CLOCK_SNAPSHOT,
    proto.PACKET_INTERNED_DATA,
    proto.PACKET_PROCESS_DESCRIPTOR,
    proto.PACKET_THREAD_DESCRIPTOR,
    proto.PACKET_TRACE_PACKET_DEFAULTS,
    proto.PACKET_TRACK_DESCRIPTOR,
    FIELD,
)
"""Fields for which the classes of protobuf read a packet: descriptors, clocks, supplements."""


@inlined
def _varint(buf: U8, i: int, end: int) -> tuple[np.uint64, int]:
    """A number, and the position after it."""
    value, shift = np.uint64(0), np.uint64(0)
    at = -1
    while i < end and shift < np.uint64(70):
        byte = np.uint64(buf[i])
        i += 1
        if shift < _WIDE:
            value |= (byte & _BYTE) << shift
        if byte < _MORE:
            at = i
            break
        shift += _SEVEN
    return value, at


@inlined
def _tag(buf: U8, i: int, end: int) -> tuple[int, int, int]:
    """Field, wire type and the position after both; field 0 is invalid."""
    tag, i = _varint(buf, i, end)
    if tag < _ONE_FIELD or tag >= np.uint64(1 << 32):
        i = -1
    return np.int64(tag >> _THREE), np.int64(tag & _SEVEN), i


@inlined
def _fixed64(buf: U8, i: int) -> np.int64:
    value = np.uint64(0)
    for k in range(8):
        value |= np.uint64(buf[i + k]) << np.uint64(8 * k)
    return np.int64(value)


@inlined
def _body(buf: U8, i: int, end: int) -> tuple[int, int]:
    """Where the bytes of a field begin and end."""
    length, i = _varint(buf, i, end)
    stop = -1
    if i >= 0 and length <= np.uint64(end - i):
        stop = i + np.int64(length)
    return i, stop


@called
def _after(buf: U8, i: int, end: int, wire: int) -> int:
    if wire == _VARINT:
        return _varint(buf, i, end)[1]
    if wire == _BYTES:
        return _body(buf, i, end)[1]
    width = 8 if wire == _FIXED64 else 4
    return i + width if wire in (_FIXED64, _FIXED32) and i + width <= end else -1


@inlined
def _iid(number: int) -> int:
    """An interning id; 0 for an invalid one."""
    return max(0, number)


@inlined
def _text(out: Room, counts: I64, start: int, end: int, fills: bool) -> int:
    """Enter a text; return its number."""
    row = counts[_TEXTS]
    if fills:
        out.texts[0, row], out.texts[1, row] = start, end - start
    counts[_TEXTS] = row + 1
    return -1 - row


@inlined
def _flow(out: Room, counts: I64, number: np.int64, ends: bool, fills: bool) -> None:
    row = counts[_FLOWS]
    if fills:
        out.flows[0, row] = counts[_PACKETS]
        out.flows[1, row] = number
        out.flows[2, row] = ends
    counts[_FLOWS] = row + 1


@called
def _annotation(buf: U8, i: int, end: int, out: Room, counts: I64, fills: bool) -> bool:
    """Enter an annotation; false if it is cut off."""
    name, form, value = 0, 0, 0
    while i < end:
        field, wire, i = _tag(buf, i, end)
        if i < 0:
            return False
        if wire == _VARINT:
            number, i = _varint(buf, i, end)
            if field == proto.ANNOTATION_NAME_IID:
                name = _iid(np.int64(number))
            elif field == proto.ANNOTATION_INT_VALUE:
                form, value = INT, np.int64(number)
            elif field == proto.ANNOTATION_STRING_VALUE_IID:
                form, value = INTERNED, _iid(np.int64(number))
            elif field in (proto.ANNOTATION_UINT_VALUE, proto.ANNOTATION_POINTER_VALUE):
                form, value = UINT, np.int64(number)
            elif field == proto.ANNOTATION_BOOL_VALUE:
                form, value = BOOL, np.int64(number != np.uint64(0))
        elif wire == _BYTES:
            start, i = _body(buf, i, end)
            if i < 0:
                return False
            if field == proto.ANNOTATION_NAME:
                name = _text(out, counts, start, i, fills)
            elif field == proto.ANNOTATION_STRING_VALUE:
                form, value = TEXT, _text(out, counts, start, i, fills)
            else:
                form = OTHER
        else:
            start, i = i, _after(buf, i, end, wire)
            if field == proto.ANNOTATION_DOUBLE_VALUE and wire == _FIXED64 and i >= 0:
                form, value = DOUBLE, _fixed64(buf, start)
        if i < 0:
            return False
    if fills:
        row = counts[_ANNOTATIONS]
        out.annotations[0, row] = counts[_PACKETS]
        out.annotations[1, row] = name
        out.annotations[3, row] = value
        out.annotations[2, row] = form
    counts[_ANNOTATIONS] += 1
    return True


@inlined
def _is_extra(field: int) -> bool:
    """Whether a field is of the additional counters of a slice."""
    return field in (
        proto.EVENT_EXTRA_COUNTER_VALUES,
        proto.EVENT_EXTRA_COUNTER_TRACK_UUIDS,
        proto.EVENT_EXTRA_DOUBLE_COUNTER_TRACK_UUIDS,
        proto.EVENT_EXTRA_DOUBLE_COUNTER_VALUES,
    )


@called
def _event_number(
    field: int,
    number: np.int64,
    out: Room,
    counts: I64,
    fills: bool,
) -> int:
    """Enter a number of an event; return what it tells about the packet."""
    packet = counts[_PACKETS]
    if field in (proto.EVENT_FLOW_IDS_OLD, proto.EVENT_TERMINATING_FLOW_IDS_OLD):
        ends = field == proto.EVENT_TERMINATING_FLOW_IDS_OLD
        _flow(out, counts, number, ends, fills)
    if fills:
        if field == proto.EVENT_TYPE:
            out.packets[_TYPE, packet] = number & 0x7F
        elif field == proto.EVENT_NAME_IID:
            out.packets[_NAME, packet] = _iid(np.int64(number))
        elif field == proto.EVENT_TRACK_UUID:
            out.packets[_TRACK, packet] = number
        elif field == proto.EVENT_COUNTER_VALUE:
            out.packets[_VALUE, packet] = number
        elif field == proto.EVENT_CATEGORY_IIDS and out.packets[_CATEGORY, packet] == 0:
            out.packets[_CATEGORY, packet] = _iid(np.int64(number))
    if field == proto.EVENT_TRACK_UUID:
        return HAS_TRACK
    if field == proto.EVENT_COUNTER_VALUE:
        return INTEGER
    if _is_extra(field):
        return EXTRA
    is_legacy = field in (proto.EVENT_TIMESTAMP_DELTA_US, proto.EVENT_TIMESTAMP_ABSOLUTE_US)
    return LEGACY if is_legacy else 0


@called
def _event(buf: U8, i: int, end: int, out: Room, counts: I64, fills: bool) -> int:
    """Enter the event of a packet; return what it tells about the packet."""
    packet, what = counts[_PACKETS], 0
    while i < end:
        field, wire, i = _tag(buf, i, end)
        if i < 0:
            return what | BAD
        if wire == _VARINT:
            number, i = _varint(buf, i, end)
            what |= _event_number(field, np.int64(number), out, counts, fills)
        elif wire == _BYTES:
            start, i = _body(buf, i, end)
            if i < 0:
                return what | BAD
            if field == proto.EVENT_DEBUG_ANNOTATIONS:
                if not _annotation(buf, start, i, out, counts, fills):
                    return what | BAD
            elif field in (proto.EVENT_CATEGORIES, proto.EVENT_NAME):
                text = _text(out, counts, start, i, fills)
                if fills and field == proto.EVENT_NAME:
                    out.packets[_NAME, packet] = text
                elif fills and out.packets[_CATEGORY, packet] == 0:
                    out.packets[_CATEGORY, packet] = text
            elif field == proto.EVENT_CATEGORY_IIDS:  # packed: several at once
                number, start = _varint(buf, start, i)
                if start >= 0:
                    _event_number(field, np.int64(number), out, counts, fills)
            elif field in (proto.EVENT_FLOW_IDS, proto.EVENT_TERMINATING_FLOW_IDS):
                ends = field == proto.EVENT_TERMINATING_FLOW_IDS
                for at in range(start, i - 7, 8):
                    _flow(out, counts, _fixed64(buf, at), ends, fills)
            elif field == proto.EVENT_LEGACY_EVENT:
                what |= LEGACY
            elif _is_extra(field):
                what |= EXTRA
        else:
            start, i = i, _after(buf, i, end, wire)
            if i >= 0 and wire == _FIXED64:
                if field == proto.EVENT_DOUBLE_COUNTER_VALUE:
                    what |= FLOAT
                    if fills:
                        out.packets[_VALUE, packet] = _fixed64(buf, start)
                elif field in (proto.EVENT_FLOW_IDS, proto.EVENT_TERMINATING_FLOW_IDS):
                    ends = field == proto.EVENT_TERMINATING_FLOW_IDS
                    _flow(out, counts, _fixed64(buf, start), ends, fills)
                elif _is_extra(field):
                    what |= EXTRA
        if i < 0:
            return what | BAD
    return what


@called
def _packet_number(
    field: int,
    number: np.uint64,
    out: Room,
    counts: I64,
    fills: bool,
) -> int:
    """Enter a number of a packet; return what it tells about it."""
    packet = counts[_PACKETS]
    if fills:
        if field == proto.PACKET_TIMESTAMP:
            out.packets[_TS, packet] = np.int64(number)
        elif field == proto.PACKET_TRUSTED_PACKET_SEQUENCE_ID:
            out.packets[_SEQUENCE, packet] = np.int64(number)
        elif field == proto.PACKET_TIMESTAMP_CLOCK_ID:
            out.packets[_CLOCK, packet] = np.int32(number & np.uint64(0x7FFFFFFF))
    if field == proto.PACKET_TIMESTAMP:
        return HAS_TIME
    if field == proto.PACKET_PREVIOUS_PACKET_DROPPED:
        return AFTER_LOSS if number else 0
    if field == proto.PACKET_SEQUENCE_FLAGS:
        return CLEARED if number & np.uint64(proto.SEQ_INCREMENTAL_STATE_CLEARED) else 0
    return CLEARED if field == proto.PACKET_INCREMENTAL_STATE_CLEARED and number else 0


@called
def _packet(buf: U8, i: int, end: int, out: Room, counts: I64, fills: bool) -> int:
    """Enter a packet; return what it is."""
    what, other = 0, 0
    while i < end:
        field, wire, i = _tag(buf, i, end)
        if i < 0:
            return what | BAD
        if wire == _VARINT:
            number, i = _varint(buf, i, end)
            what |= _packet_number(field, number, out, counts, fills)
        elif field == proto.PACKET_TRACK_EVENT and wire == _BYTES:
            start, i = _body(buf, i, end)
            if i < 0:
                return what | BAD
            what |= EVENT | _event(buf, start, i, out, counts, fills)
        else:
            i = _after(buf, i, end, wire)
            if field in _SPECIAL_FIELDS:
                what |= SPECIAL
            elif field != proto.PACKET_SYNCHRONIZATION_MARKER and other == 0:
                other = field
        if i < 0:
            return what | BAD
    if fills:
        out.packets[_OTHER, counts[_PACKETS]] = other
    return what


@called
def _is_packet(buf: U8, i: int, end: int) -> tuple[bool, int]:
    """Whether bytes are fields of a packet with a sequence, as all have; how far was read."""
    has_sequence = False
    while i < end:
        at = i
        field, wire, i = _tag(buf, i, end)
        if i < 0:
            return False, at
        has_sequence |= field == proto.PACKET_TRUSTED_PACKET_SEQUENCE_ID and wire == _VARINT
        i = _after(buf, i, end, wire)
        if i < 0:
            return False, at
    return has_sequence, end


@called
def _next_packet(buf: U8, i: int, end: int, counts: I64) -> int:
    """Where packets continue: some in a row, or the last ones; the end for nowhere.

    Each byte is read a limited number of times, so that what only resembles packets takes no
    longer.
    """
    while i < end:
        n, at = 0, i
        while counts[_MAY_SEE] > 0 and at < end and n < _IN_A_ROW and buf[at] == _PACKET:
            start, at = _body(buf, at + 1, end)
            if at < 0 or at - start > _LONGEST:
                n = -1
                break
            is_packet, seen = _is_packet(buf, start, at)
            counts[_MAY_SEE] -= seen - start
            if not is_packet:
                n = -1
                break
            n += 1
        if n == _IN_A_ROW or (n > 0 and at == end):
            return i
        i += 1
        counts[_MAY_SEE] += _LOOKS
    return end


def _fill(buf: U8, out: Room, counts: I64, fills: bool) -> None:
    """Fill the columns, or only count their rows."""
    counts[:] = 0
    counts[_MAY_SEE] = _IN_A_ROW * _LONGEST
    end, i = len(buf), 0
    while i < end:
        at, stop = i, -1
        if buf[i] == _PACKET:
            at, stop = _body(buf, i + 1, end)
        if stop < 0:
            again = _next_packet(buf, i + 1, end, counts)
            if again == end and buf[i] == _PACKET:
                counts[_CUT] = end - i
                break
            if counts[_LOST] == 0:
                counts[_LOST_AT] = i
            counts[_LOST] += again - i
            i = again
            continue
        packet = counts[_PACKETS]
        what = _packet(buf, at, stop, out, counts, fills)
        if what & BAD:  # its length may be wrong
            stop = min(stop, _next_packet(buf, at, stop, counts))
        if fills:
            out.packets[_AT, packet] = at
            out.packets[_N_BYTES, packet] = stop - at
            out.packets[_WHAT, packet] = what
        counts[_PACKETS] = packet + 1
        i = stop


fill = compiled(_fill, (scan.__file__, perfetto_fields.__file__, proto.__file__))
