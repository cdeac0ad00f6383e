"""One worker: scans pieces of the event list into columns of its own, and repairs broken events."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from htagraph.arrays.arguments import fixed
from htagraph.errors import TraceLimitError
from htagraph.model.arrays import I32, I64, U8
from htagraph.readers.defects import Defect
from htagraph.readers.kineto.compiled import repairer
from htagraph.readers.kineto.compiled.event_values import new_event
from htagraph.readers.kineto.compiled.interning import enter, new_interned, texts
from htagraph.readers.kineto.compiled.keys import Keys, key_table
from htagraph.readers.kineto.compiled.lexer import MAX_DEPTH, PADDING
from htagraph.readers.kineto.compiled.repaired_output import CUT, NO_ROOM, REPAIRED, Bench
from htagraph.readers.kineto.compiled.scanner import (
    BAD,
    BETWEEN,
    CLOSED,
    DEEP,
    FULL,
    OPEN,
    Batch,
    Rules,
    Tables,
    scan,
)
from htagraph.readers.kineto.event_fields import COLUMNS, Read
from htagraph.readers.kineto.pieces import Piece
from htagraph.readers.repair_log import count_in, merge_counts, new_counts

Id = int | str

_INTEGER = re.compile(r"-?[0-9]{1,40}")

_CAPACITY = 1 << 14
"""Events per batch (chosen)."""

ROW_FIELDS: dict[str, type[np.generic]] = {
    "ts_ns": np.int64,
    "dur_ns": np.int64,
    "phase": np.uint8,
    "name": np.int32,
    "category": np.int32,
    "lane": np.int32,
    "device": np.int64,
    "stream": np.int64,
    "correlation": np.int64,
    "external_id": np.int64,
    "offset": np.int64,
    "length": np.int32,
}
"""Columns of every event, in the order of `Batch.rows`, and their stored types."""


def canonical_id(value: object) -> Id:
    """An id for comparison: numeric text becomes the integer, other text stays."""
    if isinstance(value, int):
        return int(value)
    text = "" if value is None else str(value)
    return int(text) if _INTEGER.fullmatch(text) else text


def unescaped(raw: bytes) -> str:
    """The text between two quotes of a JSON file."""
    if b"\\" not in raw:
        return raw.decode("utf-8", "replace")
    try:
        return msgspec.json.decode(b'"' + raw + b'"', type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        text = json.loads(b'"' + raw + b'"')
    except ValueError:  # a list or object that is kept as it is written
        return raw.decode("utf-8", "replace")
    return str(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Texts(Protocol):
    """What knows the texts of codes."""

    def known(self) -> tuple[list[str], list[tuple[Id, Id]], list[str]]:
        """Its symbols, lanes and lists, by code."""


@dataclass
class Part:
    """The events of one piece of the file, with the codes of the worker that read it."""

    worker: Texts  # Whose codes of symbols and lanes they use
    rows: dict[str, list[npt.NDArray[Any]]] = field(
        default_factory=lambda: {name: [] for name in ROW_FIELDS}
    )  # By name of `ROW_FIELDS`, one array per batch
    flows: list[I64] = field(default_factory=list)  # Of shape (5, n)
    sparse: list[list[tuple[I32, npt.NDArray[Any]]]] = field(
        default_factory=lambda: [[] for _ in COLUMNS]
    )  # By column of `COLUMNS`; rows count from the start of the part
    # Metadata events as in the file, or all events if the rules ask for them
    metas: list[bytes] = field(default_factory=list)
    n_rows: int = 0
    n_outside: int = 0  # Events outside the window
    # Events skipped, by symbol of their category, and by unknown phase
    skipped: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    phases: I64 = field(default_factory=lambda: np.zeros(256, dtype=np.int64))
    # Of all timed events, skipped or not, by symbol of their category
    n_bytes: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    repairs: I64 = field(default_factory=lambda: new_counts(Defect))
    origin: int = 0  # Offset of the piece in the file
    stop: int = 0  # Where in the piece the scanner stopped
    reason: int = 0


def new_batch(n_symbols: int) -> Batch:
    """An empty batch with counters for `n_symbols`."""
    n_columns = len(COLUMNS)
    return Batch(
        rows=np.empty((len(ROW_FIELDS), _CAPACITY), dtype=np.int64),
        flows=np.empty((5, _CAPACITY), dtype=np.int64),
        metas=np.empty((2, _CAPACITY), dtype=np.int64),
        reals=np.empty((4, _CAPACITY), dtype=np.int64),
        sparse_row=np.empty((n_columns, _CAPACITY), dtype=np.int32),
        sparse_value=np.empty((n_columns, _CAPACITY), dtype=np.int64),
        sparse_n=np.zeros(n_columns, dtype=np.int64),
        n=np.zeros(5, dtype=np.int64),
        repairs=new_counts(Defect),
        skipped=np.zeros(n_symbols, dtype=np.int64),
        phases=np.zeros(256, dtype=np.int64),
        n_bytes=np.zeros(n_symbols, dtype=np.int64),
    )


def added(known: I64, more: I64) -> I64:
    """Sums by symbol; `more` may have more symbols."""
    out = more.copy()
    out[: len(known)] += known
    return out


def settle(batch: Batch, part: Part, buf: U8) -> None:
    """Copy what a batch only points at in `buf`, which may change afterwards."""
    n_metas, n_reals = batch.n[2:4].tolist()
    for column, position, a, b in batch.reals[:, :n_reals].T.tolist():
        batch.sparse_value[column, position] = np.float64(buf[a:b].tobytes().decode("ascii")).view(
            np.int64
        )
    part.metas += [buf[a:b].tobytes() for a, b in batch.metas[:, :n_metas].T.tolist()]
    batch.n[2:4] = 0


def unload(batch: Batch, part: Part, buf: U8) -> None:
    """Move the content of a batch to the end of a part; `buf` is what was scanned."""
    settle(batch, part, buf)
    n_rows, n_flows, _, _, n_outside = batch.n.tolist()
    if n_rows:
        for row, (name, dtype) in zip(batch.rows, ROW_FIELDS.items(), strict=True):
            part.rows[name].append(row[:n_rows].astype(dtype))
    if n_flows:
        part.flows.append(batch.flows[:, :n_flows].copy())
    for column in np.flatnonzero(batch.sparse_n).tolist():
        n = int(batch.sparse_n[column])
        bits = batch.sparse_value[column, :n]
        is_real = COLUMNS[column].read == Read.REAL
        values = bits.view(np.float64).copy() if is_real else bits.astype(COLUMNS[column].dtype)
        part.sparse[column].append((batch.sparse_row[column, :n] + np.int32(part.n_rows), values))
    part.n_rows += n_rows
    part.n_outside += n_outside
    part.phases += batch.phases
    part.skipped = added(part.skipped, batch.skipped)
    part.n_bytes = added(part.n_bytes, batch.n_bytes)
    merge_counts(part.repairs, batch.repairs)
    for counts in (batch.n, batch.sparse_n, batch.skipped, batch.phases, batch.n_bytes):
        counts[:] = 0
    batch.repairs[:] = new_counts(Defect)


MARGIN = 64
"""Bytes at the end of a piece in which the beginning of an event may be cut off."""

_OWN_KEY = (
    rb'"(?:traceEvents|traceName|displayTimeUnit|baseTimeNanoseconds|distributedInfo'
    rb'|deviceProperties|schemaVersion|trace_id)"\s*:'
)
_LIST_END = re.compile(rb'\]\s*(?:,\s*(?:%b|"(?:INFO|WARNING|ERROR)"\s*:)|\}\s*\Z)' % _OWN_KEY)
"""The end of the event list among invalid bytes."""

_BEFORE_OWN_KEY = re.compile(rb",\s*(?=%b)" % _OWN_KEY)
"""The comma before a top-level key that no header value contains."""

_BEFORE_KEY = re.compile(rb'%b|,[ \t\r]*\n\s*(?="[^"\n]{1,256}"\s*:)' % _BEFORE_OWN_KEY.pattern)
"""The comma before such a key, or before one on a line of its own, as profilers write them."""

_EVENT_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_OBJECT_END = re.compile(rb"\}\s*\Z")


@dataclass(frozen=True)
class RepairedValue:
    """A repaired value, or as much of it as was valid."""

    ended: int  # `REPAIRED`, `TORN` or `CUT`
    stop: int  # Position after the value, or where it ended
    out: U8  # The value as valid JSON, followed by zero bytes; overwritten by the next call
    n_bytes: int
    defects: tuple[Defect, ...]

    def text(self) -> bytes:
        """The value as valid JSON."""
        return self.out[: self.n_bytes].tobytes()


def before_own_key(text: bytes) -> int:
    """The position of the comma before a known top-level key, else the end."""
    found = _BEFORE_OWN_KEY.search(text)
    return found.start() if found else len(text)


def repaired_text(raw: bytes) -> bytes:
    """A broken event as valid JSON."""
    buf = np.frombuffer(raw + bytes(PADDING), dtype=np.uint8)
    return Repairer().repair(buf, 0, len(raw), is_event=True).text()


class Repairer:
    """Repairs values; owns the output buffer."""

    def __init__(self) -> None:
        self._out = np.zeros(1 << 16, dtype=np.uint8)
        self._n = np.zeros(2, dtype=np.int64)
        self._stack = np.zeros(MAX_DEPTH, dtype=np.uint8)

    def repair(self, buf: U8, i: int, end: int, *, is_event: bool) -> RepairedValue:
        """Repair the event, or header value, at a position; zero bytes follow `end`."""
        while True:
            stop, ended = repairer.repair(self._bench(buf, end, is_event=is_event), i)
            if ended != NO_ROOM:
                break
            self._out = np.zeros(2 * len(self._out) + 8 * (end - i), dtype=np.uint8)
        n_bytes = int(self._n[0])
        self._out[n_bytes : n_bytes + PADDING] = 0
        return RepairedValue(ended, stop, self._out, n_bytes, _defects_of(int(self._n[1])))

    def next_event(self, buf: U8, i: int, end: int, *, is_last: bool) -> int:
        """The position of the next event; else of the list's end, else the end."""
        found = int(
            repairer.next_event(self._bench(buf, end, is_event=True), i, 0 if is_last else MARGIN)
        )
        closed = _LIST_END.search(buf[i:found].tobytes() if found < end else buf[i:end].tobytes())
        return i + closed.start() if closed else found

    def before_key(self, buf: U8, end: int, *, is_last: bool) -> int:
        """The position of the ``,`` before the next header key, or of the header's ``}``, or -1."""
        text = buf[:end].tobytes()
        found = _BEFORE_KEY.search(text) or (_OBJECT_END.search(text) if is_last else None)
        if found is None:
            return -1
        is_before_events = _EVENT_LIST.search(text, found.start()) or (
            found.start() < self.next_event(buf, 1, end, is_last=True)
        )
        return found.start() if is_before_events else -1

    def _bench(self, buf: U8, end: int, *, is_event: bool) -> Bench:
        return Bench(buf, end, is_event, _keys(), self._out, self._n, self._stack)


