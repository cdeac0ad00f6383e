"""Entries of a cache folder: their names, and which may be used."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from htagraph.readers.rank_paths import file_of

_ENDS = 1 << 16
"""Bytes at each end of a file that identify it in a cache (chosen)."""


def entry_of(files: Iterable[Path], folder: Path, kind: str) -> Path:
    """The entry of some kind for files as they are now, made by this state of the package."""
    states = [(str(file.absolute()), _state(file_of(file))) for file in files]
    key = f"{_code()} {kind} {states}"
    return folder / f"{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.npz"


def is_trusted(kept: Path) -> bool:
    """Whether a cache entry is there, and is of this user, of root or of the folder's owner.

    A valid graph of another trace would change answers, and its name can be computed. So an entry
    that every user can write to is not trusted either. Windows does not tell.
    """
    try:
        state, folder = kept.stat(), kept.parent.stat()
    except OSError:
        return False
    if not stat.S_ISREG(state.st_mode) or not hasattr(os, "getuid"):
        return stat.S_ISREG(state.st_mode)
    is_own = state.st_uid in {0, os.getuid(), folder.st_uid}
    return is_own and not state.st_mode & stat.S_IWOTH


def owned(kept: Path) -> Path:
    """A new entry, made one that `is_trusted` whatever the umask."""
    with suppress(OSError):
        kept.chmod(stat.S_IMODE(kept.stat().st_mode) & ~stat.S_IWOTH)
    return kept


def _state(path: Path) -> tuple[object, ...]:
    """What changes with the content of a file; nothing if it is missing."""
    if not path.is_file():
        return ()
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            ends = sha256(file.read(_ENDS))
            file.seek(max(state.st_size - _ENDS, 0))
            ends.update(file.read(_ENDS))
    except OSError:
        return ()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, ends.hexdigest()


@lru_cache
def _code() -> str:
    """The state of the package: when its files were last changed."""
    states = ((file, file.stat()) for file in sorted(Path(__file__).parents[1].rglob("*.py")))
    known = [(file.name, state.st_size, state.st_mtime_ns) for file, state in states]
    return sha256(str(known).encode()).hexdigest()
