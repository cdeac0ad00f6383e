"""The bytes of a file as pieces to scan: cut where one event seems to end and the next to begin.

A cut is a guess (the same bytes may stand in a list inside an event), and it may be wrong at no cost but time: `document`
checks that the scanner stops between two events at the end of each piece, and gives back what it did not use.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from htagraph.readers.kineto.chunks import ByteStream
from htagraph.readers.kineto.compiled.tokens import last_boundary
from htagraph.readers.kineto.compiled.lexer import PADDING

__all__ = ["Piece", "PieceStream"]

U8 = npt.NDArray[np.uint8]

BLOCK = 1 << 20
"""Bytes of a piece, as a rule."""

_SEARCHED = 1 << 16


@dataclass
class Piece:
    """Some consecutive bytes of a file, zero bytes after them.

    Parameters
    ----------
    buf : ndarray, dtype=uint8
    n_bytes : int
    origin : int
        Offset of the first byte in the file.
    """

    buf: U8
    n_bytes: int
    origin: int

    def tail(self, start: int) -> bytes:
        """Return the bytes from a position on."""
        return self.buf[start : self.n_bytes].tobytes()


class PieceStream:
    """A byte stream that is taken piece by piece, and takes back what was not used."""

    def __init__(self, stream: ByteStream, block: int = BLOCK) -> None:
        self._stream = stream
        self._block = block
        self._carry = b""
        self._ended = False
        self._buffers: list[U8] = []
        self.offset = 0  #: of the next piece

    def take(self, n_bytes: int = 0, *, whole: bool = False) -> Piece:
        """Return the next piece: about a block, at least `n_bytes` unless the file ends before; empty at the end.

        Parameters
        ----------
        n_bytes : int
        whole : bool
            Do not cut after the last event that seems to end.
        """
        target = max(self._block, n_bytes)
        parts, n = [self._carry], len(self._carry)
        while n < target and not self._ended:
            part = self._stream.read(target - n)
            self._ended = not part
            parts.append(part)
            n += len(part)
        buf = self._buffer(n)
        at = 0
        for part in parts:
            buf[at : at + len(part)] = np.frombuffer(part, dtype=np.uint8)
            at += len(part)
        cut = n if whole or self._ended else last_boundary(buf, max(n - _SEARCHED, 0), n)
        cut = n if cut <= 0 else cut
        self._carry = buf[cut:n].tobytes()
        buf[cut : cut + PADDING] = 0
        piece = Piece(buf, cut, self.offset)
        self.offset += cut
        return piece

    def give_back(self, rest: bytes) -> None:
        """Put bytes before those to come."""
        self._carry = rest + self._carry
        self.offset -= len(rest)

    def release(self, piece: Piece) -> None:
        """Let the buffer of a piece be used again."""
        self._buffers.append(piece.buf)

    def _buffer(self, n_bytes: int) -> U8:
        while self._buffers:
            buf = self._buffers.pop()
            if len(buf) >= n_bytes + PADDING:
                return buf
        return np.empty(max(n_bytes, self._block) + PADDING, dtype=np.uint8)
