"""The rows of one table as columns of the event table, and all of them as one event table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import F64, I8, I32, I64, Bools
from htagraph.model.damage import DamageKind
from htagraph.model.events import EVENT_DTYPES, EventTable, LaneTable, SparseColumn
from htagraph.model.kinds import EventKind
from htagraph.model.recording import Repair
from htagraph.readers.nsys.export import ABSENT, Export
from htagraph.readers.nsys.numbered_names import Lanes, Names

Values = I64 | F64

_MAX_TIME_NS = 1 << 60
"""Times beyond it, 36 years, are not real: clocks of exports count from the boot or session."""


@dataclass(frozen=True)
class TableRows:
    """Rows of one table as columns of the event table, `ABSENT` where the export has no value.

    Parameters
    ----------
    ts_ns, end_ns : ndarray of shape (n,), dtype=int64
        On the clock of the export.
    kind : EventKind or ndarray of shape (n,), dtype=int8
    name, category, lane : ndarray of shape (n,), dtype=int32, or int for all
    device, stream, correlation, external_id : ndarray of shape (n,), dtype=int64, or int for all
    sparse : mapping of str to ndarray of shape (n,)
        `ABSENT`, or NaN, if a row has no value.
    """

    ts_ns: I64
    end_ns: I64
    kind: EventKind | I8
    name: I32 | int
    category: I32 | int
    lane: I32 | int
    device: I64 | int = -1
    stream: I64 | int = -1
    correlation: I64 | int = -1
    external_id: I64 | int = -1
    sparse: Mapping[str, Values] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.ts_ns)

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column with a value for every row."""
        return np.broadcast_to(getattr(self, name), len(self))

    def take(self, rows: Bools) -> TableRows:
        """Some of the rows."""
        if rows.all():
            return self
        columns = {
            name: value[rows] if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
            if name != "sparse"
        }
        return TableRows(
            **columns, sparse={name: value[rows] for name, value in self.sparse.items()}
        )


_NO_ROWS = TableRows(np.empty(0, np.int64), np.empty(0, np.int64), EventKind.OTHER, 0, 0, 0)


class ReadState:
    """What is known while an export is read: names, lanes, CUDA calls, repairs, skipped rows.

    Attributes
    ----------
    repairs : dict of (str, str) to int
        How often, by kind and detail.
    """

    def __init__(self, export: Export) -> None:
        self.names = Names(export)
        self.lanes = Lanes()
        self.calls = _NO_ROWS
        self.repairs: dict[tuple[str, str, str], int] = {}
        self.skipped: dict[str, int] = {}

    def repair(self, kind: str, detail: str, n: int | np.integer, damage: str = "") -> None:
        """Count a repair, and say what it damages."""
        if n:
            key = kind, detail, damage
            self.repairs[key] = self.repairs.get(key, 0) + int(n)

    def skip(self, what: str, n: int | np.integer) -> None:
        """Count skipped rows."""
        if n:
            self.skipped[what] = self.skipped.get(what, 0) + int(n)

    def all_repairs(self) -> tuple[Repair, ...]:
        """Repairs as a recording has them; rows of tables have no byte offset."""
        self.repair("unknown name", "called (no name)", self.names.n_unknown)
        self.names.n_unknown = 0
        return tuple(
            Repair(kind, n, -1, detail, damage)
            for (kind, detail, damage), n in self.repairs.items()
        )

    def _with_start(self, ts_ns: I64) -> Bools:
        """Which rows have a time; the others are counted."""
        begins: Bools = (ts_ns > -_MAX_TIME_NS) & (ts_ns < _MAX_TIME_NS)
        self.repair("no start", "left out", np.count_nonzero(~begins), DamageKind.LOST_EVENTS)
        return begins

    def with_times(self, columns: dict[str, I64], time: str) -> dict[str, I64]:
        """Columns of the rows that have a time."""
        begins = self._with_start(columns[time])
        return {name: values[begins] for name, values in columns.items()}

    def with_sound_times(self, part: TableRows, end_ns: int) -> TableRows:
        """A part whose events have a start, and no end before it.

        Parameters
        ----------
        end_ns : int
            End of the capture, where open events end.
        """
        part = part.take(self._with_start(part.ts_ns))
        ends = part.end_ns.copy()
        open_ended = (ends <= -_MAX_TIME_NS) | (ends >= _MAX_TIME_NS)
        self.repair("no end", "ends with the capture", np.count_nonzero(open_ended))
        ends[open_ended] = end_ns
        backwards = ends < part.ts_ns
        n_backwards = np.count_nonzero(backwards)
        self.repair("ends before it starts", "given no length", n_backwards, DamageKind.LOST_TIMES)
        ends[backwards] = part.ts_ns[backwards]
        return TableRows(**{**vars(part), "end_ns": ends})


def last_end(parts: list[TableRows]) -> int:
    """The last time in any of the parts."""
    times = [part.end_ns[np.abs(part.end_ns) < _MAX_TIME_NS] for part in parts]
    times += [part.ts_ns[np.abs(part.ts_ns) < _MAX_TIME_NS] for part in parts]
    return max((int(some.max()) for some in times if len(some)), default=0)


def event_table(parts: list[TableRows], base_time_ns: int, state: ReadState) -> EventTable:
    """The rows of all parts, one after the other.

    Parameters
    ----------
    parts : list of TableRows
        With sound times.
    """

    def column(name: str, dtype: type[np.generic]) -> npt.NDArray[Any]:
        columns = [part.column(name).astype(dtype) for part in parts]
        return np.concatenate([np.empty(0, dtype=dtype), *columns])

    ts_ns = column("ts_ns", np.int64)
    columns: dict[str, Any] = {
        name: column(name, dtype)
        for name, dtype in EVENT_DTYPES.items()
        if name not in ("ts_ns", "dur_ns")
    }
    return EventTable(
        ts_ns=ts_ns + base_time_ns,
        dur_ns=column("end_ns", np.int64) - ts_ns,
        **columns,
        symbols=state.names.table(),
        lanes=LaneTable(),
        columns=_sparse_columns(parts),
    )


def _sparse_columns(parts: list[TableRows]) -> dict[str, SparseColumn]:
    """The columns that some rows have."""
    starts = np.cumsum([0, *(len(part) for part in parts)])
    found: dict[str, tuple[list[I64], list[Values]]] = {}
    for start, part in zip(starts[:-1].tolist(), parts, strict=True):
        for name, values in part.sparse.items():
            there = ~np.isnan(values) if values.dtype.kind == "f" else values != ABSENT
            rows = np.flatnonzero(there)
            if len(rows):
                where, what = found.setdefault(name, ([], []))
                where.append(rows + start)
                what.append(values[rows])
    return {
        name: SparseColumn(np.concatenate(where), np.concatenate(what))
        for name, (where, what) in found.items()
    }