@cache
def _keys() -> Keys:
    return fixed(key_table())


@cache
def _defects_of(bits: int) -> tuple[Defect, ...]:
    return tuple(defect for defect in Defect if bits >> defect & 1)


_SYMBOLS, _SYMBOL_BYTES, _LANES = 1 << 12, 1 << 20, 1 << 10
"""Initial sizes of the tables, which grow (chosen)."""


class Worker:
    """Scans pieces; its tables grow from piece to piece. `known_symbols` get the first codes."""

    def __init__(self, known_symbols: list[str], rules: Rules, path: Path | None = None) -> None:
        self._path = path
        self._repairer = Repairer()
        self._tables = Tables(
            key_table(),
            new_event(),
            new_interned(_SYMBOLS, _SYMBOL_BYTES),
            new_interned(_LANES, 8 * _LANES),
            new_interned(_SYMBOLS, _SYMBOL_BYTES),
            rules,
            new_batch(_SYMBOLS),
        )
        self._fixed = fixed(self._tables)
        for symbol in known_symbols:
            enter(self._tables.symbols, symbol.encode())

    def known(self) -> tuple[list[str], list[tuple[Id, Id]], list[str]]:
        """The texts of all symbols, the ids that name all lanes, and lists as written."""
        symbols = [unescaped(raw) for raw in texts(self._tables.symbols)]
        lanes = self._tables.lanes
        keys = lanes.arena[: 8 * int(lanes.n[0])].view(np.int64).tolist()
        ids = [
            (canonical_id(symbols[key >> 32]), canonical_id(symbols[key & 0xFFFFFFFF]))
            for key in keys
        ]
        return symbols, ids, [raw.decode("utf-8", "replace") for raw in texts(self._tables.lists)]

    def scan(self, piece: Piece) -> Part:
        """Read the events of a piece that begins between two events."""
        part = Part(self, origin=piece.origin)
        i, after_event = 0, False
        while True:
            i, reason = scan(piece.buf, i, piece.n_bytes, piece.origin, self._fixed, after_event)
            settle(self._tables.batch, part, piece.buf)
            if reason == FULL:
                unload(self._tables.batch, part, piece.buf)
                self._grow(piece.n_bytes - i)
            elif reason == DEEP:
                message = f"values are nested more than {MAX_DEPTH} deep"
                raise TraceLimitError(message, path=self._path, offset=piece.origin + i)
            elif reason == BAD or (
                reason == OPEN and (piece.is_last or i == 0)
            ):  # at 0: it fills the whole piece
                i, reason = self._repair(part, piece, i)
            if reason in {BETWEEN, CLOSED, OPEN}:
                unload(self._tables.batch, part, piece.buf)
                part.stop, part.reason = i, reason
                return part
            after_event = reason == BAD

    def _repair(self, part: Part, piece: Piece, i: int) -> tuple[int, int]:
        """Repair the event at a position, or skip invalid bytes.

        Returns where to continue, and `BAD` after a repaired event, `FULL` before the next event,
        `OPEN` at an event that may continue in the next piece.
        """
        is_cut = False
        if piece.buf[i] == ord("{"):
            repaired = self._repairer.repair(piece.buf, i, piece.n_bytes, is_event=True)
            if repaired.ended == REPAIRED:
                self._enter(part, piece, i, repaired)
                return repaired.stop, BAD
            is_cut = repaired.ended == CUT
            if is_cut and not piece.is_last:
                return i, OPEN
        found = self._repairer.next_event(piece.buf, i + 1, piece.n_bytes, is_last=piece.is_last)
        defect = Defect.TRUNCATED if is_cut and found == piece.n_bytes else Defect.TORN
        count_in(part.repairs, defect, piece.origin + i)
        may_go_on = piece.n_bytes - MARGIN < found < piece.n_bytes and not piece.is_last
        return found, OPEN if may_go_on else FULL

    def _enter(self, part: Part, piece: Piece, i: int, repaired: RepairedValue) -> None:
        """Read an event from its repaired bytes; it keeps its place in the file."""
        batch = self._tables.batch
        n = int(batch.n[0])
        while (
            scan(repaired.out, 0, repaired.n_bytes, piece.origin + i, self._fixed, False)[1] == FULL
        ):
            unload(batch, part, repaired.out)
            self._grow(repaired.n_bytes)
            batch, n = self._tables.batch, 0
        settle(batch, part, repaired.out)
        batch.rows[-2:, n : int(batch.n[0])] = np.array([[piece.origin + i], [repaired.stop - i]])
        for defect in repaired.defects:
            count_in(part.repairs, defect, piece.origin + i)

    def _grow(self, n_bytes: int) -> None:
        """Make room in all tables for an event of `n_bytes`."""
        symbols, lanes, lists = self._tables.symbols, self._tables.lanes, self._tables.lists
        n = int(symbols.n[0])
        used = int(symbols.starts[n])
        if n * 2 > len(symbols.hashes) or used + n_bytes + PADDING >= len(symbols.arena):
            more = 2 * len(symbols.hashes)
            self._tables = self._tables._replace(
                symbols=new_interned(more, 2 * (used + n_bytes + PADDING), symbols),
                batch=new_batch(more),
            )
        if int(lanes.n[0]) * 2 > len(lanes.hashes):
            n = 2 * len(lanes.hashes)
            self._tables = self._tables._replace(lanes=new_interned(n, 8 * n, lanes))
        n = int(lists.n[0])
        used = int(lists.starts[n])
        if n * 2 > len(lists.hashes) or used + n_bytes + PADDING >= len(lists.arena):
            larger = new_interned(2 * len(lists.hashes), 2 * (used + n_bytes + PADDING), lists)
            self._tables = self._tables._replace(lists=larger)
        self._fixed = fixed(self._tables)
