"""Where the blocks of compressed data begin: a walk over DEFLATE symbols (RFC 1951). Compiled.

Decompression can start again at the start of a block, given the 32 KiB before it. zlib does not
tell where blocks start, and they start at any bit. So this follows the Huffman codes and adds up
how many bytes they stand for, without writing any: a fraction of the cost of decompression.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.readers.kineto.compiled.machine import called, entry, inlined, word_at

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

HEADER, STORED, CODES, ENDED, BROKEN = range(5)
"""What comes next: the header of a block, bytes or codes of one; nothing more; or no DEFLATE."""

MARGIN = 512
"""Bytes ahead that the walk may read: the header of a block has up to 330, a code six."""

_MOST_BITS = 15
_N_LITERALS, _N_DISTANCES, _N_LENGTH_CODES = 288, 32, 19
_END_OF_BLOCK = 256
_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
"""The order in which the lengths of length codes are written."""

_END = 1 << 20
_IS_MATCH = 1 << 21
"""An entry of a table: bits of the code (5), further bits (5), bytes (9), and these flags."""


class Walk(NamedTuple):
    """The state of a walk, and what it found."""

    state: I64  #: next bit, bytes so far, what is next, bytes left, bits of both tables, is last
    literals: I32  #: by the next bits: an entry
    distances: I32
    lengths: U8  #: of the codes of a block
    counts: I64  #: scratch: codes of each length
    found: I64  #: bit and decompressed offset of each block that was wanted

    @classmethod
    def new(cls) -> Walk:
        """A walk before the first block."""
        return cls(
            np.zeros(8, dtype=np.int64),
            np.zeros(1 << _MOST_BITS, dtype=np.int32),
            np.zeros(1 << _MOST_BITS, dtype=np.int32),
            np.zeros(_N_LITERALS + _N_DISTANCES + 160, dtype=np.uint8),
            np.zeros(2 * (_MOST_BITS + 1), dtype=np.int64),
            np.zeros((64, 2), dtype=np.int64),
        )


@inlined
def _bits(buf: U8, bit: int) -> int:
    """The next bits, 57 at least."""
    return np.int64(word_at(buf, bit >> 3) >> np.uint64(bit & 7))


@inlined
def _entry_of(symbol: int, n_bits: int, kind: int) -> int:
    """What a symbol stands for; kind 0: literals and lengths, 1: distances, 2: code lengths."""
    if kind == 2:
        return n_bits | symbol << 10
    if kind == 1:
        return n_bits | (max(symbol // 2 - 1, 0) << 5)
    if symbol < _END_OF_BLOCK:
        return n_bits | 1 << 10
    if symbol == _END_OF_BLOCK:
        return n_bits | _END
    k = symbol - 257
    if k < 8:
        return n_bits | (3 + k) << 10 | _IS_MATCH
    if k >= 28:
        return n_bits | 258 << 10 | _IS_MATCH
    extra = k // 4 - 1
    return n_bits | extra << 5 | (((4 + (k & 3)) << extra) + 3) << 10 | _IS_MATCH


@called
def _fill(table: I32, lengths: U8, first: int, n: int, counts: I64, kind: int) -> int:
    """Fill a table from the lengths of codes; return its number of bits, -1 for no valid codes."""
    for k in range(len(counts)):
        counts[k] = 0
    most = 0
    for symbol in range(n):
        length = np.int64(lengths[first + symbol])
        counts[length] += 1
        most = max(most, length)
    if most == 0:
        table[0] = table[1] = 0
        return 1
    code, left = 0, 1
    for length in range(1, most + 1):
        left = left * 2 - counts[length]
        code = (code + (counts[length - 1] if length > 1 else 0)) * 2
        counts[_MOST_BITS + length] = code
    if left < 0:
        return -1
    for k in range(1 << most):
        table[k] = 0
    for symbol in range(n):
        length = np.int64(lengths[first + symbol])
        if length == 0:
            continue
        code = counts[_MOST_BITS + length]
        counts[_MOST_BITS + length] += 1
        backward = 0
        for _ in range(length):
            backward = backward * 2 | (code & 1)
            code >>= 1
        entry_ = _entry_of(symbol, length, kind)
        for k in range(backward, 1 << most, 1 << length):
            table[k] = entry_
    return most


@called
def _fixed_codes(lengths: U8) -> None:
    for symbol in range(_N_LITERALS):
        lengths[symbol] = 8
    for symbol in range(144, 256):
        lengths[symbol] = 9
    for symbol in range(256, 280):
        lengths[symbol] = 7
    for symbol in range(_N_DISTANCES):
        lengths[_N_LITERALS + symbol] = 5


@called
def _dynamic_codes(buf: U8, bit: int, walk: Walk) -> int:
    """Read the lengths of all codes of a block; return the bit after them, -1 if not valid."""
    lengths = walk.lengths
    bits = _bits(buf, bit)
    n_literals, n_distances, n_codes = (
        (bits & 31) + 257,
        ((bits >> 5) & 31) + 1,
        ((bits >> 10) & 15) + 4,
    )
    bit += 14
    for k in range(_N_LENGTH_CODES):
        lengths[k] = 0
    for k in range(n_codes):
        lengths[_ORDER[k]] = np.uint8(_bits(buf, bit) & 7)
        bit += 3
    n_bits = _fill(walk.literals, lengths, 0, _N_LENGTH_CODES, walk.counts, 2)
    if n_bits < 0:
        return -1
    k, last = 0, 0
    while k < n_literals + n_distances:
        bits = _bits(buf, bit)
        found = np.int64(walk.literals[bits & ((1 << n_bits) - 1)])
        n = found & 31
        if n == 0:
            return -1
        symbol = found >> 10
        bits >>= n
        bit += n
        repeats = 1
        if symbol < 16:
            last = symbol
        elif symbol == 16:
            repeats = 3 + (bits & 3)
            bit += 2
        elif symbol == 17:
            last, repeats = 0, 3 + (bits & 7)
            bit += 3
        else:
            last, repeats = 0, 11 + (bits & 127)
            bit += 7
        for _ in range(repeats):
            lengths[k] = np.uint8(last)
            k += 1
    # Distances move to where `_fill` reads them; from the end, as they move up.
    for d in range(n_distances - 1, -1, -1):
        lengths[_N_LITERALS + d] = lengths[n_literals + d]
    for d in range(n_distances, _N_DISTANCES):
        lengths[_N_LITERALS + d] = 0
    for literal in range(n_literals, _N_LITERALS):
        lengths[literal] = 0
    return bit


@called
def _begin_block(buf: U8, bit: int, walk: Walk) -> int:
    """Read the header of a block into the state; return the bit after it."""
    state = walk.state
    bits = _bits(buf, bit)
    kind = (bits >> 1) & 3
    state[6] = bits & 1
    state[2] = BROKEN
    bit += 3
    if kind == 0:
        bit = (bit + 7) & ~7
        bits = _bits(buf, bit)
        state[3] = bits & 0xFFFF
        if (state[3] ^ 0xFFFF) == (bits >> 16) & 0xFFFF:
            state[2] = STORED
        return bit + 32
    if kind == 3:
        return bit
    if kind == 1:
        _fixed_codes(walk.lengths)
    else:
        bit = _dynamic_codes(buf, bit, walk)
    if bit > 0:
        state[4] = _fill(walk.literals, walk.lengths, 0, _N_LITERALS, walk.counts, 0)
        state[5] = _fill(walk.distances, walk.lengths, _N_LITERALS, _N_DISTANCES, walk.counts, 1)
        if state[4] > 0 and state[5] > 0:
            state[2] = CODES
    return bit


@entry
def follow_blocks(
    buf: U8, end: int, is_last: bool, walk: Walk, since: int, spacing: int
) -> tuple[int, int]:
    """Follow the codes as far as the bytes reach; the walk keeps where it is.

    `buf`: compressed bytes; bit 0 of the walk is the first, and `MARGIN` zeros follow the last.
    `is_last`: whether nothing follows. `since`, `spacing`: a block is wanted if it begins so many
    decompressed bytes after `since`, or the one before. Number of blocks found, and `since` for the
    next call.
    """
    state, found = walk.state, walk.found
    bit, out, what, left = state[0], state[1], state[2], state[3]
    literal_mask, distance_mask = (1 << max(state[4], 0)) - 1, (1 << max(state[5], 0)) - 1
    is_final = state[6]
    stop = 8 * end if is_last else 8 * (end - MARGIN)
    n = 0
    while bit < stop and what < ENDED:
        if what == HEADER:
            if out - since >= spacing:
                if n == len(found):
                    break
                found[n, 0], found[n, 1] = bit, out
                n += 1
                since = out
            bit = _begin_block(buf, bit, walk)
            what, left, is_final = state[2], state[3], state[6]
            literal_mask, distance_mask = (1 << max(state[4], 0)) - 1, (1 << max(state[5], 0)) - 1
        elif what == STORED:
            taken = max(min(left, end - (bit >> 3)), 0)
            bit += 8 * taken
            out += taken
            left -= taken
            if left > 0:
                break
            what = ENDED if is_final else HEADER
        else:
            while bit < stop:
                bits = _bits(buf, bit)
                one = np.int64(walk.literals[bits & literal_mask])
                taken = one & 31
                if taken == 0:
                    what = BROKEN
                    break
                if one & _IS_MATCH:
                    more = (one >> 5) & 31
                    out += (bits >> taken) & ((1 << more) - 1)
                    taken += more
                    far = np.int64(walk.distances[(bits >> taken) & distance_mask])
                    if far == 0:
                        what = BROKEN
                        break
                    taken += (far & 31) + ((far >> 5) & 31)
                bit += taken
                if one & _END:
                    what = ENDED if is_final else HEADER
                    break
                out += (one >> 10) & 511
    state[0], state[1], state[2], state[3], state[6] = bit, out, what, left, is_final
    return n, since
