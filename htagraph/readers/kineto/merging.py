"""Parts of a file as whole columns: one numbering of symbols and lanes instead of one per worker."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from htagraph.readers.kineto.fields import COLUMNS, Read
from htagraph.readers.kineto.parts import ROW_FIELDS, Part
from htagraph.readers.kineto.worker import Worker

__all__ = ["Columns", "canonical_id", "merged"]

I64 = npt.NDArray[np.int64]
Id = int | str

_INTEGER = re.compile(r"-?\d{1,40}")


@dataclass
class Columns:
    """All events of a file, rows in file order, as the file has them.

    Parameters
    ----------
    rows : dict of str to ndarray
        By name of `ROW_FIELDS`.
    flows : ndarray of shape (5, n), dtype=int64
        ts, id, lane, phase, category.
    sparse : dict of str to (rows, values)
    symbols : list of str
    lanes : list of (pid, tid)
    left_out : dict of str to int
        By category, or why.
    """

    rows: dict[str, npt.NDArray[Any]]
    flows: I64
    sparse: dict[str, tuple[I64, npt.NDArray[Any]]]
    symbols: list[str]
    lanes: list[tuple[Id, Id]]
    left_out: dict[str, int] = field(default_factory=dict)


def canonical_id(value: object) -> Id:
    """Return an id as it is compared: numeric text is the integer, any other text stays.

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
    """Return the text that the bytes between two quotes stand for."""
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


def merged(parts: Sequence[Part], workers: Sequence[Worker]) -> Columns:
    """Return the columns of all parts; the parts are emptied on the way, so that memory does not double."""
    codes: dict[str, int] = {"": 0}
    symbol_maps = [
        np.array([codes.setdefault(unescaped(raw), len(codes)) for raw in worker.symbols()], dtype=np.int32)
        for worker in workers
    ]
    symbols = list(codes)
    lane_codes: dict[tuple[Id, Id], int] = {}
    lane_maps = [
        np.array(
            [lane_codes.setdefault(lane, len(lane_codes)) for lane in _lanes(worker, symbols, symbol_map)], np.int32
        )
        for worker, symbol_map in zip(workers, symbol_maps, strict=True)
    ]
    maps = {"name": symbol_maps, "category": symbol_maps, "lane": lane_maps}
    return Columns(
        rows={name: _row_column(parts, name, maps.get(name)) for name in ROW_FIELDS},
        flows=_flows(parts, lane_maps, symbol_maps),
        sparse=_sparse_columns(parts, symbol_maps),
        symbols=symbols,
        lanes=list(lane_codes),
        left_out=_left_out(parts, symbols, symbol_maps),
    )


def _lanes(worker: Worker, symbols: list[str], symbol_map: npt.NDArray[np.int32]) -> list[tuple[Id, Id]]:
    """Return the lanes of a worker as the file names them."""
    return [
        (canonical_id(symbols[symbol_map[pid]]), canonical_id(symbols[symbol_map[tid]])) for pid, tid in worker.lanes()
    ]


def _row_column(parts: Sequence[Part], name: str, maps: list[npt.NDArray[np.int32]] | None) -> npt.NDArray[Any]:
    """Return one column that every event has."""
    pieces: list[npt.NDArray[Any]] = []
    for part in parts:
        arrays = part.rows.pop(name)
        pieces += arrays if maps is None else [maps[part.worker][array] for array in arrays]
    return np.concatenate(pieces) if pieces else np.empty(0, dtype=ROW_FIELDS[name])


def _flows(parts: Sequence[Part], lane_maps: list[Any], symbol_maps: list[Any]) -> I64:
    """Return the flow points of all parts."""
    pieces = []
    for part in parts:
        for flows in part.flows:
            flows[2] = lane_maps[part.worker][flows[2]]
            flows[4] = symbol_maps[part.worker][flows[4]]
            pieces.append(flows)
    return np.concatenate(pieces, axis=1) if pieces else np.empty((5, 0), dtype=np.int64)


def _sparse_columns(
    parts: Sequence[Part], symbol_maps: list[npt.NDArray[np.int32]]
) -> dict[str, tuple[I64, npt.NDArray[Any]]]:
    """Return the columns of few events that have a value; columns of the same rows share them."""
    starts = np.cumsum([0, *(part.n_rows for part in parts)]).tolist()
    columns: dict[str, tuple[I64, npt.NDArray[Any]]] = {}
    shared: list[I64] = []
    for position, column in enumerate(COLUMNS):
        rows, values = [], []
        for part, start in zip(parts, starts, strict=False):
            for some_rows, some_values in part.sparse[position]:
                rows.append(some_rows + start)
                values.append(symbol_maps[part.worker][some_values] if column.read == Read.TEXT else some_values)
            part.sparse[position] = []
        if rows:
            columns[column.name] = _shared(np.concatenate(rows), shared), np.concatenate(values)
    return columns


def _shared(rows: I64, known: list[I64]) -> I64:
    """Return an equal array that is known already, else the array itself."""
    for other in known:
        if np.array_equal(rows, other):
            return other
    known.append(rows)
    return rows


def _left_out(parts: Sequence[Part], symbols: list[str], symbol_maps: list[npt.NDArray[np.int32]]) -> dict[str, int]:
    """Return how many events were left out, by category or reason."""
    counts = np.zeros(len(symbols), dtype=np.int64)
    phases = np.zeros(256, dtype=np.int64)
    for part in parts:
        known = np.flatnonzero(part.left_out)
        np.add.at(counts, symbol_maps[part.worker][known], part.left_out[known])
        phases += part.phases
    left_out = {symbols[code] or "no category": int(counts[code]) for code in np.flatnonzero(counts).tolist()}
    left_out |= {f"phase {chr(phase)!r}": int(phases[phase]) for phase in np.flatnonzero(phases).tolist()}
    n_outside = sum(part.n_outside for part in parts)
    return left_out | ({"outside the window": n_outside} if n_outside else {})
