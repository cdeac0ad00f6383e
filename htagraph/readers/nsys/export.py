"""An SQLite export of Nsight Systems: opened read-only, its tables as columns."""

from __future__ import annotations

import itertools
import mmap
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.errors import TraceFormatError
from htagraph.readers.content import content_of
from htagraph.readers.kineto.byte_stream import GZIP_MAGIC
from htagraph.readers.nsys.table_pages import Wanted, read_table
from htagraph.readers.other_formats import FROM_ROCM
from htagraph.readers.storage import not_found

__all__ = ["ABSENT", "NUMBERED_TEXTS", "TIDS", "Export", "Process", "opened"]

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

ABSENT = np.iinfo(np.int64).min
"""Value of a cell that is NULL or no number, or of a column that the file lacks."""

_TID_BITS = 24
TIDS = 1 << _TID_BITS
"""Number of thread ids per process."""

_OWNERS = {"globalPid": 1, "globalTid": TIDS}
"""Columns that say whose a row is, and how many of their ids a process has."""

_REALS = re.compile("REAL|FLOA|DOUB", re.IGNORECASE)
"""Types of columns whose integers SQLite makes reals."""

_REPORTS_HINT = "is it `nsys export --type sqlite` of a report?"


@dataclass(frozen=True)
class Process:
    """A process by its id in an export.

    From the highest bits: hypervisor and machine (16), process (24), thread (24).
    """

    global_id: int

    @classmethod
    def of(cls, global_tid: int) -> Process:
        """The process of a thread."""
        return cls(global_tid & ~(TIDS - 1))

    @property
    def pid(self) -> int:
        """Its process id."""
        return (self.global_id >> _TID_BITS) & (TIDS - 1)


NUMBERED_TEXTS = """
LEFT JOIN (SELECT id AS numbered_id, min(value) AS numbered_text FROM StringIds GROUP BY id)
ON numbered_id ="""
"""Join, to be followed by a column of text ids; one text per id, also in a damaged table."""


