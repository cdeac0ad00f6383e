"""What the repairer reads and writes: texts, numbers and words as valid JSON. Compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.readers.defects import Defect
from htagraph.readers.kineto.compiled.event_values import integer_text
from htagraph.readers.kineto.compiled.keys import Keys
from htagraph.readers.kineto.compiled.lexer import decimal, utf8_end
from htagraph.readers.kineto.compiled.machine import called, inlined

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

REPAIRED, TORN, CUT, NO_ROOM = range(4)
"""How a repair ends: done; at invalid bytes; at the end of the bytes; for lack of room to write."""

_HEX = b"0123456789abcdef"


class Bench(NamedTuple):
    """The bytes that the repairer reads, and those it writes."""

    buf: U8  #: followed by zeros
    end: int
    is_event: bool  #: whether the outermost object is an event, whose keys are known
    keys: Keys
    out: U8
    n: I64  #: [0] number of bytes written; [1] defects found, one bit each
    stack: U8


@inlined
def put(bench: Bench, byte: int) -> None:
    """Write a byte; `repair` ensures room before each token."""
    bench.out[bench.n[0]] = byte
    bench.n[0] += 1


@called
def put_escaped(bench: Bench, c: int) -> None:
    """Write a control byte, quote or backslash of a text as an escape."""
    put(bench, 92)
    if c == 34 or c == 92:
        put(bench, c)
        return
    for byte in b"u00":
        put(bench, byte)
    put(bench, _HEX[c >> 4])
    put(bench, _HEX[c & 15])


@called
def copy_text(bench: Bench, i: int, end: int, defects: int) -> None:
    """Write a text; if any backslash is invalid, only those before quotes are escapes."""
    buf = bench.buf
    literal = defects & (1 << Defect.BAD_ESCAPE.value)
    while i < end:
        c = buf[i]
        after = utf8_end(buf, i) if c >= 128 else i + 1
        if c == 34 or c < 32 or (c == 92 and literal and buf[i + 1] != 34):
            put_escaped(bench, c)
        elif after < 0:
            after = i + 1
            for byte in b"\xef\xbf\xbd":  # U+FFFD
                put(bench, byte)
        else:
            after += c == 92  # an escape, with the byte after it
            for k in range(i, after):
                put(bench, buf[k])
        i = after


@inlined
def _matches(buf: U8, a: int, b: int, word: bytes) -> bool:
    """Whether bytes are a word, ignoring case."""
    if b - a != len(word):
        return False
    for k in range(len(word)):
        if buf[a + k] | 32 != word[k]:
            return False
    return True


@called
def _put_digits(bench: Bench, value: np.uint64) -> None:
    unit = np.uint64(1)
    while value // unit >= np.uint64(10):
        unit *= np.uint64(10)
    while unit > 0:
        put(bench, 48 + np.int64(value // unit % np.uint64(10)))
        unit //= np.uint64(10)


@called
def repair_word(bench: Bench, a: int) -> tuple[int, int]:
    """Copy or repair a number or literal; return the position after it, and how it ended."""
    buf, b = bench.buf, a
    while (
        buf[b] > 32
        and buf[b] != 44
        and buf[b] != 125
        and buf[b] != 93
        and buf[b] != 34
        and buf[b] != 58
        and b - a < 512
    ):
        b += 1
    if b == a or b - a >= 512:
        return a, CUT if a >= bench.end else TORN
    if b >= bench.end:
        return a, CUT
    value, is_integer = integer_text(buf, a, b)
    signless = a + 1 if buf[a] == 45 or buf[a] == 43 else a
    if is_integer and b - a > 2 and buf[a + 1] | 32 == ord("x"):
        bench.n[1] |= 1 << Defect.HEX_NUMBER.value
        _put_digits(bench, np.uint64(value))
    elif (
        _matches(buf, signless, b, b"nan")
        or _matches(buf, signless, b, b"inf")
        or _matches(buf, signless, b, b"infinity")
    ):
        bench.n[1] |= 1 << Defect.NOT_FINITE.value
        for byte in b"null":
            put(bench, byte)
    elif (
        decimal(buf, a)[0] == b
        or _matches(buf, a, b, b"true")
        or _matches(buf, a, b, b"false")
        or _matches(buf, a, b, b"null")
    ):
        for k in range(a, b):
            put(bench, buf[k])
    else:
        bench.n[1] |= 1 << Defect.BARE_WORD.value
        put(bench, 34)
        copy_text(bench, a, b, 1 << Defect.BAD_ESCAPE.value)
        put(bench, 34)
    return b, REPAIRED
