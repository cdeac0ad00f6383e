"""JSON tokens in a buffer of bytes: strings, numbers, whole values. Compiled.

Every function takes a uint8 array that is followed by at least `PADDING` zero bytes, and a
position. It returns the position after the token, or ``-(position) - 1`` of the first invalid byte.
The zeros after the end are invalid, so a truncated token fails at the end.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.readers.kineto.compiled.machine import (
    called,
    entry,
    inlined,
    trailing_zeros,
    word_at,
)

U8 = npt.NDArray[np.uint8]

PADDING = 16
"""Zero bytes required after a buffer: two words, so that reads of eight bytes stay inside."""

MAX_DEPTH = 256
"""Deepest nesting of lists and objects."""

TOO_DEEP = -(1 << 62)
"""Returned instead of a position for deeper nesting."""

QUOTE, BACKSLASH, COMMA, COLON, MINUS, POINT = 34, 92, 44, 58, 45, 46
"""Bytes of JSON."""

OPEN_OBJECT, OPEN_LIST, CLOSE_LIST = 123, 91, 93

_ONES = np.uint64(0x0101010101010101)
"""Words of equal bytes, for `plain_end`."""

_HIGHS = np.uint64(0x8080808080808080)
_QUOTES = np.uint64(QUOTE * 0x0101010101010101)
_BACKSLASHES = np.uint64(BACKSLASH * 0x0101010101010101)
_SPACES = np.uint64(32 * 0x0101010101010101)
_ZEROS = np.uint64(ord("0") * 0x0101010101010101)
_SIXES = np.uint64(6 * 0x0101010101010101)
_HIGH_HALVES = np.uint64(0xF0F0F0F0F0F0F0F0)
_PAIRS = np.uint64(0x00FF00FF00FF00FF)
_FOURS = np.uint64(0x0000FFFF0000FFFF)
_TEN = np.uint64(10)
_POWERS = np.array([10**k for k in range(20)], dtype=np.uint64)
_MAX = np.uint64(2**64 - 1)


@inlined
def skip_space(buf: U8, i: int) -> int:
    """The position of the next byte that is not white space."""
    while buf[i] <= 32 and (buf[i] == 32 or buf[i] == 10 or buf[i] == 13 or buf[i] == 9):
        i += 1
    return i


@inlined
def plain_end(buf: U8, i: int) -> int:
    """The position of the next quote, backslash, control byte or non-ASCII byte.

    Eight bytes at a time: ``(x - ones) & ~x & highs`` marks the lowest zero byte of ``x``, and the
    same subtraction finds bytes below 32.
    """
    while True:
        word = word_at(buf, i)
        quotes = word ^ _QUOTES
        backslashes = word ^ _BACKSLASHES
        marks = (
            ((quotes - _ONES) & ~quotes)
            | ((backslashes - _ONES) & ~backslashes)
            | ((word - _SPACES) & ~word)
            | word
        )
        marks &= _HIGHS
        if marks:
            return i + (trailing_zeros(marks) >> 3)
        i += 8


@called
def escape_end(buf: U8, i: int) -> int:
    """The position after the escape at a backslash."""
    c = buf[i + 1]
    if c == 117:  # u
        for k in range(i + 2, i + 6):
            d = buf[k]
            if not (48 <= d <= 57 or 65 <= d <= 70 or 97 <= d <= 102):
                return -k - 1
        return i + 6
    if (
        c == QUOTE
        or c == BACKSLASH
        or c == 47
        or c == 98
        or c == 102
        or c == 110
        or c == 114
        or c == 116
    ):
        return i + 2
    return -(i + 1) - 1


@called
def utf8_end(buf: U8, i: int) -> int:
    """The position after the non-ASCII character that starts here."""
    c = buf[i]
    low, high = (
        0x80,
        0xBF,
    )  # bounds of the second byte: no overlong forms, no surrogates, nothing above U+10FFFF
    if 0xC2 <= c <= 0xDF:
        n = 1
    elif 0xE0 <= c <= 0xEF:
        n = 2
        low = 0xA0 if c == 0xE0 else 0x80
        high = 0x9F if c == 0xED else 0xBF
    elif 0xF0 <= c <= 0xF4:
        n = 3
        low = 0x90 if c == 0xF0 else 0x80
        high = 0x8F if c == 0xF4 else 0xBF
    else:
        return -i - 1
    for k in range(i + 1, i + n + 1):
        if not low <= buf[k] <= high:
            return -k - 1
        low, high = 0x80, 0xBF
    return i + n + 1


@inlined
def string_end(buf: U8, i: int) -> int:
    """The position of the closing quote of a text whose content starts here."""
    while True:
        i = plain_end(buf, i)
        c = buf[i]
        if c == QUOTE:
            return i
        if c == BACKSLASH:
            i = escape_end(buf, i)
        elif c >= 0x80:
            i = utf8_end(buf, i)
        else:
            return -i - 1
        if i < 0:
            return i


@inlined
def _digits(buf: U8, i: int) -> tuple[int, np.uint64]:
    """The number of decimal digits from here, up to eight, and what they spell.

    A byte is no digit if ``x ^ '0'``, or that plus 6, has one of the higher four bits. Then digits
    are added up in pairs, pairs of pairs and halves.
    """
    word = word_at(buf, i) ^ _ZEROS
    marks = (word | (word + _SIXES)) & _HIGH_HALVES
    n = 8
    if marks:
        n = trailing_zeros(marks) >> 3
        if n == 0:
            return 0, np.uint64(0)
        word <<= np.uint64(64 - 8 * n)  # zeros in front
    word = (word * np.uint64(10 * 256 + 1)) >> np.uint64(8)
    word = ((word & _PAIRS) * np.uint64(100 * 65_536 + 1)) >> np.uint64(16)
    word = ((word & _FOURS) * np.uint64(10_000 * 2**32 + 1)) >> np.uint64(32)
    return n, word


@inlined
def decimal(buf: U8, i: int) -> tuple[int, np.uint64, int, bool, bool]:
    """Read a number.

    Returns the position after it, digits, power of ten, whether it is negative, and whether digits
    beyond 64 bits were lost.
    """
    negative = buf[i] == MINUS
    if negative:
        i += 1
    power, lost, start = 0, False, i
    point = -1
    n, digits = _digits(buf, i)
    i += n
    if n == 8:
        n, more = _digits(buf, i)
        digits = digits * _POWERS[n] + more
        i += n
    if buf[i] == POINT and i > start:
        n, more = _digits(buf, i + 1)
        if i - start + n < 19:
            point, power = i, -n
            digits = digits * _POWERS[n] + more
            i += 1 + n
    while True:
        c = buf[i]
        if c == POINT and point < 0 and i > start:
            point = i
        elif 48 <= c <= 57:
            d = np.uint64(c - 48)
            if i - start < 19 or digits <= (_MAX - d) // _TEN:
                digits = digits * _TEN + d
                power -= point >= 0
            else:
                lost |= c != 48
                power += point < 0
        else:
            break
        i += 1
    if i == start or i == point + 1 or (buf[start] == 48 and start + 1 < i and point != start + 1):
        return (
            -i - 1,
            digits,
            power,
            negative,
            lost,
        )  # no digit, none after the point, or a leading zero
    if c == 101 or c == 69:
        i, exponent = _exponent(buf, i + 1)
        power += exponent
    return i, digits, power, negative, lost


@called
def _exponent(buf: U8, i: int) -> tuple[int, int]:
    """Read the power of ten after an ``e``, capped at 1000."""
    negative = buf[i] == MINUS
    if negative or buf[i] == 43:
        i += 1
    start, exponent = i, 0
    while 48 <= buf[i] <= 57:
        exponent = min(exponent * 10 + np.int64(buf[i]) - 48, 1000)
        i += 1
    if i == start:
        return -i - 1, 0
    return i, -exponent if negative else exponent


@inlined
def scaled(digits: np.uint64, power: int, lost: bool) -> tuple[np.uint64, bool]:
    """``digits * 10**power``, half to even, and whether it is exact and fits in 64 bits."""
    if digits == 0 or power == 0:
        return digits, not lost
    if power > 0:
        if lost:
            return np.uint64(0), False
        if power > 19 or digits > _MAX // _POWERS[power]:
            return np.uint64(0), False
        return digits * _POWERS[power], True
    if power < -19:
        return np.uint64(0), True
    unit = _POWERS[-power]
    whole, rest = digits // unit, digits % unit
    half = unit // np.uint64(2)
    if rest > half or (rest == half and (lost or whole & np.uint64(1))):
        whole += np.uint64(1)
    return whole, True


@inlined
def _skip_scalar(buf: U8, i: int) -> int:
    c = buf[i]
    if c == QUOTE:
        i = string_end(buf, i + 1)
        return i if i < 0 else i + 1
    if c == 116:
        return _skip_word(buf, i, b"true")
    if c == 102:
        return _skip_word(buf, i, b"false")
    if c == 110:
        return _skip_word(buf, i, b"null")
    return decimal(buf, i)[0]


@inlined
def _skip_word(buf: U8, i: int, word: bytes) -> int:
    for k in range(len(word)):
        if buf[i + k] != word[k]:
            return -(i + k) - 1
    return i + len(word)


@inlined
def _skip_key(buf: U8, i: int) -> int:
    if buf[i] != QUOTE:
        return -i - 1
    i = string_end(buf, i + 1)
    if i < 0:
        return i
    i = skip_space(buf, i + 1)
    return skip_space(buf, i + 1) if buf[i] == COLON else -i - 1


@called
def skip_value(buf: U8, i: int, stack: U8) -> int:
    """The position after any value; `stack` has room for `MAX_DEPTH` open brackets."""
    depth = 0
    while True:
        c = buf[i]
        opened = c == OPEN_OBJECT or c == OPEN_LIST
        if opened:
            if depth == MAX_DEPTH:
                return TOO_DEEP
            stack[depth] = c
            depth += 1
            i = skip_space(buf, i + 1)
            if buf[i] != c + 2:  # brackets close with the byte two after
                if c == OPEN_OBJECT:
                    i = _skip_key(buf, i)
                    if i < 0:
                        return i
                continue
        else:
            i = _skip_scalar(buf, i)
            if i < 0:
                return i
        i, depth = _close(buf, i, stack, depth)
        if i < 0 or depth == 0:
            return i


@inlined
def _close(buf: U8, i: int, stack: U8, depth: int) -> tuple[int, int]:
    """The position of the next value after closing brackets, and the depth there."""
    while depth > 0:
        i = skip_space(buf, i)
        if buf[i] == stack[depth - 1] + 2:
            depth -= 1
            i += 1
        elif buf[i] == COMMA:
            i = skip_space(buf, i + 1)
            return (_skip_key(buf, i) if stack[depth - 1] == OPEN_OBJECT else i), depth
        else:
            return -i - 1, depth
    return i, depth


@entry
def value_end(buf: U8, i: int, stack: U8) -> int:
    """`skip_value`, for Python."""
    return skip_value(buf, i, stack)


@inlined
def _space_before(buf: U8, i: int, start: int) -> int:
    """The position of the last byte before `i` that is not white space."""
    i -= 1
    while i >= start and (buf[i] == 32 or buf[i] == 10 or buf[i] == 13 or buf[i] == 9):
        i -= 1
    return i


@entry
def last_boundary(buf: U8, start: int, end: int) -> int:
    """The position of the last ``{`` of ``} , {``, 0 if there is none."""
    i = end
    while i > start:
        i -= 1
        if buf[i] == 123:
            k = _space_before(buf, i, start)
            if k > start and buf[k] == 44:
                k = _space_before(buf, k, start)
                if k > start and buf[k] == 125:
                    return i
    return 0
