"""Parts of a file as whole columns: one numbering of symbols and lanes instead of one per worker.

Parts are appended to columns that grow in place, so that memory holds each event once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import I32, I64
from htagraph.model.recording import OUTSIDE
from htagraph.readers.defects import Defect
from htagraph.readers.kineto.compiled.scanner import TEXT_IDS
from htagraph.readers.kineto.event_fields import COLUMNS, Read
from htagraph.readers.kineto.worker import ROW_FIELDS, Id, Part, Texts, added
from htagraph.readers.repair_log import merge_counts, new_counts

_Any = TypeVar("_Any", str, tuple[Id, Id])


@dataclass
class Columns:
    """All events of a file, in file order and with the file's own times."""

    rows: dict[str, npt.NDArray[Any]]  # By name of `ROW_FIELDS`
    flows: I64  # Of shape (5, n). ts, id, lane, phase, category.
    sparse: dict[str, tuple[I64, npt.NDArray[Any]]]
    symbols: list[str]
    lanes: list[tuple[Id, Id]]
    lists: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)  # By category, or reason
    # Of all events by category, skipped or not
    n_bytes: dict[str, int] = field(default_factory=dict)

    def known(self) -> tuple[list[str], list[tuple[Id, Id]], list[str]]:
        """As of `Texts`."""
        return self.symbols, self.lanes, self.lists


_MOST_GROWTH = 64
"""Times as much room that an array gets at once (chosen): a share of little says little."""


