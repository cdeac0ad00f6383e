"""Values of known keys, read into the scratch event. Compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.readers.defects import Defect
from htagraph.readers.kineto.compiled.lexer import (
    MAX_DEPTH,
    decimal,
    scaled,
    skip_space,
    skip_value,
    string_end,
)
from htagraph.readers.kineto.compiled.machine import called, inlined
from htagraph.readers.kineto.event_fields import COLUMNS, Field, Read

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

_N_FIELDS = Field.FIRST_SPARSE + len(COLUMNS)
QUOTE, MINUS, OPEN_LIST, CLOSE_LIST, COMMA = 34, 45, 91, 93, 44
"""Bytes of JSON."""

_TO_NS = 3  # powers of ten between microseconds and nanoseconds
_MAX_TIME = np.uint64(1 << 62)
_HALF_RANGE = np.uint64(1 << 63)
_EXACT_DIGITS = np.uint64(1 << 53)
"""Largest integer up to which all are float64; so are powers of ten up to 10**22."""

_REAL_POWERS = np.array([10.0**k for k in range(23)])


class Event(NamedTuple):
    """The event being read: what each field holds."""

    value: I64  #: integers, nanoseconds, bits of reals
    real: npt.NDArray[np.float64]  #: the same memory as `value`
    start: I64  #: bytes of the value; a text without its quotes
    end: I64
    has: I64  #: equals ``serial[0]`` where this event has the field
    listed: I64  #: equals ``serial[0]`` where `sparse` lists the field
    serial: I64  #: [0] serial number; [1] number of sparse fields; [2] defects, one bit each
    sparse: I64  #: the sparse fields that were set
    stack: U8  #: open brackets
    word: I64  #: one word, for pairs of codes
    word_bytes: U8  #: the same memory


def new_event() -> Event:
    """Room for one event."""
    value = np.zeros(_N_FIELDS, dtype=np.int64)
    start, end, has, listed, sparse = (np.zeros(_N_FIELDS, dtype=np.int64) for _ in range(5))
    word = np.zeros(2, dtype=np.int64)
    return Event(
        value,
        value.view(np.float64),
        start,
        end,
        has,
        listed,
        np.zeros(3, np.int64),
        sparse,
        np.zeros(MAX_DEPTH, np.uint8),
        word,
        word.view(np.uint8),
    )


@called
def integer_text(buf: U8, a: int, b: int) -> tuple[int, bool]:
    """The integer that ``buf[a:b]`` spells in decimal or as ``0x…``, and whether it does."""
    if b - a > 2 and buf[a] == 48 and (buf[a + 1] | 32) == 120:
        value = np.uint64(0)
        for k in range(a + 2, b):
            c = buf[k] | 32
            d = c - 48 if 48 <= c <= 57 else c - 87 if 97 <= c <= 102 else 16
            if d == 16 or value >> np.uint64(60):
                return 0, False
            value = (value << np.uint64(4)) | np.uint64(d)
        return np.int64(value), True
    if a == b:
        return 0, False
    i, digits, power, negative, lost = decimal(buf, a)
    whole, fits = scaled(digits, power, lost)
    if i != b or not fits or (negative and whole > _HALF_RANGE):
        return 0, False
    return -np.int64(whole) if negative else np.int64(whole), True


@inlined
def time_at(buf: U8, a: int, scale: int) -> tuple[int, int, bool]:
    """Read a decimal times a power of ten: next position, integer, whether it fits in 62 bits."""
    i, digits, power, negative, lost = decimal(buf, a)
    if i < 0:
        return i, 0, False
    whole, fits = scaled(digits, power + scale, lost)
    if not fits or whole >= _MAX_TIME:
        return i, 0, False
    return i, -np.int64(whole) if negative else np.int64(whole), True


@inlined
def _set(event: Event, field: int, a: int, b: int) -> None:
    event.has[field] = event.serial[0]
    if field >= Field.FIRST_SPARSE.value and event.listed[field] != event.serial[0]:
        event.listed[field] = event.serial[0]
        event.sparse[event.serial[1]] = field
        event.serial[1] += 1
    event.start[field] = a
    event.end[field] = b


@inlined
def _read_time(buf: U8, a: int, b: int, event: Event, field: int) -> int:
    """Read a time; return the position after it. ``b`` ends a text, -1 for a bare number."""
    i, value, fits = time_at(buf, a, _TO_NS)
    if i < 0 or (b >= 0 and i != b):
        return i if b < 0 else b
    event.value[field] = value
    _set(event, field, a, i)
    if not fits and field == Field.TS.value:
        event.serial[2] |= 1 << Defect.NANOSECONDS.value
    elif not fits:
        event.value[field] = -1  # a duration that cannot be true
    if b >= 0:
        event.serial[2] |= 1 << Defect.NUMBER_AS_TEXT.value
    return i


@inlined
def _read_int(buf: U8, a: int, event: Event, field: int) -> int:
    i, digits, power, negative, lost = decimal(buf, a)
    if i < 0:
        return i
    whole, fits = scaled(digits, power, lost)
    if not fits or (negative and whole > _HALF_RANGE):
        event.serial[2] |= 1 << Defect.NUMBER_TOO_LARGE.value
        return i
    event.value[field] = -np.int64(whole) if negative else np.int64(whole)
    _set(event, field, a, i)
    return i


@called
def _read_real(buf: U8, a: int, event: Event, field: int) -> int:
    """Read a float. Where a division would round twice, ``end`` is set, and Python reads it."""
    i, digits, power, negative, lost = decimal(buf, a)
    if i < 0:
        return i
    exact = digits <= _EXACT_DIGITS and -22 <= power <= 22 and not lost
    _set(event, field, a, 0 if exact else i)
    if exact:
        real = np.float64(digits)
        real = real / _REAL_POWERS[-power] if power < 0 else real * _REAL_POWERS[power]
        event.real[field] = -real if negative else real
    return i


@called
def _read_triple(buf: U8, i: int, event: Event, field: int) -> int:
    """Read a list of three integers; -1 if it is something else."""
    for k in range(3):
        i = skip_space(buf, i + 1)
        i, digits, power, negative, lost = decimal(buf, i)
        if i < 0 or negative or lost or power != 0:
            return -1
        event.value[field + k] = np.int64(digits)
        i = skip_space(buf, i)
        if buf[i] != (CLOSE_LIST if k == 2 else COMMA):
            return -1
    for k in range(3):
        _set(event, field + k, 0, 0)
    return i + 1


@inlined
def _read_text(buf: U8, i: int, event: Event, field: int, read: int) -> int:
    """Read the text at a quote as its field wants it; return the position after it."""
    a = i + 1
    b = string_end(buf, a)
    if b < 0:
        return b
    if read == Read.TEXT.value:
        _set(event, field, a, b)
    elif read == Read.TIME.value:
        _read_time(buf, a, b, event, field)
    elif read == Read.INT.value:
        value, good = integer_text(buf, a, b)
        if good:
            event.value[field] = value
            _set(event, field, a, b)
    return b + 1


@inlined
def read_value(buf: U8, i: int, event: Event, field: int, read: int) -> int:
    """Read a value into the event; return the position after it. The last of equal keys counts."""
    event.has[field] = 0
    c = buf[i]
    if c == QUOTE:
        return _read_text(buf, i, event, field, read)
    if c == MINUS or 48 <= c <= 57:
        if read == Read.TIME.value:
            return _read_time(buf, i, -1, event, field)
        if read == Read.INT.value:
            return _read_int(buf, i, event, field)
        if read == Read.REAL.value:
            return _read_real(buf, i, event, field)
    elif c == OPEN_LIST and read == Read.TRIPLE.value:
        end = _read_triple(buf, i, event, field)
        if end >= 0:
            return end
    end = skip_value(buf, i, event.stack)
    if end > 0 and c != 110:  # not null
        if read == Read.TEXT.value or (read == Read.LIST.value and c == OPEN_LIST):
            _set(event, field, i, end)
        elif read == Read.INT.value and (c == 116 or c == 102):
            event.value[field] = c == 116
            _set(event, field, i, end)
    return end
