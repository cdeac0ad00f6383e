"""The first bytes of a file, unpacked if it is gzip: by them a format is known."""

from __future__ import annotations

import zlib
from pathlib import Path

from htagraph.errors import TraceError
from htagraph.readers.storage import is_file, open_file

__all__ = ["first_bytes"]

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's code for "gzip, 32 KiB window"


def first_bytes(source: str | Path | bytes, n_bytes: int) -> bytes:
    """The first bytes of a file or of content; none of what cannot be read, or only once (a pipe).

    Examples
    --------
    >>> first_bytes(b'{"traceEvents": []}', 8)
    b'{"traceE'
    """
    head = source[:n_bytes] if isinstance(source, bytes) else _of_file(Path(source), n_bytes)
    if not head.startswith(_GZIP_MAGIC):
        return head
    try:
        return zlib.decompressobj(_GZIP_WINDOW).decompress(head, n_bytes)
    except zlib.error:
        return b""


def _of_file(path: Path, n_bytes: int) -> bytes:
    try:
        if not is_file(path):
            return b""
        with open_file(path) as file:
            return file.read(n_bytes)
    except (OSError, TraceError):
        return b""
