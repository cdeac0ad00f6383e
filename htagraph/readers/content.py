"""The content of a file: its first bytes, all of them, or its lines; gzip is unpacked."""

from __future__ import annotations

import zlib
from contextlib import closing
from pathlib import Path

from htagraph.errors import TraceError, TraceFormatError
from htagraph.readers.kineto.byte_stream import GZIP_MAGIC, GZIP_WINDOW, ByteStream
from htagraph.readers.kineto.defects import Defect
from htagraph.readers.repair_log import RepairLog
from htagraph.readers.storage import is_file, open_file

_BLOCK = 1 << 22
"""Bytes read at once (chosen)."""


def first_bytes(source: str | Path | bytes, n_bytes: int) -> bytes:
    """The first bytes of a file or of content; none if it cannot be read, or only once (a pipe)."""
    head = source[:n_bytes] if isinstance(source, bytes) else _head_of(Path(source), n_bytes)
    if not head.startswith(GZIP_MAGIC):
        return head
    try:
        return zlib.decompressobj(GZIP_WINDOW).decompress(head, n_bytes)
    except zlib.error:
        return b""


def _head_of(path: Path, n_bytes: int) -> bytes:
    try:
        if not is_file(path):
            return b""
        with open_file(path) as file:
            return file.read(n_bytes)
    except (OSError, TraceError):
        return b""


def content_of(source: str | Path | bytes) -> bytes:
    """All bytes of a file, or of its content."""
    if isinstance(source, bytes) and not source.startswith(GZIP_MAGIC):
        return source
    log = RepairLog(Defect)
    with closing(ByteStream(source, log)) as stream:
        content = b"".join(iter(lambda: stream.read(_BLOCK), b""))
        path = stream.path
    if log.count([Defect.GZIP_TRUNCATED, Defect.GZIP_DAMAGED]):
        raise TraceFormatError("the gzip data is damaged.", path=path, hint="copy the file again.")
    return content


def text_lines(path: Path) -> list[str]:
    """The lines of a text file; bytes that are not UTF-8 are replaced."""
    return content_of(path).decode("utf-8", "replace").splitlines()
