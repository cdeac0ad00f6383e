"""Tokens and boundaries outside the event list: the doors of `lexer` for Python. Compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.readers.kineto.compiled.lexer import skip_value
from htagraph.readers.kineto.compiled.machine import entry, inlined

__all__ = ["last_boundary", "value_end"]

U8 = npt.NDArray[np.uint8]


@entry
def value_end(buf: U8, i: int, stack: U8) -> int:
    """The position after a value, negative as `lexer` says."""
    return skip_value(buf, i, stack)


@inlined
def _space_before(buf: U8, i: int, start: int) -> int:
    """The position of the last byte before a position that is no white space."""
    i -= 1
    while i >= start and (buf[i] == 32 or buf[i] == 10 or buf[i] == 13 or buf[i] == 9):
        i -= 1
    return i


@entry
def last_boundary(buf: U8, start: int, end: int) -> int:
    """The position of the last ``{`` of ``} , {`` in some bytes, 0 where there is none."""
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
