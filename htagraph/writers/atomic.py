"""The one place where files are written: whole, or not at all."""

from __future__ import annotations

import atexit
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from htagraph.errors import OutputError

__all__ = ["output_file"]

_GZIP_LEVEL = 2


def _new_file(path: Path) -> BinaryIO:
    """Open a file that does not exist yet, with the permissions that the user's umask gives."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    return os.fdopen(handle, "wb")


@contextmanager
def _compressed(raw: BinaryIO) -> Iterator[BinaryIO]:
    """Wrap a file so that what is written is compressed; equal content gives equal bytes."""
    from isal import igzip  # noqa: PLC0415  deferred: only compressed output needs it

    with igzip.GzipFile(
        filename="", mode="wb", compresslevel=_GZIP_LEVEL, fileobj=raw, mtime=0
    ) as packed:
        yield cast("BinaryIO", packed)


def _end_of_links(path: Path) -> Path:
    """The file that a link leads to, which need not exist; any other path as it is."""
    try:
        return Path(os.path.realpath(path)) if path.is_symlink() else path
    except OSError:
        return path


@contextmanager
def output_file(out: str | Path) -> Iterator[BinaryIO]:
    """File to be written, which appears under its name when the block ends without an error.

    The bytes go to a temporary file in the same folder, which replaces `out` at the end; of a link,
    what it leads to. What ends in ``.gz`` is compressed. A device or a pipe (``/dev/null``) is
    written to as it is.

    Yields
    ------
    BinaryIO
        To write bytes to.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with output_file(Path(folder) / "x.dot") as file:
    ...         _ = file.write(b"digraph {}")
    ...     sorted(entry.name for entry in Path(folder).iterdir())
    ['x.dot']
    """
    path = _end_of_links(Path(out))
    if not path.parent.is_dir():
        raise OutputError("the folder does not exist.", path=path, hint=f"mkdir -p {path.parent}")
    if path.is_dir():
        raise OutputError("it is a folder.", path=path, hint="give the name of a file.")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    remove = partial(temporary.unlink, missing_ok=True)
    atexit.register(remove)  # where the process ends in the middle of it
    try:
        is_special = path.exists() and not path.is_file()
        with path.open("wb") if is_special else _new_file(temporary) as raw:
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
        raise OutputError(
            f"cannot be written: {exc.strerror or exc}.",
            path=path,
            hint="check the free space and the permissions of the folder.",
        ) from exc
    finally:
        with suppress(OSError):
            remove()
        atexit.unregister(remove)
