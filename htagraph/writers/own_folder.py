"""OwnFolder: a temporary folder of a process; folders of killed processes are removed."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path

from htagraph.errors import OutputError

if sys.platform != "win32":  # folders of killed processes stay there
    import fcntl

_PREFIX = "htagraph-"
_IN_USE = ".in-use"
"""A file that the process locks while it uses the folder."""


class OwnFolder:
    """A temporary folder that is removed when nothing refers to it any more.

    Parameters
    ----------
    kind : str, default=""
        Prefix of its name.
    """

    def __init__(self, kind: str = "") -> None:
        try:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX + kind))
        except OSError as exc:
            raise OutputError(
                f"cannot create a temporary folder: {exc.strerror}.",
                path=Path(exc.filename or "."),
                hint="set TMPDIR to a writable folder.",
            ) from exc
        weakref.finalize(self, _remove, self.path, _mark(self.path))
        _remove_left(self.path.parent)


def _mark(folder: Path) -> int:
    """Open and lock the file that marks a folder as in use; -1 if that is impossible."""
    mark = -1
    with suppress(OSError):  # a file system that is full, or without locks
        part = folder / f"{_IN_USE}.part"
        mark = os.open(part, os.O_CREAT | os.O_WRONLY)
        if sys.platform != "win32":
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.rename(folder / _IN_USE)  # invisible to others until it is locked
    return mark


def _remove(folder: Path, mark: int) -> None:
    if mark >= 0:
        os.close(mark)
    shutil.rmtree(folder, ignore_errors=True)


@cache
def _remove_left(shared: Path) -> None:
    """Remove folders of this user whose processes have ended; once per process."""
    if sys.platform == "win32":
        return
    for mark in shared.glob(f"{_PREFIX}*/{_IN_USE}"):
        with suppress(OSError):
            if mark.stat().st_uid == os.getuid():
                with mark.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(mark.parent, ignore_errors=True)
