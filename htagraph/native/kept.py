"""Where bitcode and machine code lie between processes, and who makes it where several want it."""

from __future__ import annotations

import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["SHIPPED", "alone", "at_home", "found", "home", "keep", "places"]

SHIPPED = Path(__file__).parent / "bitcode"
"""The bitcode that a wheel brings along."""

_ONLY_PLACE = "HTAGRAPH_CACHE_DIR"
_PATIENCE_S = 120.0
_POLL_S = 0.02
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_DIGEST = 32
"""Bytes at the start of a file that say whether the rest is whole."""


def places() -> list[Path]:
    """Folders to look in for code, and to try to keep it in, one after the other.

    That of ``HTAGRAPH_CACHE_DIR`` alone, where it is set; else that of ``NUMBA_CACHE_DIR``, beside
    the package, the user's cache, and a folder of the user's own among the temporary files.
    """
    if only := os.environ.get(_ONLY_PLACE):
        return [Path(only)]
    asked = os.environ.get("NUMBA_CACHE_DIR")
    found = [Path(asked) / "htagraph"] if asked else []
    found.append(Path(__file__).parent / "__pycache__")
    with suppress(RuntimeError):  # no home
        found.append(_user_cache() / "htagraph")
    temporary = _temporary()
    return [*found, temporary] if temporary else found


def _user_cache() -> Path:
    """The folder for caches of this user."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _temporary() -> Path | None:
    """The folder of this user among the temporary files, which all users share; None without."""
    try:
        shared = Path(tempfile.gettempdir())
    except FileNotFoundError:  # nothing can be written here
        return None
    return shared / f"htagraph-{os.getuid() if hasattr(os, 'getuid') else 0}"


def _is_safe(place: Path) -> bool:
    """Whether nobody else could put code there: among temporary files, others have been first."""
    if place != _temporary() or sys.platform == "win32":
        return True
    state = place.lstat()
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o077


def _places_to_write() -> Iterator[Path]:
    """Yield the places that are there, or can be made."""
    for place in places():
        try:
            place.mkdir(parents=True, exist_ok=True, mode=0o700 if place == _temporary() else 0o777)
            if _is_safe(place):
                yield place
        except OSError:
            continue


def home() -> Path | None:
    """The first place that takes code; None where none does."""
    for place in _places_to_write():
        with suppress(OSError), tempfile.TemporaryFile(dir=place):
            return place
    return None


@contextmanager
def at_home() -> Iterator[Path | None]:
    """Until the end of the block, code is looked for and kept in the first place that takes it.

    So that all is there: who finds some in another place, which others may not have, leaves it.
    """
    place, before = home(), os.environ.get(_ONLY_PLACE)
    os.environ[_ONLY_PLACE] = str(place or "")
    try:
        yield place
    finally:
        os.environ[_ONLY_PLACE] = before or ""


def found(name: str) -> bytes | None:
    """Code by the name of its file; None where it is kept nowhere, damaged, or another user's."""
    for place in [SHIPPED, *places()]:
        with suppress(OSError), (place / name).open("rb") as file:
            if not (_is_safe(place) and _is_trusted(os.fstat(file.fileno()))):
                continue
            content = file.read()
            if sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
                return content[_DIGEST:]
    return None


def _is_trusted(file: os.stat_result) -> bool:
    """Whether code is of this user, or of one whose package runs here anyway.

    Who names a folder as ``HTAGRAPH_CACHE_DIR`` trusts what is in it.
    """
    if os.environ.get(_ONLY_PLACE) or not hasattr(os, "getuid"):
        return True
    owners = {0, os.getuid(), Path(__file__).stat().st_uid}
    return file.st_uid in owners and not file.st_mode & stat.S_IWOTH


def keep(name: str, code: bytes) -> None:
    """Keep code in the first place that takes it; where none does, each process makes its own."""
    for place in _places_to_write():
        part = place / f"{name}.{secrets.token_hex(4)}"
        try:
            # A new file, which others cannot write to, wherever the folder is.
            with os.fdopen(os.open(part, _NEW, 0o644), "wb") as file:
                file.write(sha256(code).digest() + code)
            part.replace(place / name)
        except OSError:  # read-only, or full
            with suppress(OSError):
                part.unlink(missing_ok=True)
        else:
            return


@contextmanager
def alone() -> Iterator[None]:
    """Until the end of the block, no other process that keeps its code in the same place makes any.

    Where nothing can be locked, or somebody does not let go, all work at once.
    """
    with ExitStack() as stack:
        if fcntl is not None:
            for place in _places_to_write():
                with suppress(OSError):  # read-only, or a file system without locks
                    lock = stack.enter_context((place / "lock").open("a"))
                    _lock(lock.fileno())
                    break
        yield


def _lock(file: int) -> None:
    """Wait until nobody else holds a lock, but not for one that was stopped, or means harm."""
    until = monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() > until:
                return
            sleep(_POLL_S)
        else:
            return