class _Growing:
    """Values to which others are added; room that is not used is no memory yet."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._array: npt.NDArray[Any] = np.empty(1 << 10, dtype=dtype)
        self._n = 0

    def append(self, values: npt.NDArray[Any], share: float, more: int = 0) -> None:
        """Add values plus `more`; `share` is how much of all there will be that is with them."""
        n, room = self._n + len(values), len(self._array)
        if n > room:
            expected = min(int(1.03 * n / share), _MOST_GROWTH * room)
            self._array.resize(max(n, expected, room * 5 // 4), refcheck=False)
        self._array[self._n : n] = values
        if more:
            self._array[self._n : n] += more
        self._n = n

    def take(self) -> npt.NDArray[Any]:
        """The array; the last call."""
        self._array.resize(self._n, refcheck=False)
        return self._array


_NONSENSE = [Defect.TORN, Defect.NO_PHASE, Defect.NO_TIMESTAMP]
"""Defects of bytes that are no event."""


class Assembly:
    """Takes parts in file order, and merges them into columns at the end.

    `share`: how much of the file is read, above 0 and up to 1: columns get room for the rest.
    """

    def __init__(self, share: Callable[[], float] = lambda: 1.0) -> None:
        self._share = share
        self.metas: list[bytes] = []
        self.repairs = new_counts(Defect)
        self.has_events = False  #: whether any was read, or skipped on purpose
        self.nonsense = -1  #: offset of the first bytes that are no event
        self._rows = {name: _Growing(dtype) for name, dtype in ROW_FIELDS.items()}
        self._flows = [_Growing(np.int64) for _ in range(5)]
        self._sparse = [(_Growing(np.int32), _Growing(column.dtype)) for column in COLUMNS]
        self._n_rows, self._n_flows, self._n_outside = 0, 0, 0
        # Of each part: the worker whose codes it uses, its first row, and its first flow point
        self._spans: list[tuple[int, int, int]] = []
        self._workers: list[Texts] = []
        self._skipped: dict[int, I64] = {}
        self._n_bytes: dict[int, I64] = {}
        self._phases = np.zeros(256, dtype=np.int64)

    def add(self, part: Part) -> None:
        """Append a part."""
        number = next((k for k, one in enumerate(self._workers) if one is part.worker), None)
        if number is None:
            number = len(self._workers)
            self._workers.append(part.worker)
        self._spans.append((number, self._n_rows, self._n_flows))
        share = self._share()
        for name, arrays in part.rows.items():
            for array in arrays:
                self._rows[name].append(array, share)
        for flows in part.flows:
            for column, values in zip(self._flows, flows, strict=True):
                column.append(values, share)
            self._n_flows += flows.shape[1]
        for (rows, values), some in zip(self._sparse, part.sparse, strict=True):
            for some_rows, some_values in some:
                rows.append(some_rows, share, self._n_rows)
                values.append(some_values, share)
        self._n_rows += part.n_rows
        self.metas += part.metas
        merge_counts(self.repairs, part.repairs)
        n_skipped = int(part.skipped.sum() + part.phases.sum())
        n_read = part.n_rows + part.n_outside + len(part.metas) + len(part.flows)
        self.has_events |= bool(n_read + n_skipped)
        if self.nonsense < 0 and part.repairs[_NONSENSE, 0].any():
            self.nonsense = int(part.repairs[_NONSENSE, 1].min())
        self._n_outside += part.n_outside
        self._phases += part.phases
        none = np.zeros(0, dtype=np.int64)
        for sums, more in ((self._skipped, part.skipped), (self._n_bytes, part.n_bytes)):
            sums[number] = added(sums.get(number, none), more)

    def columns(self) -> Columns:
        """The columns of all parts; uses up the assembly."""
        texts, of_lanes, of_lists = zip(
            ([""], [], []), *(worker.known() for worker in self._workers), strict=True
        )
        symbols, (_, *symbol_maps) = _numbered(texts)
        lanes, (_, *lane_maps) = _numbered(of_lanes)
        lists, (_, *list_maps) = _numbered(of_lists)
        rows = {name: growing.take() for name, growing in self._rows.items()}
        flows = [growing.take() for growing in self._flows]
        row_spans = [(worker, row) for worker, row, _ in self._spans]
        for name, maps in (("name", symbol_maps), ("category", symbol_maps), ("lane", lane_maps)):
            _renumber(rows[name], row_spans, maps)
        flow_spans = [(worker, flow) for worker, _, flow in self._spans]
        _renumber(flows[2], flow_spans, lane_maps)
        _renumber(flows[4], flow_spans, symbol_maps)
        _renumber_ids(flows[1], flow_spans, symbol_maps)
        sparse = self._sparse_columns(row_spans, {Read.TEXT: symbol_maps, Read.LIST: list_maps})
        skipped = _by_category(self._skipped, symbols, symbol_maps)
        skipped |= {
            f"phase {chr(phase)!r}": int(self._phases[phase])
            for phase in np.flatnonzero(self._phases).tolist()
        }
        skipped |= {OUTSIDE: self._n_outside} if self._n_outside else {}
        n_bytes = _by_category(self._n_bytes, symbols, symbol_maps)
        return Columns(rows, np.array(flows), sparse, symbols, lanes, lists, skipped, n_bytes)

    def _sparse_columns(
        self, spans: list[tuple[int, int]], maps: Mapping[Read, Sequence[I32]]
    ) -> dict[str, tuple[I64, npt.NDArray[Any]]]:
        """The sparse columns that have a value; columns of equal rows share one array of rows."""
        columns: dict[str, tuple[I64, npt.NDArray[Any]]] = {}
        shared: list[I64] = []
        for column, (growing_rows, growing_values) in zip(COLUMNS, self._sparse, strict=True):
            rows, values = growing_rows.take(), growing_values.take()
            if not len(rows):
                continue
            if column.read in maps:
                _renumber(values, _spans_of(rows, spans), maps[column.read])
            if column.name == "async_id":
                _renumber_ids(values, _spans_of(rows, spans), maps[Read.TEXT])
            columns[column.name] = _shared(rows, shared), values
        return columns


def _by_category(
    sums: Mapping[int, I64], symbols: list[str], symbol_maps: Sequence[I32]
) -> dict[str, int]:
    """Sums of all workers by category name, from sums of each by symbol."""
    total = np.zeros(len(symbols), dtype=np.int64)
    for worker, of_worker in sums.items():
        known = np.flatnonzero(of_worker)
        np.add.at(total, symbol_maps[worker][known], of_worker[known])
    return {
        symbols[code] or "no category": int(total[code]) for code in np.flatnonzero(total).tolist()
    }


def _numbered(known: Iterable[Sequence[_Any]]) -> tuple[list[_Any], list[I32]]:
    """What several have, each once, and the number there of all that each has."""
    codes: dict[_Any, int] = {}
    maps = [
        np.array([codes.setdefault(one, len(codes)) for one in some], np.int32) for some in known
    ]
    return list(codes), maps


def _renumber(
    codes: npt.NDArray[Any], spans: Sequence[tuple[int, int]], maps: Sequence[I32]
) -> None:
    """Replace the codes of workers by common ones, in place; spans are adjacent."""
    ends = [start for _, start in spans[1:]] + [len(codes)]
    for (worker, start), end in zip(spans, ends, strict=False):
        codes[start:end] = maps[worker][codes[start:end]]


def _renumber_ids(ids: I64, spans: Sequence[tuple[int, int]], maps: Sequence[I32]) -> None:
    """Likewise for ids that are codes of texts."""
    texts = np.flatnonzero(ids >= TEXT_IDS)
    codes = ids[texts] - TEXT_IDS
    _renumber(codes, _spans_of(texts, spans), maps)
    ids[texts] = codes + TEXT_IDS


def _spans_of(rows: npt.NDArray[Any], spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where the spans begin in a selection of all rows."""
    starts = np.searchsorted(rows, [row for _, row in spans]).tolist()
    return [(worker, start) for (worker, _), start in zip(spans, starts, strict=True)]


def _shared(rows: I32, known: list[I64]) -> I64:
    """A known array with equal content, else a new one."""
    for other in known:
        if np.array_equal(rows, other):
            return other
    known.append(rows.astype(np.int64))
    return known[-1]
