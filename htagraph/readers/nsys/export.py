"""An SQLite export of Nsight Systems: opened read-only, its tables as columns."""

from __future__ import annotations

import itertools
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from htagraph.errors import TraceFormatError
from htagraph.model.arrays import I64
from htagraph.readers.byte_stream import GZIP_MAGIC, content_of, first_bytes
from htagraph.readers.formats import FROM_ROCM
from htagraph.readers.storage import SQLITE, file_of, is_remote, not_found, url_of

if TYPE_CHECKING:
    from sqlite3 import Connection

ABSENT = np.iinfo(np.int64).min
"""Value of a cell that is NULL or no number, or of a column that the file lacks."""

TIDS = 1 << 24
"""Number of thread ids per process. Processes have ids of their own in an export: from the highest
bits, hypervisor and machine (16), process (24), and 0 where the ids of its threads have 24 more.
"""

_REPORTS_HINT = "is it `nsys export --type sqlite` of a report?"


def pid_of(process: int) -> int:
    """The id that the system gave a process, or the process of a thread."""
    return process // TIDS % TIDS


NUMBERED_TEXTS = """
LEFT JOIN (SELECT id AS numbered_id, min(value) AS numbered_text FROM StringIds GROUP BY id)
ON numbered_id ="""
"""Join, to be followed by a column of text ids; one text per id, also in a damaged table."""


@dataclass(frozen=True)
class Export:
    """An open export; its path is None for content in memory."""

    connection: Connection
    path: Path | None

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

    def of_process(self, table: str, process: int) -> str:
        """Condition for the rows of a process; a table without process ids belongs to all."""
        if "globalPid" in self.columns[table]:
            return f"globalPid = {process}"
        if "globalTid" in self.columns[table]:
            return f"globalTid BETWEEN {process} AND {process + TIDS - 1}"
        return "1"

    def count(self, table: str, where: str = "1") -> int:
        """Number of rows of a table."""
        quoted = table.replace('"', '""')  # a damaged file may have any name
        found = self.rows(f'SELECT count(*) FROM "{quoted}" WHERE {where}')  # noqa: S608
        return int(found[0][0])

    def integers(self, table: str, wanted: tuple[str, ...], where: str = "1") -> dict[str, I64]:
        """Columns of a table, in its order; those that it lacks are `ABSENT` throughout."""
        there = [name for name in wanted if name in self.columns[table]]
        if not there:
            return {name: np.full(self.count(table, where), ABSENT) for name in wanted}
        values = self._values(table, there, where)
        absent = np.full(values.shape[1] if len(there) != len(wanted) else 0, ABSENT)
        found = dict(zip(there, values, strict=True))
        return {name: found.get(name, absent) for name in wanted}

    def _values(self, table: str, names: list[str], where: str) -> I64:
        """Existing columns, one per row of the result."""
        cell = "CASE WHEN typeof({0}) IN ('integer', 'real') THEN CAST({0} AS INTEGER) ELSE {1} END"
        cells = ", ".join(cell.format(name, ABSENT) for name in names)
        rows = self.connection.execute(f"SELECT {cells} FROM {table} WHERE {where} ORDER BY rowid")  # noqa: S608
        flat = np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int64)
        return np.ascontiguousarray(flat.reshape(-1, len(names)).T)


@contextmanager
def opened(source: str | Path | bytes) -> Iterator[Export]:
    """An open export, plain or gzip; SQLite's errors inside the context are a TraceFormatError."""
    import sqlite3  # noqa: PLC0415  deferred: few need it

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
            export = Export(connection, path)
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
    import sqlite3  # noqa: PLC0415  deferred: few need it

    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(content)
    except OverflowError as exc:
        raise TraceFormatError("too large to read into memory.", path=path) from exc
    return connection


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


_REPORT_SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm")
_LAST_WORDS = 300
"""Characters of nsys' output that an error quotes (chosen)."""


def is_nsys(source: str | Path | bytes) -> bool:
    """Whether a source is any SQLite file, or a report that is not exported yet."""
    if not isinstance(source, bytes):
        source = file_of(Path(source))
        if is_report(source):
            return True
    return first_bytes(source, 1 << 12).startswith(SQLITE)


def is_report(path: Path) -> bool:
    """Whether a file is a report, by its name."""
    return path.name.endswith(_REPORT_SUFFIXES)


def export_of(path: Path) -> Path:
    """Where the export of a report is written: next to it."""
    return path.with_suffix(".sqlite")


def _export_command(path: Path) -> list[str]:
    return ["nsys", "export", "--type", "sqlite", "--output", str(export_of(path)), str(path)]


def refuse_remote(path: Path) -> None:
    """Raise if a file is remote: SQLite only reads local files."""
    if is_remote(path):
        raise TraceFormatError(
            "an SQLite export must be on a local disk.",
            path=url_of(path),
            hint="copy it to this machine.",
        )


def refuse_report(path: Path) -> None:
    """Raise if a file is a report: its format is not public, but `nsys` can export it."""
    if not is_report(path):
        return
    if not path.exists():
        raise not_found(path)
    here = "nsys is on this machine" if shutil.which("nsys") else "where nsys is installed"
    raise TraceFormatError(
        "only nsys can read reports of Nsight Systems; htagraph reads its SQLite exports.",
        path=path,
        hint=f"{here}: `{shlex.join(_export_command(path))}`",
    )


def export_nsys(path: str | Path) -> Path:
    """Export a report as SQLite with the `nsys` of this machine; the file is next to the report."""
    import subprocess  # noqa: PLC0415

    path = Path(path)
    if not path.exists():
        raise not_found(path)
    command = _export_command(path)
    program = shutil.which("nsys")
    if program is None:
        raise TraceFormatError(
            "nsys is not on this machine.",
            path=path,
            hint=f"where it is: `{shlex.join(command)}`",
        )
    done = subprocess.run([program, *command[1:]], capture_output=True, check=False, text=True)  # noqa: S603
    export = export_of(path)
    if done.returncode or not export.is_file():
        output = (done.stderr or done.stdout).strip()[-_LAST_WORDS:]
        raise TraceFormatError(
            f"`{shlex.join(command)}` failed ({done.returncode}): {output}",
            path=path,
            hint="an nsys older than the one that recorded cannot read its reports.",
        )
    return export
