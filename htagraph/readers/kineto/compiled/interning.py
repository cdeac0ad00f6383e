"""Interned byte strings as arrays that compiled code fills. Compiled.

A hash table with open addressing. Compiled code stops when it may be full, and Python doubles it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.readers.kineto.compiled.lexer import PADDING
from htagraph.readers.kineto.compiled.machine import called, entry, inlined, word_at

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


class Interned(NamedTuple):
    """Distinct byte strings; the code of each is its position. The empty string is allowed."""

    slots: I32  #: code + 1 by hash, 0 for free; a power of two long
    hashes: U64  #: by code
    starts: I64  #: by code: string ``c`` is ``arena[starts[c]:starts[c + 1]]``
    arena: U8  #: all strings, one after the other
    n: I64  #: [0]: number of strings


_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""2**64 divided by the golden ratio: multiplying spreads similar keys."""

_SHIFT = np.uint64(32)
_FULL_WORD = np.uint64(0xFFFFFFFFFFFFFFFF)


def new_interned(n_strings: int, n_bytes: int, old: Interned | None = None) -> Interned:
    """An empty table with room for strings and bytes in total, or a copy of `old`."""
    slots = np.zeros(1 << (2 * n_strings).bit_length(), dtype=np.int32)
    table = Interned(
        slots,
        np.zeros(n_strings, dtype=np.uint64),
        np.zeros(n_strings + 1, dtype=np.int64),
        np.zeros(n_bytes + PADDING, dtype=np.uint8),
        np.zeros(1, dtype=np.int64),
    )
    if old is not None:
        n = int(old.n[0])
        table.hashes[:n] = old.hashes[:n]
        table.starts[: n + 1] = old.starts[: n + 1]
        table.arena[: old.starts[n]] = old.arena[: old.starts[n]]
        table.n[0] = n
        _place(table.slots, table.hashes, n)
    return table


def enter(table: Interned, text: bytes) -> int:
    """The code of a text, added if new; there must be room."""
    return _enter(table, np.frombuffer(text + bytes(PADDING), dtype=np.uint8), len(text))


def texts(table: Interned) -> list[bytes]:
    """All strings, by code."""
    n = int(table.n[0])
    arena, starts = table.arena.tobytes(), table.starts[: n + 1].tolist()
    return [arena[a:b] for a, b in pairwise(starts)]


@inlined
def _mixed(h: np.uint64) -> np.uint64:
    h = h * _MULTIPLIER
    return h ^ (h >> _SHIFT)


@inlined
def _tail_mask(n: int) -> np.uint64:
    return _FULL_WORD >> np.uint64(64 - 8 * n)


@inlined
def _hash(buf: U8, a: int, b: int) -> np.uint64:
    h = np.uint64(b - a)
    while b - a > 8:
        h = _mixed(h ^ word_at(buf, a))
        a += 8
    if b > a:
        h = _mixed(h ^ (word_at(buf, a) & _tail_mask(b - a)))
    return h


@inlined
def _same(buf: U8, a: int, b: int, arena: U8, start: int) -> bool:
    while b - a > 8:
        if word_at(buf, a) != word_at(arena, start):
            return False
        a += 8
        start += 8
    return a == b or ((word_at(buf, a) ^ word_at(arena, start)) & _tail_mask(b - a)) == 0


@entry
def _place(slots: I32, hashes: U64, n: int) -> None:
    mask = np.uint64(len(slots) - 1)
    for code in range(n):
        slot = hashes[code] & mask
        while slots[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = code + 1


@called
def intern(table: Interned, buf: U8, a: int, b: int) -> int:
    """The code of ``buf[a:b]``, added if new; there must be room."""
    h = _hash(buf, a, b)
    mask = np.uint64(len(table.slots) - 1)
    slot = h & mask
    while True:
        code = np.int64(table.slots[slot]) - 1
        if code < 0:
            break
        if table.hashes[code] == h:
            start = table.starts[code]
            if table.starts[code + 1] - start == b - a and _same(buf, a, b, table.arena, start):
                return code
        slot = (slot + np.uint64(1)) & mask
    code = table.n[0]
    start = table.starts[code]
    for k in range(b - a):
        table.arena[start + k] = buf[a + k]
    table.starts[code + 1] = start + b - a
    table.hashes[code] = h
    table.slots[slot] = code + 1
    table.n[0] = code + 1
    return code


@entry
def _enter(table: Interned, buf: U8, n_bytes: int) -> int:
    return intern(table, buf, 0, n_bytes)
