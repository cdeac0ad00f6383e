"""Reports of Nsight Systems (.nsys-rep): their SQLite export is read, or made on request."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path

import typer

from htagraph.readers.nsys.reports import export_nsys, export_of, is_report

_LOG = logging.getLogger("htagraph")


def readable(path: Path) -> Path:
    """Path to read: of a report, its export if there is one; other paths unchanged.

    On a terminal with `nsys` installed, the user is asked whether to export. Otherwise the reader
    of the report raises an error with the command to run.
    """
    if not is_report(path) or not path.is_file():
        return path
    export = export_of(path)
    if export.is_file() and export.stat().st_mtime >= path.stat().st_mtime:
        _LOG.warning("reading %s, the export of %s.", export.name, path.name)
        return export
    is_asked = shutil.which("nsys") and sys.stdin.isatty() and sys.stderr.isatty()
    question = f"{path.name} is not exported yet. Export it with nsys to {export.name}?"
    return export_nsys(path) if is_asked and typer.confirm(question, err=True) else path
