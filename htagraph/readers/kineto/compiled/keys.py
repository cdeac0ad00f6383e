"""A hash table of the keys in `event_fields`. Compiled."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.readers.kineto.compiled.lexer import PADDING
from htagraph.readers.kineto.compiled.machine import inlined, word_at
from htagraph.readers.kineto.event_fields import ARG_KEYS, COLUMNS, EVENT_KEYS, Field

U8 = npt.NDArray[np.uint8]

_SLOTS = 512
"""A power of two, several times the number of keys."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(64 - _SLOTS.bit_length() + 1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Keys(NamedTuple):
    """Known keys of events (level 0) and of their args (level 1)."""

    slots: npt.NDArray[np.int32]  #: key + 1 by hash, 0 for free
    first: npt.NDArray[np.uint64]  #: first eight bytes
    length: npt.NDArray[np.int64]
    level: npt.NDArray[np.int64]
    text: U8  #: 64 bytes per key
    field: npt.NDArray[np.int64]  #: the `Field` it fills
    read: npt.NDArray[np.int64]  #: `Read` of its value
    read_of_field: npt.NDArray[np.int64]


@inlined
def _first_word(buf: U8, a: int, n: int) -> np.uint64:
    if n == 0:
        return np.uint64(0)
    return word_at(buf, a) & (_ALL >> np.uint64(64 - 8 * min(n, 8)))


@inlined
def _slot(word: np.uint64, n: int, level: int) -> int:
    return np.int64(((word ^ np.uint64(n * 2 + level)) * _MULTIPLIER) >> _SHIFT)


@inlined
def find_key(keys: Keys, buf: U8, a: int, b: int, level: int) -> int:
    """The code of the key ``buf[a:b]``, -1 for an unknown one."""
    n = b - a
    word = _first_word(buf, a, n)
    slot = _slot(word, n, level)
    while keys.slots[slot] != 0:
        key = keys.slots[slot] - 1
        if keys.first[key] == word and keys.length[key] == n and keys.level[key] == level:
            k = 8
            while k < n and buf[a + k] == keys.text[64 * key + k]:
                k += 1
            if k >= n:
                return key
        slot = (slot + 1) & (_SLOTS - 1)
    return -1


@cache
def key_table() -> Keys:
    """The table of all known keys."""
    known = [(0, key, *target) for key, target in EVENT_KEYS.items()]
    known += [(1, key, *target) for key, target in ARG_KEYS.items()]
    n = len(known)
    keys = Keys(
        np.zeros(_SLOTS, dtype=np.int32),
        np.zeros(n, dtype=np.uint64),
        np.array([len(key) for _, key, *_ in known], dtype=np.int64),
        np.array([level for level, *_ in known], dtype=np.int64),
        np.zeros(64 * n + PADDING, dtype=np.uint8),
        np.array([field for *_, field, _ in known], dtype=np.int64),
        np.array([read for *_, read in known], dtype=np.int64),
        np.zeros(Field.FIRST_SPARSE + len(COLUMNS), dtype=np.int64),
    )
    keys.read_of_field[Field.FIRST_SPARSE :] = [column.read for column in COLUMNS]
    for code, (level, key, *_) in enumerate(known):
        keys.text[64 * code : 64 * code + len(key)] = np.frombuffer(key.encode(), dtype=np.uint8)
        keys.first[code] = word = int.from_bytes(key.encode()[:8], "little")
        # As `_slot`.
        slot = ((word ^ (len(key) * 2 + level)) * int(_MULTIPLIER) % (1 << 64)) >> int(_SHIFT)
        while keys.slots[slot]:
            slot = (slot + 1) % _SLOTS
        keys.slots[slot] = code + 1
    return keys
