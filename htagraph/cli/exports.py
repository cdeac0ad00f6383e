"""Reports of Nsight Systems given to a command: their export is read, or made on request."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path

import typer

from htagraph.readers.nsys.reports import export_nsys, export_of, is_report

__all__ = ["readable"]

_LOG = logging.getLogger("htagraph")


def readable(path: Path) -> Path:
    """What is read where a path is given: of a report that is exported, its export.

    Where `nsys` is on this machine and somebody sits in front of it, the export is offered. A
    report that is not exported stays as it is: who reads it says what to do.
    """
    if not is_report(path) or not path.is_file():
        return path
    export = export_of(path)
    if export.is_file() and export.stat().st_mtime >= path.stat().st_mtime:
        _LOG.warning("%s is read through its export, %s.", path.name, export.name)
        return export
    is_asked = shutil.which("nsys") and sys.stdin.isatty() and sys.stderr.isatty()
    question = f"{path.name} is not exported yet. Export it with nsys to {export.name}?"
    return export_nsys(path) if is_asked and typer.confirm(question, err=True) else path
