"""The JSON document: one pass over a file, header and events in any order.

Workers scan events in parallel. Each piece is scanned on the guess that it begins between two
events. The guess holds if the previous piece ends there; otherwise the pieces scanned ahead are
discarded, and scanning restarts after the last complete event.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from htagraph.errors import TraceFormatError, TraceLimitError
from htagraph.model.arrays import I64
from htagraph.readers.defects import Defect
from htagraph.readers.kineto.compiled.lexer import MAX_DEPTH, PADDING, TOO_DEEP, value_end
from htagraph.readers.kineto.compiled.repaired_output import REPAIRED
from htagraph.readers.kineto.compiled.scanner import BETWEEN, CLOSED
from htagraph.readers.kineto.header import decoded
from htagraph.readers.kineto.pieces import Piece, PieceStream
from htagraph.readers.kineto.worker import MARGIN, Part, Repairer, Worker, before_own_key
from htagraph.readers.repair_log import RepairLog

MAX_VALUE = 1 << 26
"""Bytes of the largest event, or header value, that is read."""

MAX_DOCUMENTS = 1000
"""Documents that may follow each other in one file; each costs a read ahead."""

MAX_BROKEN = 1000
"""Broken keys and values allowed outside the events; each costs a search for its end."""

_LOOK = 1 << 8
"""Bytes to look at first for a key or value (chosen); more where it is longer."""

_SEARCHED = 1 << 20
"""Bytes searched for the next key after a broken value (chosen)."""

_NESTED = 1 << 16
"""Bytes of a broken list or object that may be repaired (chosen)."""

_PAIR_END = re.compile(rb'\s*(?:\Z|\}|,\s*(?:["},]|\Z)|"[^"\n]{1,256}"\s*:)')
"""What follows a header value: the next key, or the end."""

_OF_EVENTS = [
    Defect.RAW_QUOTE,
    Defect.CONTROL_BYTE,
    Defect.INVALID_UTF8,
    Defect.BAD_ESCAPE,
    Defect.BARE_WORD,
    Defect.COMMA,
    Defect.TORN,
]
"""Defects that damaged compressed data looks like."""

_EVENT = re.compile(rb'\{\s*"ph"\s*:')
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FOREIGN = {
    b"SQLite format 3": "this is an SQLite file (Nsight Systems?).",
    b"PK\x03\x04": "this is a zip archive; extract it first.",
    b"\x28\xb5\x2f\xfd": "this is zstd; decompress it first.",
    b"\xfd7zXZ": "this is xz; decompress it first.",
    b"BZh": "this is bzip2; decompress it first.",
    b"\x04\x22\x4d\x18": "this is lz4; decompress it first.",
    b"\xff\xfe": "this is UTF-16; traces are UTF-8.",
    b"\xfe\xff": "this is UTF-16; traces are UTF-8.",
    b"{\x00": "this is UTF-16; traces are UTF-8.",
    b"\x00{": "this is UTF-16; traces are UTF-8.",
    b"\x0a": "a Perfetto file? Kineto traces are JSON.",
}


def _is_nested(piece: Piece) -> bool:
    return bool(piece.n_bytes) and chr(piece.buf[0]) in "{["


class Document:
    """One pass over a file: passes on the event list part by part, and collects the header keys.

    `new_workers`: one thread each; a single one works in the calling thread. `keep`: called with
    each part of the event list, in order; if it returns true, new workers take over. `since`: where
    to continue in the first event list, if it was read before, and the repairs up to there.
    """

    def __init__(
        self,
        stream: PieceStream,
        new_workers: Callable[[], list[Worker]],
        log: RepairLog,
        keep: Callable[[Part], bool | None],
        since: tuple[int, I64] | None = None,
    ) -> None:
        self.metadata: dict[str, Any] = {}
        self.has_event_list = False
        self._stream = stream
        self._new_workers, self._workers = new_workers, new_workers()
        self._pools: list[ThreadPoolExecutor] = []
        self._log = log
        self._keep = keep
        self._since = since
        self._repairer = Repairer()
        self._n_broken = 0
        self._met = np.zeros(len(Defect), dtype=bool)
        self._may_be_damaged = True
        self._stack = np.zeros(MAX_DEPTH, dtype=np.uint8)

    def read(self) -> None:
        """Read the whole file."""
        if len(self._workers) > 1:
            self._pools = [ThreadPoolExecutor(1, "htagraph-scan") for _ in self._workers]
        try:
            self._read_documents()
        finally:
            for pool in self._pools:
                pool.shutdown()

    def _read_documents(self) -> None:
        """Read the JSON document, and others that follow if the file was written twice."""
        if self._stream.peek(3).text() == _BYTE_ORDER_MARK:
            self._log.add(Defect.BYTE_ORDER_MARK, 0)
            self._stream.advance(3)
        first = self._next_byte()
        if first not in {"{", "["}:
            raise self._no_trace()
        n_documents = 0
        while first:
            n_documents += 1
            if n_documents > MAX_DOCUMENTS:
                message = f"more than {MAX_DOCUMENTS} JSON documents follow each other"
                raise TraceLimitError(message, path=self._stream.path, offset=self._stream.offset)
            if _EVENT.match(self._stream.peek(_LOOK).text()):
                self._log.add(Defect.TORN, self._stream.offset)
                self._read_events()
            elif first == "[":
                self._stream.advance(1)
                self._read_events(no_end=Defect.OPEN_LIST)
            elif first == "{":
                self._stream.advance(1)
                self._read_object()
            else:
                self._recover()
            first = self._next_byte()
            if first in {"{", "["}:
                self._log.add(Defect.MANY_DOCUMENTS, self._stream.offset)

    def _no_trace(self) -> TraceFormatError:
        start = self._stream.peek(16).text()
        if not start and self._log.count([Defect.GZIP_DAMAGED, Defect.GZIP_TRUNCATED]):
            return TraceFormatError(
                "the gzip data is damaged from its start", path=self._stream.path, offset=0
            )
        if not start:
            return TraceFormatError(
                "the file is empty",
                path=self._stream.path,
                hint="was the profiler stopped before it could export?",
            )
        hint = next(
            (hint for magic, hint in _FOREIGN.items() if start.startswith(magic)),
            "expected '{' or '['.",
        )
        return TraceFormatError(
            "this is not a JSON trace",
            path=self._stream.path,
            offset=self._stream.offset,
            hint=hint,
        )

    def _next_byte(self) -> str:
        """Advance to the next byte that is not white space; empty at the end."""
        return self._stream.skip_space().decode("latin-1")

    def _read_object(self) -> None:
        """Read the keys of the top-level object, after its ``{``."""
        commas = 1
        while True:
            byte = self._next_byte()
            if byte == ",":
                if commas:
                    self._log.add(Defect.COMMA, self._stream.offset)
                commas += 1
                self._stream.advance(1)
            elif byte == "}":
                if commas and (self.metadata or self.has_event_list):
                    self._log.add(Defect.COMMA, self._stream.offset)
                self._stream.advance(1)
                return
            elif byte == '"' and self._read_key():
                commas = 0
            elif not byte:
                self._log.once(Defect.NO_END, self._stream.offset)
                return
            elif (end := self._next_key()[1]) < 0:
                self._recover()
                return
            else:
                self._log.add(Defect.BAD_METADATA, self._stream.offset)
                self._stream.advance(end)

    def _read_key(self) -> bool:
        """Read a key and its value; false if they are not valid."""
        start = self._stream.offset
        key = self._read_value(is_key=True)
        if key is None or self._next_byte() != ":":
            return False
        self._stream.advance(1)
        if key == "traceEvents" and self._next_byte() == "[":
            self._stream.advance(1)
            self._read_events()
            return True
        if not self._next_byte():
            self._log.add(Defect.TRUNCATED, start)
            return True
        offset = self._stream.offset
        value = self._read_value()
        if value is not None or self._stream.offset > offset:
            self.metadata[str(key)] = value
            return True
        return False

    def _read_value(self, *, is_key: bool = False) -> object:
        """Read a header value, or a key; None if it is not valid."""
        n_bytes = _LOOK
        while True:
            piece = self._stream.peek(n_bytes)
            end = int(value_end(piece.buf, 0, self._stack))
            if end == TOO_DEEP:
                message = f"values are nested more than {MAX_DEPTH} deep"
                raise TraceLimitError(message, path=self._stream.path, offset=self._stream.offset)
            stop = end if end >= 0 else -end - 1
            is_open = _is_nested(piece) and before_own_key(piece.text(0, stop)) < stop
            if is_open or stop + MARGIN < piece.n_bytes or piece.is_last:
                break
            n_bytes = self._larger(n_bytes, self._stream.offset)
        follows = piece.text(stop, stop + MARGIN)
        if end >= 0 and not is_open and (is_key or _PAIR_END.match(follows)):
            self._stream.advance(end)
            return self._decoded(piece.text(0, end))
        if not is_open and piece.is_last and stop >= piece.n_bytes:
            self._log.add(Defect.TRUNCATED, self._stream.offset)
            self._stream.advance(piece.n_bytes)
            return None
        return None if is_key else self._read_broken_value()

    def _read_broken_value(self) -> object:
        """Repair a value that is not JSON; None, without advancing, if no next key is near.

        A list or object may contain what looks like a key. A text extends at most to the next key.
        """
        piece, end = self._next_key()
        is_nested, offset = _is_nested(piece), self._stream.offset
        piece = self._stream.peek(max(_NESTED, piece.n_bytes)) if is_nested else piece
        limit = before_own_key(piece.text()) if is_nested or end < 0 else end
        follows = piece.text(limit)
        piece.buf[limit : limit + PADDING] = 0
        repaired = self._repairer.repair(piece.buf, 0, limit, is_event=False)
        rest = piece.text(repaired.stop, limit)
        is_whole = not rest.strip() if limit == end else bool(_PAIR_END.match(rest + follows))
        if repaired.ended == REPAIRED and is_whole:
            for defect in repaired.defects:
                self._log.add(defect, offset)
            self._stream.advance(repaired.stop)
            return self._decoded(repaired.text())
        if end < 0:
            return None
        self._stream.advance(end)
        if is_nested:
            self._log.add(Defect.BAD_METADATA, offset)
            return None
        text = piece.text(0, end).strip().decode("utf-8", "replace")
        self._log.add(Defect.RAW_QUOTE if text.startswith('"') else Defect.BARE_WORD, offset)
        return text.removeprefix('"').removesuffix('"') if text.startswith('"') else text

    def _next_key(self) -> tuple[Piece, int]:
        """The bytes from here, and the position where the value here ends before the next key."""
        self._n_broken += 1
        if self._n_broken > MAX_BROKEN:
            message = f"more than {MAX_BROKEN} keys and values outside the events are not JSON"
            raise TraceLimitError(message, path=self._stream.path, offset=self._stream.offset)
        n_bytes = _LOOK
        while True:
            piece = self._stream.peek(n_bytes)
            end = self._repairer.before_key(piece.buf, piece.n_bytes, is_last=piece.is_last)
            if end >= 0 or piece.is_last or n_bytes >= _SEARCHED:
                return piece, end
            n_bytes *= 16

    def _larger(self, n_bytes: int, offset: int) -> int:
        if n_bytes > MAX_VALUE:
            message = f"a single value is larger than {MAX_VALUE >> 20} MiB"
            raise TraceLimitError(message, path=self._stream.path, offset=offset)
        return 4 * n_bytes

    def _decoded(self, raw: bytes) -> object:
        try:
            return decoded(raw)
        except ValueError:
            self._log.add(Defect.BAD_METADATA, self._stream.offset)
            return None

    def _recover(self) -> None:
        """Skip invalid bytes; continue at the next event, as in the event list."""
        self._log.add(Defect.BAD_METADATA, self._stream.offset)
        self._stream.advance(1)
        while True:
            piece = self._stream.peek(1 << 20)
            if not piece.n_bytes:
                return
            found = self._repairer.next_event(piece.buf, 0, piece.n_bytes, is_last=piece.is_last)
            if found < piece.n_bytes and (piece.is_last or found < piece.n_bytes - MARGIN):
                self._stream.advance(found)
                self._read_events()
                return
            self._stream.advance(max(found, 1))

    def _read_events(self, *, no_end: Defect = Defect.NO_END) -> None:
        """Read the event list, after its ``[``, through its ``]``; `no_end` if that is missing."""
        self.has_event_list = True
        if self._since is not None:
            offset, repairs = self._since
            self._stream.skip(offset - self._stream.offset)
            self._met |= repairs[:, 0] > 0
            self._since = None
        ahead: deque[tuple[Piece, Future[Part]]] = deque()
        turn = n_bytes = 0
        while True:
            while len(ahead) <= len(self._pools):
                piece = self._stream.take(n_bytes)
                n_bytes = 0
                if not piece.n_bytes:
                    break
                ahead.append((piece, self._start(turn, piece)))
                turn += 1
            if not ahead:
                self._log.once(no_end, self._stream.offset)
                return
            piece, future = ahead.popleft()
            part = future.result()
            damaged = self._first_damaged(part)
            if damaged >= 0:
                self._end_at(damaged, piece, part, ahead)
                return
            if self._keep(part):
                self._workers = self._new_workers()
            if part.reason == BETWEEN:
                self._stream.release(piece)
                continue
            self._give_back(piece, part, ahead)
            if part.reason == CLOSED:
                return
            n_bytes = self._larger(piece.n_bytes - part.stop, piece.origin + part.stop)

    def _first_damaged(self, part: Part) -> int:
        """The first byte that is invalid because compressed data is damaged, -1 for none.

        Damage shows as defects that the file did not have before. The checksum confirms it, once
        per file.
        """
        first = np.where(part.repairs[:, 0] > 0, part.repairs[:, 1], -1)[_OF_EVENTS]
        first[self._met[_OF_EVENTS]] = -1
        self._met |= part.repairs[:, 0] > 0
        found = first[first >= 0]
        if not len(found) or not self._may_be_damaged:
            return -1
        self._may_be_damaged = self._stream.is_damaged_ahead()
        return int(found.min()) if self._may_be_damaged else -1

    def _end_at(
        self, offset: int, piece: Piece, part: Part, ahead: deque[tuple[Piece, Future[Part]]]
    ) -> None:
        """Keep what a piece holds before an offset, and stop reading."""
        for _, wasted in ahead:
            wasted.exception()
        n_bytes = max(offset - piece.origin, 0)
        piece.buf[n_bytes : n_bytes + PADDING] = 0
        assert isinstance(part.worker, Worker)
        self._keep(part.worker.scan(replace(piece, n_bytes=n_bytes, is_last=True)))
        self._stream.end_at_damage(offset)

    def _give_back(
        self, piece: Piece, part: Part, ahead: deque[tuple[Piece, Future[Part]]]
    ) -> None:
        """Undo what was scanned ahead of where the scanner stopped."""
        rest = [piece.text(part.stop)]
        for later, wasted in ahead:
            wasted.exception()  # waits; errors after a wrong guess mean nothing
            rest.append(later.text())
        ahead.clear()
        self._stream.give_back(b"".join(rest))

    def _start(self, turn: int, piece: Piece) -> Future[Part]:
        worker = self._workers[turn % len(self._workers)]
        if self._pools:
            return self._pools[turn % len(self._pools)].submit(worker.scan, piece)
        done = Future[Part]()
        done.set_result(worker.scan(piece))
        return done
