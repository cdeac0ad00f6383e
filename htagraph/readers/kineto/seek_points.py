"""Places in a compressed file from which it can be read, without all that precedes them.

::

    compressed      |header| block | block | block   | block |
    point                          ^ bit 5, and the 32 KiB of text before it

Libraries begin with a whole byte: empty blocks that end at the bit are put in front.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import I64
from htagraph.readers.byte_stream import GZIP_MAGIC, ByteStream
from htagraph.readers.kineto.compiled.deflate import (
    BROKEN,
    ENDED,
    MARGIN,
    Walk,
    follow_blocks,
)
from htagraph.readers.repair_log import RepairLog
from htagraph.readers.storage import open_file

SPACING = 1 << 25
"""Decompressed bytes between two points (chosen): 20 ms of decompression, and 32 KiB of index."""

_WINDOW = 1 << 15
"""Bytes that compressed data may refer back to."""

_TRAILER = 8
"""Bytes after the data of a gzip member: checksum and length."""

_READ = 1 << 18
"""Compressed bytes read at once (chosen)."""

_EVEN, _EVEN_BITS = 0b010, 10
"""An empty block of fixed codes, first bit lowest: not the last, of this kind, end of block."""

_ODD, _ODD_BITS = 0x46AFF90000000000081C004, 91
"""An empty block with codes of its own: one bit each for two literals, one of them its end."""

_FNAME, _FCOMMENT, _FHCRC, _FEXTRA = 8, 16, 2, 4
"""Flags of a gzip header."""


@dataclass(frozen=True)
class SeekPoints:
    """Points of a gzip file; none of a plain file, which needs none."""

    is_gzip: bool
    # bit, offset: where a block begins: bit of the file, and offset in the text
    bit: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    offset: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    windows: tuple[bytes, ...] = ()  # The text before each, compressed

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What is stored."""
        sizes = np.array([len(window) for window in self.windows], dtype=np.int64)
        return {
            "points.is_gzip": np.array([self.is_gzip]),
            "points.bit": self.bit,
            "points.offset": self.offset,
            "points.ends": np.cumsum(sizes),
            "points.windows": np.frombuffer(b"".join(self.windows), dtype=np.uint8),
        }

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> SeekPoints:
        """From what `arrays` returned."""
        ends = arrays["points.ends"].tolist()
        text = arrays["points.windows"].tobytes()
        starts = [0, *ends][: len(ends)]
        return cls(
            bool(arrays["points.is_gzip"][0]),
            arrays["points.bit"],
            arrays["points.offset"],
            tuple(text[start:end] for start, end in zip(starts, ends, strict=True)),
        )


FROM_START = SeekPoints(is_gzip=True)
"""No points: a file is read from its start, whatever it is."""


class _Blocks:
    """Follows the compressed bytes of a file, and finds where blocks begin.

    Of several gzip members, only blocks of the first are found: the profiler writes one.
    """

    def __init__(self) -> None:
        self.wanted: deque[tuple[int, int]] = deque()  #: bit of the file, and offset in the text
        self._walk: Walk | None = None
        self._held = b""
        self._at = 0  # of the file: where the held bytes begin
        self._since = 0
        self._is_over = False

    def feed(self, packed: bytes) -> None:
        """Follow some more bytes of the file."""
        if self._is_over:
            return
        self._held += packed
        if self._walk is None:
            n = _header_size(self._held)
            if n < 0:
                self._is_over = len(self._held) > 1 << 16
                return
            self._walk = Walk.new()
            self._held, self._at = self._held[n:], n
        buf = np.zeros(len(self._held) + MARGIN, dtype=np.uint8)
        buf[: len(self._held)] = np.frombuffer(self._held, dtype=np.uint8)
        n, self._since = follow_blocks(
            buf, len(self._held), not packed, self._walk, self._since, SPACING
        )
        for bit, offset in self._walk.found[:n].tolist():
            self.wanted.append((8 * self._at + bit, offset))
        state = self._walk.state
        self._is_over = state[2] in (ENDED, BROKEN)
        used = int(state[0]) >> 3
        self._held, self._at = self._held[used:], self._at + used
        state[0] -= 8 * used


def _header_size(head: bytes) -> int:
    """Bytes of a gzip header, -1 if more of it must be read."""
    if len(head) < 10:
        return -1
    flags, n = head[3], 10
    if flags & _FEXTRA:
        n += 2 + int.from_bytes(head[n : n + 2], "little")
    for flag in (_FNAME, _FCOMMENT):
        if flags & flag:
            n = head.find(b"\0", n) + 1
            if not n:
                return -1
    n += 2 if flags & _FHCRC else 0
    return n if n < len(head) else -1