@dataclass(frozen=True)
class Export:
    """An open export.

    Parameters
    ----------
    path : Path or None
        None for content in memory.
    content : bytes or None
        If it does not lie in a file as it is.
    """

    connection: Connection
    path: Path | None
    content: bytes | None

    def _bytes(self) -> U8:
        """Its bytes; those of a file take memory only as long as they are needed."""
        if self.content is not None or self.path is None:
            return np.frombuffer(self.content or b"", dtype=np.uint8)
        with self.path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, dtype=np.uint8)

    @cached_property
    def columns(self) -> Mapping[str, frozenset[str]]:
        """Column names by table; virtual tables, which run code, are left out."""
        tables = self.rows(
            "SELECT name FROM sqlite_master WHERE type LIKE 'table' AND sql LIKE 'CREATE TABLE%'"
        )
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
        """All rows of a small result."""
        return self.connection.execute(sql, values).fetchall()

    def of_process(self, table: str, process: Process) -> str:
        """Condition for the rows of a process; a table without process ids belongs to all."""
        for column, n_ids in _OWNERS.items():
            if column in self.columns[table]:
                first = process.global_id
                return f"{column} BETWEEN {first} AND {first + n_ids - 1}"
        return "1"

    def count(self, table: str, where: str = "1") -> int:
        """Number of rows of a table."""
        quoted = table.replace('"', '""')  # a damaged file may have any name
        found = self.rows(f'SELECT count(*) FROM "{quoted}" WHERE {where}')  # noqa: S608
        return int(found[0][0])

    def integers(
        self, table: str, wanted: tuple[str, ...], process: Process | None = None
    ) -> dict[str, I64]:
        """Columns of integers, in table order.

        Parameters
        ----------
        table : str
            An existing one.
        wanted : tuple of str
            Names of columns; those that the table lacks are `ABSENT` throughout.
        process : Process, optional
            Only its rows.
        """
        there = [name for name in wanted if name in self.columns[table]]
        where = "1" if process is None else self.of_process(table, process)
        if not there:
            return {name: np.full(self.count(table, where), ABSENT) for name in wanted}
        found = self._pages(table, there, process)
        values = self._values(table, there, where) if found is None else found[0]
        absent = np.full(values.shape[1] if len(there) != len(wanted) else 0, ABSENT)
        columns = dict(zip(there, values, strict=True))
        return {name: columns.get(name, absent) for name in wanted}

    def texts(self, table: str, column: str, process: Process) -> tuple[U8, I64]:
        """A column of texts, in table order: one after the other, and how many bytes each has.

        NULL has `ABSENT` bytes.
        """
        found = self._pages(table, [column], process, text=column)
        if found is not None:
            return found[1], found[0][0]
        cells = self.rows(
            f"SELECT CAST(CAST({column} AS TEXT) AS BLOB) FROM {table} "  # noqa: S608
            f"WHERE {self.of_process(table, process)} ORDER BY rowid"
        )
        n_bytes = [ABSENT if text is None else len(text) for (text,) in cells]
        content = b"".join(text or b"" for (text,) in cells)
        return np.frombuffer(content, dtype=np.uint8), np.array(n_bytes, dtype=np.int64)

    def _values(self, table: str, names: list[str], where: str) -> I64:
        """Existing columns, one per row of the result."""
        cell = "CASE WHEN typeof({0}) IN ('integer', 'real') THEN CAST({0} AS INTEGER) ELSE {1} END"
        cells = ", ".join(cell.format(name, ABSENT) for name in names)
        rows = self.connection.execute(f"SELECT {cells} FROM {table} WHERE {where} ORDER BY rowid")  # noqa: S608
        flat = np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int64)
        return np.ascontiguousarray(flat.reshape(-1, len(names)).T)

    def _pages(
        self, table: str, names: list[str], process: Process | None, text: str = ""
    ) -> tuple[I64, U8] | None:
        """Columns from the pages of the file, and texts; None if SQLite is to be asked."""
        roots = self.rows("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,))
        columns = self.rows("SELECT name, type, pk, hidden FROM pragma_table_xinfo(?)", (table,))
        places = {name: place for place, (name, *_) in enumerate(columns)}
        owner = next((name for name in _OWNERS if name in places), None) if process else None
        read = [*names, *([owner] if owner and owner not in names else [])]
        is_plain = not any(is_key or hidden for *_, is_key, hidden in columns)
        if (
            len(roots) != 1
            or not is_plain
            or any(_REALS.search(columns[places[name]][1]) for name in read)
        ):
            return None
        row = np.full(1 + max(places[name] for name in read), -1)
        row[[places[name] for name in read]] = np.arange(len(read))
        first = process.global_id if process else 0
        found = read_table(
            self._bytes(),
            Wanted(
                root=int(roots[0][0]),
                row=row,
                text=places.get(text, -1),
                owner=read.index(owner) if owner else -1,
                low=first,
                high=first + _OWNERS[owner] - 1 if owner else 0,
                absent=ABSENT,
            ),
        )
        return None if found is None else (found[0][: len(names)], found[1])


@contextmanager
def opened(source: str | Path | bytes) -> Iterator[Export]:
    """An open export: a file, plain or gzip, or its content.

    SQLite's errors become a TraceFormatError, also those of queries inside the context.
    """
    path = None if isinstance(source, bytes) else Path(source)
    with ExitStack() as stack:
        try:
            content = content_of(source) if isinstance(source, bytes) else _checked(Path(source))
            if path is not None and content is None:
                uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
                connection = sqlite3.connect(uri, uri=True)
            else:
                connection = _in_memory(content or b"", path)
            stack.callback(connection.close)
            connection.text_factory = _text
            export = Export(connection, path, content)
            if any(table.startswith("rocpd_") for table in export.columns):
                raise TraceFormatError(
                    "this is a database of ROCm, which htagraph does not read.",
                    path=path,
                    hint=FROM_ROCM,
                )
            if not export.has("StringIds", "id", "value"):
                raise TraceFormatError(
                    "this SQLite file is not an Nsight Systems export (no table `StringIds`).",
                    path=path,
                    hint=_REPORTS_HINT,
                )
            yield export
        except (sqlite3.Error, UnicodeDecodeError) as exc:  # messages quote the file
            raise TraceFormatError(
                f"SQLite cannot read this export: {exc}.",
                path=path,
                hint="the file is truncated or damaged; export the report again.",
            ) from exc


def _checked(path: Path) -> bytes | None:
    """The content of a gzip file; None for a file that SQLite can open."""
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == GZIP_MAGIC
    except FileNotFoundError as exc:
        raise not_found(path) from exc
    except OSError as exc:
        raise TraceFormatError(f"cannot be read: {exc.strerror}.", path=path) from exc
    if is_packed:
        return content_of(path)
    for ending in ("-journal", "-wal"):
        beside = path.with_name(path.name + ending)
        if beside.is_file() and beside.stat().st_size:
            raise TraceFormatError(
                f"this file is still being written, or nsys was killed ({beside.name} exists).",
                path=path,
                hint="wait until `nsys export` is done, or export the report again.",
            )
    return None


def _in_memory(content: bytes, path: Path | None) -> Connection:
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(content)
    except OverflowError as exc:
        raise TraceFormatError("too large to read into memory.", path=path) from exc
    return connection


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
