"""The bytes of a file as pieces to scan, cut where one event seems to end and the next to begin.

A cut is a guess, as the same bytes may occur in a list inside an event. A wrong guess only costs
time: `trace_document` checks where the scanner stops, and gives back what it did not use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from htagraph.model.arrays import U8
from htagraph.readers.byte_stream import ByteStream
from htagraph.readers.kineto.compiled.lexer import PADDING, last_boundary

BLOCK = 1 << 21
"""Usual size of a piece in bytes (chosen)."""

_READ = 1 << 16
"""Decompressed bytes read at once (chosen)."""

_SEARCHED = 1 << 16
"""Bytes at the end of a piece searched for the last event boundary (chosen)."""

_NO_SPACE = re.compile(rb"[^ \t\r\n]")


@dataclass
class Piece:
    """Consecutive bytes of a file, followed by zero bytes."""

    buf: U8
    n_bytes: int
    origin: int  # Offset of the first byte in the file
    is_last: bool  # Whether the file ends with it

    def text(self, start: int = 0, end: int | None = None) -> bytes:
        """Some of the bytes."""
        return self.buf[start : self.n_bytes if end is None else min(end, self.n_bytes)].tobytes()


class PieceStream:
    """A byte stream that is taken piece by piece, and takes back what was not used."""

    def __init__(self, stream: ByteStream) -> None:
        self.path = stream.path
        self.offset = 0  #: of the next piece in the file
        self._stream = stream
        self._held = b""
        self._at = 0  # what is held before is used up
        self._ended = False
        self._buffers: list[U8] = []

    def peek(self, n_bytes: int) -> Piece:
        """The next bytes without taking them; fewer only at the end of the file."""
        self._hold(n_bytes)
        return self._piece(min(n_bytes, len(self._held) - self._at))

    def advance(self, n_bytes: int) -> None:
        """Take bytes after `peek`."""
        n_bytes = min(n_bytes, len(self._held) - self._at)
        self._at += n_bytes
        self.offset += n_bytes

    def skip(self, n_bytes: int) -> None:
        """Pass over bytes that were read before."""
        at = self.offset
        self.advance(max(n_bytes, 0))
        rest = n_bytes - (self.offset - at)
        if rest > 0:
            self._stream.skip(rest)
            self.offset += rest

    def skip_space(self) -> bytes:
        """The next byte that is not white space, without taking it; none at the end."""
        while True:
            self._hold(1)
            found = _NO_SPACE.search(self._held, self._at)
            self.advance((found.start() if found else len(self._held)) - self._at)
            if found or self._ended:
                return self._held[self._at : self._at + 1]

    def take(self, n_bytes: int = 0) -> Piece:
        """Take a block or more, up to its last event boundary; at the end, nothing."""
        wanted, held = max(BLOCK, n_bytes), memoryview(self._held)[self._at :]
        buf, n = self._buffer(max(wanted, len(held)) + _READ), len(held)
        buf[:n] = held
        while n < wanted and not self._ended:
            block = self._stream.read(max(wanted - n, _READ))
            self._ended = not block
            buf[n : n + len(block)] = memoryview(block)
            n += len(block)
        cut = 0 if self._ended else last_boundary(buf, max(n - _SEARCHED, 0), n)
        end = cut if cut > 0 else n
        self._held, self._at = buf[end:n].tobytes(), 0
        buf[end : end + PADDING] = 0
        piece = Piece(buf, end, self.offset, self._ended)
        self.offset += end
        return piece

    def give_back(self, rest: bytes) -> None:
        """Put bytes that were taken back in front."""
        self._held, self._at = rest + self._held[self._at :], 0
        self.offset -= len(rest)

    def is_damaged_ahead(self) -> bool:
        """See `ByteStream.is_damaged_ahead`."""
        return self._stream.is_damaged_ahead()

    def end_at_damage(self, offset: int) -> None:
        """End the file where damaged bytes begin."""
        self._stream.end_at_damage(offset)
        self._held, self._at, self._ended = b"", 0, True

    def release(self, piece: Piece) -> None:
        """Reuse the buffer of a piece."""
        self._buffers.append(piece.buf)

    def _hold(self, n_bytes: int) -> None:
        n = len(self._held) - self._at
        if n >= n_bytes or self._ended:
            return
        parts = [self._held[self._at :]]
        while n < n_bytes and not self._ended:
            parts.append(self._stream.read(max(n_bytes - n, _READ)))
            self._ended = not parts[-1]
            n += len(parts[-1])
        self._held, self._at = b"".join(parts), 0

    def _piece(self, n_bytes: int) -> Piece:
        """A copy of the next bytes, in a buffer with zeros after them."""
        buf = self._buffer(n_bytes)
        buf[:n_bytes] = np.frombuffer(self._held, dtype=np.uint8, count=n_bytes, offset=self._at)
        buf[n_bytes : n_bytes + PADDING] = 0
        return Piece(
            buf, n_bytes, self.offset, self._ended and self._at + n_bytes == len(self._held)
        )

    def _buffer(self, n_bytes: int) -> U8:
        """Room for some bytes and zeros after them; a released buffer, if one is large enough."""
        for place, buf in enumerate(self._buffers):
            if len(buf) >= n_bytes + PADDING:
                return self._buffers.pop(place)
        return np.empty(n_bytes + PADDING, dtype=np.uint8)
