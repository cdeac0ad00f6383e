"""What comes through a pipe: kept in a file while the command runs, as it is read again."""

from __future__ import annotations

import io
import os
import select
import stat
import time
from pathlib import Path
from typing import BinaryIO

from htagraph.errors import TraceError
from htagraph.writers.own_folder import OwnFolder

__all__ = ["from_pipe", "lasting"]

_PATIENCE_S = 10.0
"""How long a pipe may have no writer."""

_BLOCK = 1 << 20
_KIND = "pipe-"
_folders: list[OwnFolder] = []
"""Until the end of the process."""


def from_pipe(path: Path) -> Path:
    """A path, or where what comes through it was kept: ``-``, ``/dev/stdin``, a pipe.

    Returns
    -------
    Path
        Removed at the end of the process.

    Raises
    ------
    TraceError
        If nothing comes.
    """
    is_stdin = str(path) == "-"
    try:
        if not is_stdin and not _is_pipe(path.stat().st_mode):
            return path
    except (OSError, ValueError):
        return path
    name = "standard input" if is_stdin else str(path)
    hint = "write the trace into it: zcat FILE | htagraph … -"
    descriptor = os.dup(0) if is_stdin else os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        if pipe.isatty():
            raise TraceError("is a terminal, not a trace.", path=name, hint=hint)
        if stat.S_ISCHR(os.fstat(descriptor).st_mode) and pipe.read(1):  # it would never end
            raise TraceError("is a device, not a trace.", path=name, hint=hint)
        _folders.append(OwnFolder(_KIND))
        folder = _folders[-1].path
        kept = folder / ("stdin" if is_stdin else path.name)
        try:
            with kept.open("wb") as file:
                n_bytes = _copied(pipe, file, 0 if is_stdin else _PATIENCE_S)
        except OSError as exc:
            message = f"cannot be kept in {folder}: {exc.strerror}."
            raise TraceError(message, path=name, hint="set TMPDIR to a folder with room.") from exc
    if not n_bytes:
        raise TraceError("nothing came through it.", path=name, hint=hint)
    return kept


def lasting(path: Path) -> Path:
    """A path, or for what came through a pipe one that is the same the next time."""
    return Path(path.name) if any(folder.path == path.parent for folder in _folders) else path


def _is_pipe(mode: int) -> bool:
    """Whether it can be read once only; of devices, terminals and the like are meant."""
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


def _copied(pipe: io.RawIOBase, file: BinaryIO, patience_s: float) -> int:
    """Copy all that comes; return how many bytes. A pipe that nobody opened yet is waited for."""
    n_bytes, until = 0, time.monotonic() + patience_s
    while True:
        block = pipe.read(_BLOCK)
        if block:
            file.write(block)
            n_bytes += len(block)
        elif block is None:  # there is a writer, who has nothing yet
            select.select([pipe], [], [])
        elif (
            n_bytes
            or time.monotonic() > until
            or not stat.S_ISFIFO(os.fstat(pipe.fileno()).st_mode)
        ):
            return n_bytes
        else:
            time.sleep(0.05)
