"""An SQLite export of Nsight Systems: opened read-only, its tables as columns."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from htagraph.errors import TraceFormatError
from htagraph.readers.not_found import not_found

if TYPE_CHECKING:
    from sqlite3 import Connection

__all__ = ["ABSENT", "TIDS", "Export", "Process", "opened"]

I64 = npt.NDArray[np.int64]

ABSENT = np.iinfo(np.int64).min
"""Value of a cell that is NULL, or no number, or of a column that the file does not have."""

_TID_BITS = 24
TIDS = 1 << _TID_BITS
"""Threads of a process have this many numbers."""

_GZIP_MAGIC = b"\x1f\x8b"
_REPORTS_HINT = "is it `nsys export --type sqlite` of a report?"


@dataclass(frozen=True)
class Process:
    """A process as an export numbers it.

    Ids are, from their highest bits: hypervisor and machine (16), process (24), thread (24).

    Parameters
    ----------
    global_id : int
    """

    global_id: int

    @classmethod
    def of(cls, global_tid: int) -> Process:
        """The process of a thread.

        Examples
        --------
        >>> Process.of(281477392629904).pid
        144
        """
        return cls(global_tid & ~(TIDS - 1))

    @property
    def pid(self) -> int:
        """Its number in the operating system."""
        return (self.global_id >> _TID_BITS) & (TIDS - 1)


@dataclass(frozen=True)
class Export:
    """An open export.

    Parameters
    ----------
    connection : sqlite3.Connection
    path : Path or None
        The file on disk; None for content in memory.
    """

    connection: Connection
    path: Path | None

    @cached_property
    def columns(self) -> Mapping[str, frozenset[str]]:
        """Names of the columns of each table."""
        tables = self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            str(table): frozenset(
                str(row[0]) for row in self.rows("SELECT name FROM pragma_table_info(?)", (table,))
            )
            for (table,) in tables
        }

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is a table with these columns."""
        return table in self.columns and self.columns[table].issuperset(columns)

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of a small answer."""
        return self.connection.execute(sql, values).fetchall()

    def of_process(self, table: str, process: Process | None) -> str:
        """Condition of the rows of a process; what names no process belongs to all."""
        if process is None:
            return "1"
        if "globalPid" in self.columns[table]:
            return f"globalPid = {process.global_id}"
        if "globalTid" in self.columns[table]:
            return f"globalTid BETWEEN {process.global_id} AND {process.global_id + TIDS - 1}"
        return "1"

    def count(self, table: str, where: str = "1") -> int:
        """Number of rows of a table."""
        found = self.rows(f"SELECT count(*) FROM {table} WHERE {where}")  # noqa: S608 - own names
        return int(found[0][0])

    def integers(self, table: str, wanted: tuple[str, ...], where: str = "1") -> dict[str, I64]:
        """Columns of integers, in the order of the table.

        Parameters
        ----------
        table : str
            One that there is.
        wanted : tuple of str
            Names of columns; those that the table does not have are `ABSENT` throughout.
        where : str

        Returns
        -------
        dict of str to ndarray of int64
        """
        there = [name for name in wanted if name in self.columns[table]]
        if not there:
            return {name: np.full(self.count(table, where), ABSENT) for name in wanted}
        values = self._values(table, there, where)
        absent = np.full(values.shape[1] if len(there) != len(wanted) else 0, ABSENT)
        found = dict(zip(there, values, strict=True))
        return {name: found.get(name, absent) for name in wanted}

    def _values(self, table: str, names: list[str], where: str) -> I64:
        """Columns that there are, one a row of the answer."""
        try:
            return self._selected([f"ifnull({name}, {ABSENT})" for name in names], table, where)
        except (TypeError, ValueError, OverflowError):  # texts among the numbers
            checked = "CASE typeof({0}) WHEN 'integer' THEN {0} ELSE {1} END"
            names = [checked.format(name, ABSENT) for name in names]
            return self._selected(names, table, where)

    def _selected(self, expressions: list[str], table: str, where: str) -> I64:
        sql = f"SELECT {', '.join(expressions)} FROM {table} WHERE {where} ORDER BY rowid"  # noqa: S608
        cells = itertools.chain.from_iterable(self.connection.execute(sql))
        flat = np.fromiter(cells, dtype=np.int64)
        return np.ascontiguousarray(flat.reshape(-1, len(expressions)).T)


@contextmanager
def opened(source: str | Path | bytes) -> Iterator[Export]:
    """An export, open while the context lasts.

    Parameters
    ----------
    source : str, Path or bytes
        The file, plain or gzip, or its content.

    Raises
    ------
    TraceFormatError
        If it is no sound database, no export, or still written to; also while the context lasts.
    """
    import sqlite3  # noqa: PLC0415 - not for who reads other traces

    path = None if isinstance(source, bytes) else Path(source)
    connection = None
    try:
        connection = _connected(source, path)
        connection.text_factory = _text
        export = Export(connection, path)
        if not export.has("StringIds", "id", "value"):
            raise TraceFormatError(
                "this SQLite file is no export of Nsight Systems (no table `StringIds`).",
                path=path,
                hint=_REPORTS_HINT,
            )
        yield export
    except sqlite3.Error as exc:
        raise TraceFormatError(
            f"SQLite cannot read this export: {exc}.",
            path=path,
            hint="the file is cut off or damaged; export the report again.",
        ) from exc
    finally:
        if connection is not None:
            connection.close()


def _connected(source: str | Path | bytes, path: Path | None) -> Connection:
    """A connection that changes nothing, whether or not the folder can be written."""
    import sqlite3  # noqa: PLC0415

    if path is None:
        return _in_memory(source if isinstance(source, bytes) else b"", path)
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == _GZIP_MAGIC
        if is_packed:
            return _in_memory(path.read_bytes(), path)
    except FileNotFoundError as exc:
        raise not_found(path) from exc
    except OSError as exc:
        raise TraceFormatError(f"cannot be read: {exc.strerror}.", path=path) from exc
    for ending in ("-journal", "-wal"):
        beside = path.with_name(path.name + ending)
        if beside.is_file() and beside.stat().st_size:
            raise TraceFormatError(
                f"somebody writes to this file, or was cut off ({beside.name} is there).",
                path=path,
                hint="wait until `nsys export` is done, or export the report again.",
            )
    return sqlite3.connect(
        f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
    )


def _in_memory(content: bytes, path: Path | None) -> Connection:
    import sqlite3  # noqa: PLC0415

    if content.startswith(_GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as exc:
            raise TraceFormatError(
                f"the gzip data is damaged: {exc}.", path=path, hint="copy the file again."
            ) from exc
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        connection.deserialize(content)
    except OverflowError as exc:
        raise TraceFormatError("too large to be read from memory.", path=path) from exc
    return connection


def _text(raw: bytes) -> str:
    """A text that may not be UTF-8."""
    return raw.decode("utf-8", "replace")
