"""OwnFolder: a temporary folder of a process; those that killed ones left are removed."""

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

if sys.platform != "win32":  # there, what a killed process leaves stays
    import fcntl

__all__ = ["OwnFolder"]

_PREFIX = "htagraph-"
_IN_USE = ".in-use"
"""A file that is locked as long as the process lives whose folder it is."""


class OwnFolder:
    """A temporary folder that is removed when nothing refers to it any more.

    Parameters
    ----------
    kind : str, default=""
        Beginning of its name.

    Examples
    --------
    >>> folder = OwnFolder("example-")
    >>> folder.path.is_dir(), folder.path.name.startswith("htagraph-example-")
    (True, True)
    """

    def __init__(self, kind: str = "") -> None:
        try:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX + kind))
        except OSError as exc:
            raise OutputError(
                f"no temporary folder can be made: {exc.strerror}.",
                path=Path(exc.filename or "."),
                hint="set TMPDIR to a folder that can be written.",
            ) from exc
        weakref.finalize(self, _remove, self.path, _mark(self.path))
        _remove_left(self.path.parent)


def _mark(folder: Path) -> int:
    """Open and lock the file that says that a folder is in use; -1 where that cannot be."""
    mark = -1
    with suppress(OSError):  # a file system that is full, or knows no locks
        part = folder / f"{_IN_USE}.part"
        mark = os.open(part, os.O_CREAT | os.O_WRONLY)
        if sys.platform != "win32":
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.rename(folder / _IN_USE)  # nobody sees it before it is locked
    return mark


def _remove(folder: Path, mark: int) -> None:
    if mark >= 0:
        os.close(mark)
    shutil.rmtree(folder, ignore_errors=True)


@cache
def _remove_left(shared: Path) -> None:
    """Remove the folders of this user whose processes are no more; a process looks once."""
    if sys.platform == "win32":
        return
    for mark in shared.glob(f"{_PREFIX}*/{_IN_USE}"):
        with suppress(OSError):
            if mark.stat().st_uid == os.getuid():
                with mark.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(mark.parent, ignore_errors=True)
