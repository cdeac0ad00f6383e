"""Which files are Nsight Systems', and what to do with a report that is not exported yet."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from htagraph.errors import TraceFormatError
from htagraph.readers.content import first_bytes
from htagraph.readers.rank_paths import SQLITE, file_of
from htagraph.readers.storage import is_remote, not_found, url_of

__all__ = ["export_nsys", "export_of", "is_nsys", "is_report", "refuse_remote", "refuse_report"]

_REPORT_SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm")
_LAST_WORDS = 300


def is_nsys(source: str | Path | bytes) -> bool:
    """Whether a source is Nsight Systems': any SQLite file, or a report that is not exported yet.

    Examples
    --------
    >>> is_nsys(b"SQLite format 3" + bytes(85)), is_nsys(b"{}"), is_nsys("run.nsys-rep")
    (True, False, True)
    """
    if not isinstance(source, bytes):
        source = file_of(Path(source))
        if is_report(source):
            return True
    return first_bytes(source, 1 << 12).startswith(SQLITE)


def is_report(path: Path) -> bool:
    """Whether a file is a report that has to be exported first, by its name."""
    return path.name.endswith(_REPORT_SUFFIXES)


def export_of(path: Path) -> Path:
    """Where the export of a report is written: beside it.

    Examples
    --------
    >>> export_of(Path("run.nsys-rep")).name
    'run.sqlite'
    """
    return path.with_suffix(".sqlite")


def _export_command(path: Path) -> list[str]:
    """The command that exports a report."""
    return ["nsys", "export", "--type", "sqlite", "--output", str(export_of(path)), str(path)]


def refuse_remote(path: Path) -> None:
    """Raise if a file lies in a store: SQLite reads files of this machine only.

    Raises
    ------
    TraceFormatError
        If it does.
    """
    if is_remote(path):
        raise TraceFormatError(
            "an SQLite export is read on a disk only.",
            path=url_of(path),
            hint="copy it to this machine.",
        )


def refuse_report(path: Path) -> None:
    """Raise if a file is a report: its format is not public, but `nsys` exports it.

    Raises
    ------
    TraceFormatError
        The hint is the command to run, and whether it can be run here.
    """
    if not is_report(path):
        return
    if not path.exists():
        raise not_found(path)
    here = "nsys is on this machine" if shutil.which("nsys") else "where nsys is installed"
    raise TraceFormatError(
        "reports of Nsight Systems can only be read by nsys; its SQLite export can be read here.",
        path=path,
        hint=f"{here}: `{shlex.join(_export_command(path))}`",
    )


def export_nsys(path: str | Path) -> Path:
    """Export a report as SQLite with the `nsys` of this machine.

    Parameters
    ----------
    path : str or Path
        A report (``.nsys-rep``).

    Returns
    -------
    Path
        The export, beside the report.

    Raises
    ------
    TraceFormatError
        If there is no `nsys`, or it fails.
    """
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
        said = (done.stderr or done.stdout).strip()[-_LAST_WORDS:]
        raise TraceFormatError(
            f"`{shlex.join(command)}` failed ({done.returncode}): {said}",
            path=path,
            hint="an nsys older than the one that recorded cannot read its reports.",
        )
    return export
