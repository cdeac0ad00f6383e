"""Bitcode and machine code on disk: where processes find it, and which of them makes it."""

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

SHIPPED = Path(__file__).parent / "bitcode"
"""The bitcode in a wheel."""

_ONLY_PLACE = "HTAGRAPH_CACHE_DIR"
_PATIENCE_S = 120.0
"""Seconds to wait for a process that compiles, chosen: several times what the longest one needs."""

_POLL_S = 0.02
"""Seconds between attempts at a lock, chosen: no answer depends on it."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_DIGEST = 32
"""Bytes of the SHA-256 digest that a file begins with: truncated code must not run."""


def places() -> list[Path]:
    """Folders for code, in the order in which they are tried.

    ``HTAGRAPH_CACHE_DIR`` alone, if set. Else ``NUMBA_CACHE_DIR``, the package's own folder, the
    user's cache, and a private folder among the temporary files.
    """
    if only := os.environ.get(_ONLY_PLACE):
        return [Path(only)]
    of_numba = os.environ.get("NUMBA_CACHE_DIR")
    found = [Path(of_numba) / "htagraph"] if of_numba else []
    found.append(Path(__file__).parent / "__pycache__")
    with suppress(RuntimeError):  # no home
        found.append(_user_cache() / "htagraph")
    temporary = _temporary()
    return [*found, temporary] if temporary else found


def _user_cache() -> Path:
    """The cache folder of this user."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _temporary() -> Path | None:
    """The folder of this user among the temporary files, None if nothing can be written there."""
    try:
        shared = Path(tempfile.gettempdir())
    except FileNotFoundError:
        return None
    return shared / f"htagraph-{os.getuid() if hasattr(os, 'getuid') else 0}"


def _is_safe(place: Path) -> bool:
    """Whether no other user can write there: ``/tmp/htagraph-0`` may be another user's folder."""
    if place != _temporary() or sys.platform == "win32":
        return True
    state = place.lstat()
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o077


def _places_to_write() -> Iterator[Path]:
    """Yield the places that exist or can be made."""
    for place in places():
        try:
            place.mkdir(parents=True, exist_ok=True, mode=0o700 if place == _temporary() else 0o777)
            if _is_safe(place):
                yield place
        except OSError:
            continue


def home() -> Path | None:
    """The first place that can be written, None if there is none."""
    for place in _places_to_write():
        with suppress(OSError), tempfile.TemporaryFile(dir=place):
            return place
    return None


@contextmanager
def at_home() -> Iterator[Path | None]:
    """Within the block, code is read from and written to the first writable place only.

    An image then has all of it, even if its builder has some in a cache that stays behind.
    """
    place, before = home(), os.environ.get(_ONLY_PLACE)
    os.environ[_ONLY_PLACE] = str(place or "")
    try:
        yield place
    finally:
        os.environ[_ONLY_PLACE] = before or ""


def found(name: str) -> bytes | None:
    """Code by the name of its file; None if it is missing, damaged, or another user's."""
    for place in [SHIPPED, *places()]:
        with suppress(OSError), (place / name).open("rb") as file:
            if not (_is_safe(place) and _is_trusted(os.fstat(file.fileno()))):
                continue
            content = file.read()
            if sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
                return content[_DIGEST:]
    return None


def _is_trusted(file: os.stat_result) -> bool:
    """Whether code belongs to this user, to root, or to the owner of the package.

    Setting ``HTAGRAPH_CACHE_DIR`` means to trust that folder.
    """
    if os.environ.get(_ONLY_PLACE) or not hasattr(os, "getuid"):
        return True
    owners = {0, os.getuid(), Path(__file__).stat().st_uid}
    return file.st_uid in owners and not file.st_mode & stat.S_IWOTH


def keep(name: str, code: bytes) -> None:
    """Write code to the first place that takes it; if none does, each process compiles its own."""
    for place in _places_to_write():
        part = place / f"{name}.{secrets.token_hex(4)}"
        try:
            # O_EXCL: a file that another user prepared under this name is not written to.
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
    """Within the block, no other process with the same place compiles.

    Without locks, or if one is not released in time, all compile at once.
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
    """Take a lock, or give up: its holder may be stopped, or hostile."""
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
