"""Names of an export: its numbered strings as symbols, its threads and streams as lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from htagraph.model.arrays import I32, I64
from htagraph.model.events import LaneTable
from htagraph.model.symbols import SymbolTable
from htagraph.readers.nsys.export import ABSENT, TIDS, Export, Process

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

    def table(self, export: Export, owner: Process) -> LaneTable:
        """The lanes with their names in the export.

        Parameters
        ----------
        owner : Process
            Whose work the streams run.
        """
        processes = named(export, "PROCESSES", "globalPid", "name")
        threads = named(export, "ThreadNames", "globalTid", "nameId")
        rows = [
            _stream(first, second, processes.get(owner.global_id, ""))
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
    process = Process.of(global_tid)
    name = processes.get(process.global_id, "")
    return process.pid, global_tid % TIDS, name, threads.get(global_tid, ""), 0, 0, "CPU"


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