class PointedStream(ByteStream):
    """The decompressed bytes of a file, which notes `SeekPoints` on the way."""

    def __init__(self, source: Path, log: RepairLog | None = None) -> None:
        self._blocks = _Blocks()
        self._fed = 0
        self._recent: deque[bytes] = deque()
        self._found: list[tuple[int, int, bytes]] = []
        super().__init__(source, log, reports=True)

    def _block(self, n_bytes: int) -> bytes:
        at = self._file.tell()
        packed = super()._block(n_bytes)
        if at == self._fed and (at > 0 or packed.startswith(GZIP_MAGIC)):
            self._blocks.feed(packed)  # not what is read again near damage
            self._fed = at + len(packed)
        return packed

    def read(self, n_bytes: int) -> bytes:
        """Up to `n_bytes`, none at the end."""
        block = super().read(n_bytes)
        if not self.is_gzip:
            return block
        self._recent.append(block)
        wanted = self._blocks.wanted
        while wanted and wanted[0][1] <= self.n_read:
            bit, offset = wanted.popleft()
            text = b"".join(self._recent)
            end = len(text) - (self.n_read - offset)
            window = text[max(end - _WINDOW, 0) : end]
            self._found.append((bit, offset, zlib.compress(window, 1)))
        held = sum(map(len, self._recent))
        while held - len(self._recent[0]) >= _WINDOW:
            held -= len(self._recent.popleft())
        return block

    @property
    def points(self) -> SeekPoints:
        """The points found so far."""
        bits, offsets, windows = zip(*self._found, strict=True) if self._found else ((), (), ())
        return SeekPoints(
            self.is_gzip,
            np.array(bits, dtype=np.int64),
            np.array(offsets, dtype=np.int64),
            tuple(windows),
        )


class TextReader:
    """Reads parts of the text of a file, each from the last point before it.

    `n_inflated`: bytes that were decompressed so far.
    """

    def __init__(self, path: Path | bytes, points: SeekPoints) -> None:
        self._path = path
        self._points = points
        self._stream: ByteStream | None = None
        self._at = 0  # of the text: what the stream returns next
        self._held = b""
        self.n_inflated = 0

    def read(self, start: int, end: int) -> bytes:
        """The text between two offsets; less only at its end."""
        if not self._points.is_gzip:
            assert isinstance(self._path, Path)
            with open_file(self._path) as file:
                file.seek(start)
                return file.read(end - start)
        place = int(np.searchsorted(self._points.offset, start, side="right")) - 1
        point = int(self._points.offset[place]) if place >= 0 else 0
        held_from = self._at - len(self._held)
        if held_from <= start and end <= self._at:
            return self._held[start - held_from : end - held_from]
        if self._stream is None or not held_from <= start or point > self._at:
            self.close()
            path, points = self._path, self._points
            self._stream = ByteStream(path) if place < 0 else _FromPoint(path, points, place)
            self._at, self._held = point, b""
        parts = [self._held[max(start - (self._at - len(self._held)), 0) :]]
        while self._at < end:
            block = self._stream.read(_READ)
            if not block:
                break
            self.n_inflated += len(block)
            self._at += len(block)
            if self._at > start:
                parts.append(block[max(start - (self._at - len(block)), 0) :])
        text = b"".join(parts)
        n = max(end - start, 0)
        self._held = text[n:]
        return text[:n]

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class _FromPoint(ByteStream):
    """The text of a gzip file from a point on."""

    def __init__(self, path: Path | bytes, points: SeekPoints, place: int) -> None:
        from isal import isal_zlib  # noqa: PLC0415 - only needed once a file is read

        super().__init__(path)
        at, n_bits = divmod(int(points.bit[place]), 8)
        self._file.seek(at)
        packed = self._block(_READ)
        self._input = _empty_blocks(n_bits, packed[0]) + packed[1:] if n_bits else packed
        self._decoder = isal_zlib.decompressobj(-15, zdict=zlib.decompress(points.windows[place]))
        self._has_trailer = True
        self.n_read = int(points.offset[place])

    def _next_member(self, rest: bytes, n_read: int) -> None:
        """Continue with the next gzip member, after the trailer that a decoder of blocks leaves."""
        if self._has_trailer:
            rest += self._block(_TRAILER)
            rest, self._has_trailer = rest[_TRAILER:], False
        super()._next_member(rest, n_read)


def _empty_blocks(n_bits: int, byte: int) -> bytes:
    """Blocks of no text that end after some bits of a byte, with its other bits.

    A decoder begins with a byte, and bytes in the data have to stay where they are.
    """
    blocks, n = (_ODD, _ODD_BITS) if n_bits % 2 else (0, 0)
    while n % 8 != n_bits:
        blocks |= _EVEN << n
        n += _EVEN_BITS
    kept = byte >> n_bits << n_bits
    return (blocks | kept << n // 8 * 8).to_bytes(n // 8 + 1, "little")
