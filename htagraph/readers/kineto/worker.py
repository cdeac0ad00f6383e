"""One worker: scans pieces of the event list into columns of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from htagraph.errors import TraceLimitError
from htagraph.native.arguments import fixed
from htagraph.readers.kineto.compiled.event_values import new_event
from htagraph.readers.kineto.compiled.interning import enter, new_interned, texts
from htagraph.readers.kineto.compiled.keys import key_table
from htagraph.readers.kineto.compiled.lexer import MAX_DEPTH, PADDING
from htagraph.readers.kineto.compiled.scanner import (
    BAD,
    BETWEEN,
    CLOSED,
    DEEP,
    FULL,
    OPEN,
    Rules,
    Tables,
    scan,
)
from htagraph.readers.kineto.defects import Defect
from htagraph.readers.kineto.pieces import Piece
from htagraph.readers.kineto.scanned_parts import (
    Id,
    Part,
    canonical_id,
    new_batch,
    settle,
    unescaped,
    unload,
)
from htagraph.readers.kineto.value_repair import CUT, MARGIN, REPAIRED, RepairedValue, Repairer
from htagraph.readers.repair_log import count_in

_SYMBOLS, _SYMBOL_BYTES, _LANES = 1 << 12, 1 << 20, 1 << 10
"""Initial sizes of the tables, which grow (chosen)."""


class Worker:
    """Scans pieces; its tables grow from piece to piece.

    Parameters
    ----------
    known_symbols : list of str
        Symbols that get the first codes.
    """

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
