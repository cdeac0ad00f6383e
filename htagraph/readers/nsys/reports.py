"""Recognises files of Nsight Systems, and exports reports."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from htagraph.errors import TraceFormatError
from htagraph.readers.content import first_bytes
from htagraph.readers.rank_paths import SQLITE, file_of
from htagraph.readers.storage import is_remote, not_found, url_of

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
