"""The one place where files are written: whole, or not at all; and temporary folders."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO, cast
from zipfile import ZipFile, ZipInfo

import numpy as np
import numpy.typing as npt

from htagraph.errors import OutputError
from htagraph.model.progress import counted

if sys.platform != "win32":  # no locks there: folders of killed processes stay
    import fcntl

_LONGEST_LINE = 1 << 20
"""Bytes at the end of a file in which the last line that was not finished begins: chosen. Lines
have a few kilobytes."""

_GZIP_LEVEL = 2
"""Compression of ``.gz`` files (chosen): fast, for files of gigabytes."""


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


@contextmanager
def _compressed(raw: BinaryIO) -> Iterator[BinaryIO]:
    """Compress what is written; equal content gives equal bytes."""
    from isal import igzip  # noqa: PLC0415  deferred: only compressed output needs it

    with igzip.GzipFile(
        filename="", mode="wb", compresslevel=_GZIP_LEVEL, fileobj=raw, mtime=0
    ) as packed:
        yield cast("BinaryIO", packed)


def _end_of_links(path: Path) -> Path:
    """The target of a link, which need not exist; other paths unchanged."""
    try:
        return Path(os.path.realpath(path)) if path.is_symlink() else path
    except OSError:
        return path


@contextmanager
def output_file(out: str | Path, *, is_shared: bool = False) -> Iterator[BinaryIO]:
    """File to be written, which appears under its name when the block ends without an error.

    The bytes go to a temporary file in the same folder, which replaces `out`, or the target of a
    link, at the end. ``.gz`` files are compressed. A device or a pipe (``/dev/null``) is written
    directly. `is_shared`: others can write to the folder: a link or a pipe there is theirs, and is
    replaced itself; whatever the umask, not all can write to the file.
    """
    path = Path(out) if is_shared else _end_of_links(Path(out))
    if not path.parent.is_dir():
        raise OutputError("the folder does not exist.", path=path, hint=f"mkdir -p {path.parent}")
    if path.is_dir():
        raise OutputError("it is a folder.", path=path, hint="give a file name.")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    remove = partial(temporary.unlink, missing_ok=True)
    atexit.register(remove)  # if the process exits meanwhile
    try:
        is_special = not is_shared and path.exists() and not path.is_file()
        mode = 0o664 if is_shared else 0o666
        opened = path.open("wb") if is_special else os.fdopen(os.open(temporary, _NEW, mode), "wb")
        with opened as raw:
            if path.suffix == ".gz":
                with _compressed(raw) as packed:
                    yield packed
            else:
                yield raw
        if not is_special:
            temporary.replace(path)
    except OSError as exc:
        if isinstance(exc, OutputError):
            raise
        raise _unwritable(path, exc) from exc
    finally:
        with suppress(OSError):
            remove()
        atexit.unregister(remove)


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"cannot be written: {error.strerror or error}.",
        path=path,
        hint="check the free space and the permissions of the folder.",
    )


def new_folder(folder: Path, *, hint: str = "choose another folder (--out).") -> None:
    """Make a folder for files, if it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise OutputError(
            f"cannot create this folder: {exc.strerror}.",
            path=folder,
            hint=hint,
        ) from exc


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, whole or not at all.

    What UTF-8 cannot encode, as in file names that are not UTF-8, becomes a question mark.
    """
    with output_file(path) as file:
        file.write(text.encode("utf-8", "replace"))


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether this process alone holds a lock; it is given back even if the process is killed."""
    with path.open("ab") as file:
        is_mine = True
        if sys.platform != "win32":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_mine = False
        yield is_mine


def append_text(path: str | Path, text: str) -> None:
    """Append to a file that others write, too."""
    try:
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as exc:
        raise _unwritable(Path(path), exc) from exc


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file, and have it on the disk; what a killed writer left of one goes.

    Several processes may append at once, where the file system has locks.
    """
    try:
        with path.open("ab+") as file:
            if sys.platform != "win32":
                fcntl.flock(file, fcntl.LOCK_EX)
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - _LONGEST_LINE, 0))
            tail = file.read()
            file.truncate(end - len(tail) + tail.rfind(b"\n") + 1)
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        raise _unwritable(path, exc) from exc


def write_joined(out: str | Path, parts: Iterable[Callable[[Path], object]]) -> Path:
    """Write a file as the concatenation of its parts, each written by a call with a path."""
    target = Path(out)
    with (
        output_file(target) as file,
        tempfile.TemporaryDirectory(dir=target.parent, prefix=".htagraph-") as folder,
    ):
        part = Path(folder) / "part.pftrace"
        for write in counted("part", list(parts)):
            write(part)
            with part.open("rb") as source:
                shutil.copyfileobj(source, file)
    return target


_PREFIX = "htagraph-"
_IN_USE = ".in-use"
"""A file that the process locks while it uses the folder."""


class OwnFolder:
    """A temporary folder that is removed when nothing refers to it any more."""

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


def write_arrays(
    out: str | Path,
    arrays: Mapping[str, npt.NDArray[Any]],
    *,
    seal: Callable[[Sequence[ZipInfo]], bytes] | None = None,
) -> Path:
    """Like ``np.savez``, which before numpy 2.1 may pickle, and leaks handles on a full disk.

    `seal`: what marks a file in a folder that is shared, by its members.
    """
    with output_file(out, is_shared=seal is not None) as file, ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        archive.comment = seal(archive.infolist()) if seal else b""
    return Path(out)
