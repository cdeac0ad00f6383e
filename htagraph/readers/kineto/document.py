"""The document: goes through a file from the first byte to the last, header and events in whatever order.

Events are scanned by several workers at once. Each piece is scanned on the guess that it begins between two events; the
guess holds if the piece before it was found to end there. Where it does not, what was scanned ahead is thrown away, and
the bytes are scanned again from where the last good event ended.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from htagraph.errors import TraceFormatError
from htagraph.readers.kineto.header import decoded
from htagraph.readers.kineto.compiled.lexer import MAX_DEPTH, skip_space, skip_value, string_end
from htagraph.readers.kineto.pieces import Part, Worker
from htagraph.readers.kineto.repairs import Defect, RepairLog
from htagraph.readers.kineto.compiled.scanner import BETWEEN, CLOSED
from htagraph.readers.kineto.compiled.tokens import space_end, text_end, value_end
from htagraph.readers.kineto.stream import Piece, PieceStream

__all__ = ["MAX_VALUE", "Document"]

MAX_VALUE = 1 << 26
"""Bytes of the largest event, or value of the header, that is read."""

_QUOTE, _COMMA, _COLON, _OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST = b'",:{}['


class Document:
    """What stands in a file: parts of the event list, and the keys beside it."""

    def __init__(self, stream: PieceStream, workers: list[Worker], log: RepairLog) -> None:
        self.parts: list[Part] = []
        self.metadata: dict[str, Any] = {}
        self.has_events = False
        self._stream = stream
        self._workers = workers
        self._pools = [ThreadPoolExecutor(1, "htagraph-scan") for _ in workers] if len(workers) > 1 else []
        self._log = log
        self._stack = np.zeros(MAX_DEPTH, dtype=np.uint8)

    def read(self) -> None:
        """Read all of it."""
        try:
            self._read_documents()
        finally:
            for pool in self._pools:
                pool.shutdown()

    def _read_documents(self) -> None:
        piece = self._stream.take(whole=True)
        i = 3 if piece.buf[:3].tobytes() == b"\xef\xbb\xbf" else 0
        i = space_end(piece.buf, i)
        first = piece.buf[i]
        self._stream.give_back(piece.tail(i + 1))
        if first == _OPEN_LIST:
            self._read_events()
        elif first == _OPEN_OBJECT:
            self._read_object()
        else:
            raise TraceFormatError("not a trace", offset=i)

    def _read_object(self) -> None:
        """Read the keys of the top-level object, its ``{`` already taken."""
        while True:
            piece = self._stream.take(whole=True)
            buf = piece.buf
            i = space_end(buf, 0)
            if buf[i] == _COMMA:
                i = space_end(buf, i + 1)
            if buf[i] == _CLOSE_OBJECT:
                self._stream.give_back(piece.tail(i + 1))
                return
            b = text_end(buf, i + 1)
            key = buf[i + 1 : b].tobytes().decode()
            i = space_end(buf, b + 1)
            i = space_end(buf, i + 1)
            if key == "traceEvents":
                self._stream.give_back(piece.tail(i + 1))
                self._read_events()
                continue
            end = value_end(buf, i, self._stack)
            self.metadata[key] = decoded(buf[i:end].tobytes())
            self._stream.give_back(piece.tail(end))

    def _read_events(self) -> None:
        """Read the event list, its ``[`` already taken, up to after its ``]``."""
        self.has_events = True
        ahead: deque[tuple[Piece, Future[Part]]] = deque()
        turn = 0
        n_bytes = 0
        while True:
            while len(ahead) <= len(self._pools):
                piece = self._stream.take(n_bytes)
                n_bytes = 0
                if not piece.n_bytes:
                    break
                ahead.append((piece, self._start(turn, piece)))
                turn += 1
            if not ahead:
                self._log.add(Defect.NO_END, self._stream.offset)
                return
            piece, future = ahead.popleft()
            part = future.result()
            self.parts.append(part)
            if part.reason == BETWEEN:
                self._stream.release(piece)
                continue
            rest = piece.tail(part.stop)
            for later, wasted in ahead:
                wasted.result()
                rest += later.tail(0)
            ahead.clear()
            self._stream.give_back(rest)
            if part.reason == CLOSED:
                return
            n_bytes = 2 * (piece.n_bytes - part.stop)

    def _start(self, turn: int, piece: Piece) -> Future[Part]:
        """Have a worker scan a piece."""
        worker = self._workers[turn % len(self._workers)]
        if self._pools:
            return self._pools[turn % len(self._pools)].submit(worker.scan, piece.buf, piece.n_bytes, piece.origin)
        done: Future[Part] = Future()
        done.set_result(worker.scan(piece.buf, piece.n_bytes, piece.origin))
        return done
