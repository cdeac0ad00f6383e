"""One worker: scans pieces of the event list into columns of its own, one piece after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.errors import TraceLimitError
from htagraph.readers.kineto.fields import COLUMNS, Read
from htagraph.readers.kineto.compiled.interning import enter, new_interned, new_pairs, texts
from htagraph.readers.kineto.compiled.keys import key_table
from htagraph.readers.kineto.compiled.lexer import MAX_DEPTH, PADDING
from htagraph.readers.kineto.repairs import RepairLog
from htagraph.readers.kineto.compiled.scanner import BAD, DEEP, FULL, Batch, Rules, Tables, scan
from htagraph.readers.kineto.compiled.values import new_event

__all__ = ["ROW_FIELDS", "Part", "Worker"]

U8 = npt.NDArray[np.uint8]

_CAPACITY = 1 << 14
_SYMBOLS = 1 << 12
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
"""Columns that every event has, in the order of `Batch.rows`, and how they are stored."""


@dataclass
class Part:
    """What a worker read from one piece of the file, with its own codes of symbols and lanes.

    Parameters
    ----------
    worker : int
        Whose codes they are.
    rows, flows : mapping and list
        Arrays, one per batch.
    sparse : list of list of (rows, values)
        By column of `COLUMNS`; rows count from the start of the part.
    metas : list of bytes
        Metadata events as they stand in the file.
    stop, reason : int
        Where in the piece the scanner stopped, and why.
    """

    worker: int
    rows: dict[str, list[npt.NDArray[Any]]] = field(default_factory=lambda: {name: [] for name in ROW_FIELDS})
    flows: list[npt.NDArray[np.int64]] = field(default_factory=list)
    sparse: list[list[tuple[npt.NDArray[np.int64], npt.NDArray[Any]]]] = field(
        default_factory=lambda: [[] for _ in COLUMNS]
    )
    metas: list[bytes] = field(default_factory=list)
    n_rows: int = 0
    n_outside: int = 0
    left_out: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    phases: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(256, dtype=np.int64))
    repairs: npt.NDArray[np.int64] = field(default_factory=RepairLog.blank)
    stop: int = 0
    reason: int = 0


class Worker:
    """Scans pieces; its tables of symbols and lanes grow from piece to piece."""

    def __init__(self, number: int, known_symbols: list[str], rules: Rules) -> None:
        self.number = number
        self._tables = Tables(
            key_table(), new_event(), new_interned(_SYMBOLS, 1 << 20), new_pairs(1 << 10), rules, _new_batch(_SYMBOLS)
        )
        for symbol in known_symbols:
            enter(self._tables.symbols, symbol.encode())

    def symbols(self) -> list[bytes]:
        """Return the texts of all symbols, as they stand in the file."""
        return texts(self._tables.symbols)

    def lanes(self) -> list[tuple[int, int]]:
        """Return the pairs of symbols that name all lanes."""
        return [(key >> 32, key & 0xFFFFFFFF) for key in self._tables.lanes.keys[: self._tables.lanes.n[0]].tolist()]

    def scan(self, buf: U8, n_bytes: int, origin: int) -> Part:
        """Read the events of a piece.

        Parameters
        ----------
        buf : ndarray, dtype=uint8
            The piece, zero bytes after it.
        n_bytes : int
        origin : int
            Offset of the piece in the file.
        """
        part = Part(self.number)
        i = 0
        while True:
            i, reason = scan(buf, i, n_bytes, origin, self._tables)
            self._flush(part, buf)
            if reason == FULL:
                self._grow(n_bytes)
                continue
            if reason == DEEP:
                raise TraceLimitError(f"values nested more than {MAX_DEPTH} deep", offset=origin + i)
            if reason == BAD:
                raise NotImplementedError(origin + i, bytes(buf[i : i + 200]))
            part.stop, part.reason = i, reason
            return part

    def _grow(self, n_bytes: int) -> None:
        """Make room in the tables of symbols and lanes for an event of up to some bytes."""
        symbols, lanes = self._tables.symbols, self._tables.lanes
        n = int(symbols.n[0])
        used = int(symbols.starts[n])
        if n * 2 > len(symbols.hashes) or used + n_bytes + PADDING >= len(symbols.arena):
            more = 2 * len(symbols.hashes)
            self._tables = self._tables._replace(
                symbols=new_interned(more, 2 * (used + n_bytes + PADDING), symbols), batch=_new_batch(more)
            )
        if int(lanes.n[0]) * 2 > len(lanes.keys):
            self._tables = self._tables._replace(lanes=new_pairs(2 * len(lanes.keys), lanes))

    def _flush(self, part: Part, buf: U8) -> None:
        """Move what the batch holds into a part."""
        batch = self._tables.batch
        n_rows, n_flows, n_metas, n_reals, n_outside = batch.n.tolist()
        self._read_reals(n_reals, buf)
        if n_rows:
            for row, (name, dtype) in zip(batch.rows, ROW_FIELDS.items(), strict=True):
                part.rows[name].append(row[:n_rows].astype(dtype))
        if n_flows:
            part.flows.append(batch.flows[:, :n_flows].copy())
        part.metas += [buf[a:b].tobytes() for a, b in batch.metas[:, :n_metas].T.tolist()]
        for column in np.flatnonzero(batch.sparse_n).tolist():
            n = int(batch.sparse_n[column])
            rows = batch.sparse_row[column, :n].astype(np.int64) + part.n_rows
            values = batch.sparse_value[column, :n]
            kept = (
                values.view(np.float64).copy()
                if COLUMNS[column].read == Read.REAL
                else values.astype(COLUMNS[column].dtype)
            )
            part.sparse[column].append((rows, kept))
        part.n_rows += n_rows
        part.n_outside += n_outside
        part.left_out = _added(part.left_out, batch.left_out)
        part.phases += batch.phases
        RepairLog.merge_tables(part.repairs, batch.repairs)
        for counts in (batch.n, batch.sparse_n, batch.left_out, batch.phases):
            counts[:] = 0
        batch.repairs[:] = RepairLog.blank()

    def _read_reals(self, n_reals: int, buf: U8) -> None:
        """Read the floats that compiled code could not round exactly."""
        for column, position, a, b in self._tables.batch.reals[:, :n_reals].T.tolist():
            self._tables.batch.sparse_value[column, position] = np.float64(buf[a:b].tobytes().decode("ascii")).view(
                np.int64
            )


def _added(some: npt.NDArray[np.int64], more: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the sum of two count arrays, the first of which may be shorter."""
    total = more.copy()
    total[: len(some)] += some
    return total


def _new_batch(n_symbols: int) -> Batch:
    """Return an empty batch."""
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
        repairs=RepairLog.blank(),
        left_out=np.zeros(n_symbols, dtype=np.int64),
        phases=np.zeros(256, dtype=np.int64),
    )
