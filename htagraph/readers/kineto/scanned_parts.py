"""Parts: the events of one piece of a file, as the scanner's batches leave them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import I32, I64, U8
from htagraph.readers.kineto.compiled.scanner import Batch
from htagraph.readers.kineto.defects import Defect
from htagraph.readers.kineto.event_fields import COLUMNS, Read
from htagraph.readers.repair_log import merge_counts, new_counts

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
    """An id for comparison: numeric text becomes the integer, other text stays.

    Examples
    --------
    >>> canonical_id("25738"), canonical_id("stream 7"), canonical_id(-3)
    (25738, 'stream 7', -3)
    """
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
    """The events of one piece of the file, with the codes of the worker that read it.

    Parameters
    ----------
    worker : Texts
        Whose codes of symbols and lanes they use.
    rows : dict of str to list of ndarray
        By name of `ROW_FIELDS`, one array per batch.
    flows : list of ndarray of shape (5, n), dtype=int64
    sparse : list of list of (rows, values)
        By column of `COLUMNS`; rows count from the start of the part.
    metas : list of bytes
        Metadata events as in the file, or all events if the rules ask for them.
    n_rows, n_outside : int
        Events read, and events outside the window.
    skipped, phases : ndarray, dtype=int64
        Events skipped, by symbol of their category, and by unknown phase.
    n_bytes : ndarray, dtype=int64, unit=byte
        Of all timed events, skipped or not, by symbol of their category.
    repairs : ndarray, dtype=int64
        As `new_counts`.
    origin : int
        Offset of the piece in the file.
    stop, reason : int
        Where in the piece the scanner stopped, and why.
    """

    worker: Texts
    rows: dict[str, list[npt.NDArray[Any]]] = field(
        default_factory=lambda: {name: [] for name in ROW_FIELDS}
    )
    flows: list[I64] = field(default_factory=list)
    sparse: list[list[tuple[I32, npt.NDArray[Any]]]] = field(
        default_factory=lambda: [[] for _ in COLUMNS]
    )
    metas: list[bytes] = field(default_factory=list)
    n_rows: int = 0
    n_outside: int = 0
    skipped: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    phases: I64 = field(default_factory=lambda: np.zeros(256, dtype=np.int64))
    n_bytes: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    repairs: I64 = field(default_factory=lambda: new_counts(Defect))
    origin: int = 0
    stop: int = 0
    reason: int = 0

    def has_events(self) -> bool:
        """Whether any event was read, or skipped on purpose."""
        n_skipped = int(self.skipped.sum() + self.phases.sum())
        return bool(self.n_rows + self.n_outside + len(self.metas) + len(self.flows) + n_skipped)

    def first_nonsense(self) -> int:
        """The offset of the first bytes that are no event, -1 for none."""
        nonsense = [Defect.TORN, Defect.NO_PHASE, Defect.NO_TIMESTAMP]
        return int(self.repairs[nonsense, 1].min()) if self.repairs[nonsense, 0].any() else -1


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
