"""Where machine code lies between processes, and who makes it where several want it at once."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

__all__ = ["SHIPPED", "alone", "found", "keep", "places"]

SHIPPED = Path(__file__).parent / "bitcode"
"""The bitcode that a wheel brings along."""

_DIGEST = 32


def places() -> list[Path]:
    """Folders to look in for machine code, and to try to keep it in, one after the other.

    That of ``HTAGRAPH_CACHE_DIR`` or ``NUMBA_CACHE_DIR`` where one is set, beside the package, the
    user's cache, and a folder for temporary files that is the user's own.
    """
    asked = os.environ.get("HTAGRAPH_CACHE_DIR") or os.environ.get("NUMBA_CACHE_DIR")
    found = [Path(asked) / "htagraph"] if asked else []
    found.append(Path(__file__).parent / "__pycache__")
    with suppress(RuntimeError):  # no home
        found.append(_user_cache() / "htagraph")
    own = Path(tempfile.gettempdir()) / f"htagraph-{_user()}"
    return [*found, own] if _is_own(own) else found


def _user_cache() -> Path:
    """The folder for caches of this user."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _user() -> int:
    """The number of this user; all are one where there are no numbers."""
    return os.getuid() if hasattr(os, "getuid") else 0


def _is_own(folder: Path) -> bool:
    """Whether nobody else can write in a folder for temporary files, made unless it is there."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        state = folder.lstat()
    except OSError:
        return False
    is_private = not state.st_mode & 0o077 or sys.platform == "win32"
    return folder.is_dir() and not folder.is_symlink() and state.st_uid == _user() and is_private


def found(name: str) -> bytes | None:
    """Machine code by the name of its file, None where it is kept nowhere, or damaged."""
    for place in places():
        with suppress(OSError):
            content = (place / name).read_bytes()
            if sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
                return content[_DIGEST:]
    return None


def keep(name: str, code: bytes) -> Path | None:
    """Keep machine code in the first place that takes it, and return that; None where none does."""
    content = sha256(code).digest() + code
    for place in places():
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            handle, part = tempfile.mkstemp(dir=place)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                Path(part).replace(place / name)
            except OSError:
                Path(part).unlink(missing_ok=True)
                raise
            return place
    return None


@contextmanager
def alone() -> Iterator[None]:
    """Until the end of the block, no other process that keeps its code in the same place works.

    Where nothing can be locked, all work at once.
    """
    try:
        import fcntl  # noqa: PLC0415 - not on Windows
    except ImportError:
        yield
        return
    for place in places():
        try:
            place.mkdir(parents=True, exist_ok=True)
            lock = (place / "lock").open("a")
        except OSError:
            continue
        with lock:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        return
    yield
