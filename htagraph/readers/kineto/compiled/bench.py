"""The bench for mending broken values: bytes in, bytes out, the writing of texts. Compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.readers.kineto.compiled.keys import Keys
from htagraph.readers.kineto.compiled.lexer import utf8_end
from htagraph.readers.kineto.compiled.machine import called, inlined
from htagraph.readers.kineto.repairs import Defect

__all__ = ["CUT", "MENDED", "NO_ROOM", "TORN", "Bench", "copy_text", "put"]

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

MENDED, TORN, CUT, NO_ROOM = range(4)
"""Ends of mending: done; at nonsense; at the end of the bytes; for lack of room to write."""

_HEX = b"0123456789abcdef"
_ESCAPE = int(Defect.BAD_ESCAPE)


class Bench(NamedTuple):
    """The bytes that the mender reads, and those it writes."""

    buf: U8  #: the bytes, zeros after them
    end: int
    is_event: bool  #: whether the outermost object is an event, whose keys are known
    keys: Keys
    out: U8  #: what is written
    n: I64  #: [0] number of bytes written; [1] defects met, one bit each
    stack: U8


@inlined
def put(bench: Bench, byte: int) -> None:
    """Write a byte; there is room (`mend` sees to it before each token)."""
    bench.out[bench.n[0]] = byte
    bench.n[0] += 1


@called
def put_escaped(bench: Bench, c: int) -> None:
    """Write a control byte, quote or backslash of a text with a backslash before it."""
    put(bench, 92)
    short = (
        34
        if c == 34
        else 92
        if c == 92
        else 110
        if c == 10
        else 116
        if c == 9
        else 114
        if c == 13
        else 0
    )
    if short:
        put(bench, short)
        return
    put(bench, 117)
    put(bench, 48)
    put(bench, 48)
    put(bench, _HEX[c >> 4])
    put(bench, _HEX[c & 15])


@called
def copy_text(bench: Bench, i: int, end: int, defects: int) -> None:
    """Write a text; if a backslash is no escape, only those before a quote are."""
    buf = bench.buf
    literal = defects & (1 << _ESCAPE)
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
