"""The rows of tables as columns of one event table; names and lanes are numbered as they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.model.arrays import F64, I8, I32, I64, Bools
from htagraph.model.events import EVENT_DTYPES, EventTable, LaneTable, SparseColumn
from htagraph.model.kinds import EventKind
from htagraph.model.recording import DamageKind, Repair
from htagraph.model.symbols import SymbolTable
from htagraph.readers.nsys.export import ABSENT, TIDS, Export, pid_of

_BATCH = 500
"""Parameters of one query; SQLite before 3.32 allows 999."""

_ALL_FROM = 20_000
"""Strings from which reading the whole table is cheaper than looking each up (chosen)."""

_DEVICES_LAST = 5_000_000
"""Kineto's sort index of device rows."""


class Names:
    """Symbols of the events that are read, numbered as they appear."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._codes: dict[str, int] = {}
        self.n_unknown = 0

    def code(self, text: str) -> int:
        """Symbol of a text."""
        return self._codes.setdefault(text, len(self._codes))

    def of_ids(self, ids: I64, clean: Callable[[str], str] = str) -> I32:
        """Symbols of numbered strings, each changed by `clean`; unknown ones are counted."""
        numbers, distinct = pd.factorize(ids)
        texts = self._texts(distinct)
        is_unknown = np.array([number not in texts for number in distinct.tolist()], dtype=bool)
        self.n_unknown += int(np.count_nonzero(is_unknown[numbers]))
        codes = [self.code(clean(texts.get(number, "(no name)"))) for number in distinct.tolist()]
        return np.array(codes, dtype=np.int32)[numbers]

    def of_numbers(self, numbers: I64, name: Callable[[int], str]) -> I32:
        """Symbols of numbers by a naming function."""
        places, distinct = pd.factorize(numbers)
        codes = [self.code(name(number)) for number in distinct.tolist()]
        return np.array(codes, dtype=np.int32)[places]

    def _texts(self, ids: I64) -> Mapping[int, str]:
        """The strings with these numbers, if they exist."""
        if len(ids) > _ALL_FROM:
            return self._select("1", ())
        found: dict[int, str] = {}
        for begin in range(0, len(ids), _BATCH):
            some = ids[begin : begin + _BATCH].tolist()
            found.update(self._select(f"id IN ({', '.join('?' * len(some))})", tuple(some)))
        return found

    def _select(self, where: str, values: tuple[int, ...]) -> dict[int, str]:
        sql = f"SELECT id, value FROM StringIds WHERE {where}"  # noqa: S608 - placeholders
        return {
            number: text for number, text in self._export.rows(sql, values) if isinstance(text, str)
        }

    def table(self) -> SymbolTable:
        """All symbols."""
        return SymbolTable(tuple(self._codes))


class Lanes:
    """Threads and streams of the events that are read, numbered as they appear."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[bool, int, int], int] = {}

    def threads(self, global_tid: I64) -> I32:
        """Lane of each thread."""
        known = np.where(global_tid == ABSENT, 0, global_tid)
        places, distinct = pd.factorize(known)
        return self._numbered(False, distinct // TIDS, distinct)[places]

    def streams(self, device: I64, stream: I64) -> I32:
        """Lane of each stream."""
        (of_device, devices), (of_stream, streams) = pd.factorize(device), pd.factorize(stream)
        places, distinct = pd.factorize(of_device * (len(streams) + 1) + of_stream)
        first, second = np.divmod(distinct, len(streams) + 1)
        return self._numbered(True, devices[first], streams[second])[places]

    def _numbered(self, is_device: bool, first: I64, second: I64) -> I32:
        numbers = self._numbers
        return np.array(
            [
                numbers.setdefault((is_device, *pair), len(numbers))
                for pair in zip(first.tolist(), second.tolist(), strict=True)
            ],
            dtype=np.int32,
        )

    def table(self, export: Export, owner: int) -> LaneTable:
        """The lanes with their names in the export; streams run the work of `owner`."""
        processes = named(export, "PROCESSES", "globalPid", "name")
        threads = named(export, "ThreadNames", "globalTid", "nameId")
        rows = [
            _stream(first, second, processes.get(owner, ""))
            if is_device
            else _thread(second, processes, threads)
            for is_device, first, second in self._numbers
        ]
        return LaneTable(*zip(*rows, strict=True)) if rows else LaneTable()


def _stream(device: int, stream: int, process: str) -> tuple[int, int, str, str, int, int, str]:
    return (
        device,
        stream,
        process,
        f"stream {stream}",
        _DEVICES_LAST + device,
        stream,
        f"GPU {device}",
    )


def _thread(
    global_tid: int, processes: Mapping[int, str], threads: Mapping[int, str]
) -> tuple[int, int, str, str, int, int, str]:
    name = processes.get(global_tid - global_tid % TIDS, "")
    pid, tid = pid_of(global_tid), global_tid % TIDS
    return pid, tid, name, threads.get(global_tid, ""), 0, 0, "CPU"


def named(export: Export, table: str, key: str, name: str) -> dict[int, str]:
    """Names of processes or threads, if the export has them."""
    if not export.has(table, key, name):
        return {}
    sql = f"SELECT {key}, {name} FROM {table}"  # noqa: S608 - own names
    if name == "nameId":
        sql = f"SELECT {key}, value FROM {table} JOIN StringIds ON StringIds.id = {name}"  # noqa: S608
    return {number: str(text) for number, text in export.rows(sql) if isinstance(number, int)}


def enumeration(
    export: Export, table: str, default: Mapping[int, str], column: str = "label"
) -> dict[int, str]:
    """Names of an enumeration's values in this export, else today's."""
    if not export.has(table, "id", column):
        return dict(default)
    found = export.rows(f"SELECT id, {column} FROM {table}")  # noqa: S608 - own names
    return dict(default) | {number: str(label) for number, label in found}


Values = I64 | F64

_MAX_TIME_NS = 1 << 60
"""Times beyond it, 36 years, are not real: clocks of exports count from the boot or session."""


@dataclass(frozen=True)
class TableRows:
    """Rows of one table as columns of the event table, `ABSENT` where the export has no value."""

    # ts_ns, end_ns: on the clock of the export
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
    # `ABSENT`, or NaN, if a row has no value
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
    """What is known while an export is read: names, lanes, CUDA calls, repairs, skipped rows."""

    def __init__(self, export: Export) -> None:
        self.names = Names(export)
        self.lanes = Lanes()
        self.calls = _NO_ROWS
        self.repairs: dict[tuple[str, str, str], int] = {}  # By kind, detail and damage
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
        """A part whose events have a start and no end before it; open ones end at `end_ns`."""
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
    """The rows of all parts, which have sound times, one after the other."""

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
