"""The compiled scanner: bytes of a trace → `scan.Scan`.

The classes of protobuf need 9 us for a packet and its fields, and a trace has two packets a slice;
this needs a fiftieth of that. It knows the fields that millions of packets have, and only notes
that there are others. A position of -1 says that a field is cut off. Counts are packets,
annotations, flows and texts; bytes of a packet that is cut off at the end; bytes that are no
packet, and where first; bytes that may still be looked at to find where packets go on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.model import supplement
from htagraph.model.supplement import FIELD
from htagraph.native.inner import called, inlined
from htagraph.native.passes import compiled
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

__all__ = ["fill"]

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PACKET = 10
_BYTE = np.uint64(0x7F)
_MORE = np.uint64(0x80)
_SEVEN = np.uint64(7)
_WIDE = np.uint64(64)
_THREE = np.uint64(3)
_ONE_FIELD = np.uint64(8)
_PACKETS, _ANNOTATIONS, _FLOWS, _TEXTS, _CUT, _LOST, _LOST_AT, _MAY_SEE = range(8)
_OF_SEQUENCE = 10
_IN_A_ROW = 4
_LONGEST = 1 << 16  # of packets that are looked for
_LOOKS = 8  # at each byte, by which more may be looked for
_AT, _N_BYTES, _TS, _CLOCK, _SEQUENCE, _WHAT, _OTHER, _TYPE, _TRACK, _NAME, _CATEGORY, _VALUE = (
    range(12)
)


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
    """Field, wire type and the position after both; field 0 is none."""
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
    """The position after a field."""
    if wire == _VARINT:
        return _varint(buf, i, end)[1]
    if wire == _BYTES:
        return _body(buf, i, end)[1]
    width = 8 if wire == _FIXED64 else 4
    return i + width if wire in (_FIXED64, _FIXED32) and i + width <= end else -1


@inlined
def _iid(number: int) -> int:
    """A number of a text; what is none is 0."""
    return max(0, number)


@inlined
def _text(out: Room, counts: I64, start: int, end: int, fills: bool) -> int:
    """Enter a text; its number."""
    row = counts[_TEXTS]
    if fills:
        out.texts[0, row], out.texts[1, row] = start, end - start
    counts[_TEXTS] = row + 1
    return -1 - row


@inlined
def _flow(out: Room, counts: I64, number: np.int64, ends: bool, fills: bool) -> None:
    """Enter a flow."""
    row = counts[_FLOWS]
    if fills:
        out.flows[0, row] = counts[_PACKETS]
        out.flows[1, row] = number
        out.flows[2, row] = ends
    counts[_FLOWS] = row + 1


@called
def _annotation(buf: U8, i: int, end: int, out: Room, counts: I64, fills: bool) -> bool:
    """Enter an annotation; whether it is whole."""
    name, form, value = 0, 0, 0
    while i < end:
        field, wire, i = _tag(buf, i, end)
        if i < 0:
            return False
        if wire == _VARINT:
            number, i = _varint(buf, i, end)
            if field == 1:
                name = _iid(np.int64(number))
            elif field == 4:
                form, value = INT, np.int64(number)
            elif field == 17:
                form, value = INTERNED, _iid(np.int64(number))
            elif field in (3, 7):
                form, value = UINT, np.int64(number)
            elif field == 2:
                form, value = BOOL, np.int64(number != np.uint64(0))
        elif wire == _BYTES:
            start, i = _body(buf, i, end)
            if i < 0:
                return False
            if field == 10:
                name = _text(out, counts, start, i, fills)
            elif field == 6:
                form, value = TEXT, _text(out, counts, start, i, fills)
            else:
                form = OTHER
        else:
            start, i = i, _after(buf, i, end, wire)
            if field == 5 and wire == _FIXED64 and i >= 0:
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


@called
def _event_number(
    field: int,
    number: np.int64,
    out: Room,
    counts: I64,
    fills: bool,
) -> int:
    """Enter a number of an event; what it says of the packet."""
    packet = counts[_PACKETS]
    if field in (36, 42):
        _flow(out, counts, number, field == 42, fills)
    if fills:
        if field == 9:
            out.packets[_TYPE, packet] = number & 0x7F
        elif field == 10:
            out.packets[_NAME, packet] = _iid(np.int64(number))
        elif field == 11:
            out.packets[_TRACK, packet] = number
        elif field == 30:
            out.packets[_VALUE, packet] = number
        elif field == 3 and out.packets[_CATEGORY, packet] == 0:
            out.packets[_CATEGORY, packet] = _iid(np.int64(number))
    if field == 11:
        return HAS_TRACK
    if field == 30:
        return INTEGER
    if field in (12, 31, 45):
        return EXTRA
    return LEGACY if field in (1, 16) else 0


@called
def _event(buf: U8, i: int, end: int, out: Room, counts: I64, fills: bool) -> int:
    """Enter the event of a packet; what it says of the packet."""
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
            if field == 4:
                if not _annotation(buf, start, i, out, counts, fills):
                    return what | BAD
            elif field in (22, 23):
                text = _text(out, counts, start, i, fills)
                if fills and field == 23:
                    out.packets[_NAME, packet] = text
                elif fills and out.packets[_CATEGORY, packet] == 0:
                    out.packets[_CATEGORY, packet] = text
            elif field == 3:  # several at once
                number, start = _varint(buf, start, i)
                if start >= 0:
                    _event_number(field, np.int64(number), out, counts, fills)
            elif field in (47, 48):
                for at in range(start, i - 7, 8):
                    _flow(out, counts, _fixed64(buf, at), field == 48, fills)
            elif field == 6:
                what |= LEGACY
            elif field in (12, 31, 45, 46):
                what |= EXTRA
        else:
            start, i = i, _after(buf, i, end, wire)
            if i >= 0 and wire == _FIXED64:
                if field == 44:
                    what |= FLOAT
                    if fills:
                        out.packets[_VALUE, packet] = _fixed64(buf, start)
                elif field in (47, 48):
                    _flow(out, counts, _fixed64(buf, start), field == 48, fills)
                elif field == 46:
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
    """Enter a number of a packet; what it says of it."""
    packet = counts[_PACKETS]
    if fills:
        if field == 8:
            out.packets[_TS, packet] = np.int64(number)
        elif field == 10:
            out.packets[_SEQUENCE, packet] = np.int64(number)
        elif field == 58:
            out.packets[_CLOCK, packet] = np.int32(number & np.uint64(0x7FFFFFFF))
    if field == 8:
        return HAS_TIME
    if field == 42:
        return AFTER_LOSS if number else 0
    is_cleared = (field == 13 and number & np.uint64(1)) or (field == 41 and number)
    return CLEARED if is_cleared else 0


@called
def _packet(buf: U8, i: int, end: int, out: Room, counts: I64, fills: bool) -> int:
    """Enter a packet; what it is."""
    what, other = 0, 0
    while i < end:
        field, wire, i = _tag(buf, i, end)
        if i < 0:
            return what | BAD
        if wire == _VARINT:
            number, i = _varint(buf, i, end)
            what |= _packet_number(field, number, out, counts, fills)
        elif field == 11 and wire == _BYTES:
            start, i = _body(buf, i, end)
            if i < 0:
                return what | BAD
            what |= EVENT | _event(buf, start, i, out, counts, fills)
        else:
            i = _after(buf, i, end, wire)
            if field in (2, 6, 12, 43, 44, 59, 60, FIELD):
                what |= SPECIAL
            elif field != 36 and other == 0:
                other = field
        if i < 0:
            return what | BAD
    if fills:
        out.packets[_OTHER, counts[_PACKETS]] = other
    return what


@called
def _is_packet(buf: U8, i: int, end: int) -> tuple[bool, int]:
    """Whether bytes are fields of a packet with a sequence, as all have; how far was looked."""
    has_sequence = False
    while i < end:
        at = i
        field, wire, i = _tag(buf, i, end)
        if i < 0:
            return False, at
        has_sequence |= field == _OF_SEQUENCE and wire == _VARINT
        i = _after(buf, i, end, wire)
        if i < 0:
            return False, at
    return has_sequence, end


@called
def _next_packet(buf: U8, i: int, end: int, counts: I64) -> int:
    """Where packets go on: some in a row, or those before the end; the end for nowhere.

    A byte may be looked at some times, so that what only seems to be packets takes no longer.
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


fill = compiled(_fill, (scan.__file__, supplement.__file__))
