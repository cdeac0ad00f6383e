"""Traces from pipes (``-``, ``/dev/stdin``, ``<(zcat FILE)``): kept in files, to be read twice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from htagraph.errors import TraceError
from htagraph.writers.own_folder import OwnFolder

_folders: list[OwnFolder] = []
"""Copies of pipes, until the process ends."""


def from_pipe(path: Path) -> Path:
    """Temporary copy of what a pipe delivers; other paths as they are."""
    is_stdin = str(path) in ("-", "/dev/stdin")
    if not is_stdin and not path.is_fifo():
        return path
    name = "stdin" if is_stdin else path.name
    place = "standard input" if is_stdin else path
    hint = "write the trace into it: zcat FILE | htagraph … -"
    with os.fdopen(os.dup(0), "rb") if is_stdin else path.open("rb") as pipe:
        if pipe.isatty():
            raise TraceError("is a terminal, not a trace.", path=place, hint=hint)
        _folders.append(OwnFolder("pipe-"))
        copy = _folders[-1].path / name
        with copy.open("wb") as file:
            shutil.copyfileobj(pipe, file)
    if not copy.stat().st_size:
        raise TraceError("nothing arrived.", path=place, hint=hint)
    return copy


def lasting(path: Path) -> Path:
    """Path that names a report: of a pipe's copy, the same the next time."""
    return Path(path.name) if any(folder.path == path.parent for folder in _folders) else path
