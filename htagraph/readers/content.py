"""All bytes of a file that is read at once, unpacked."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from htagraph.errors import TraceFormatError
from htagraph.readers.kineto.byte_stream import ByteStream
from htagraph.readers.kineto.repairs import Defect, RepairLog

__all__ = ["content_of"]

_BLOCK = 1 << 22
_GZIP_MAGIC = b"\x1f\x8b"


def content_of(source: str | Path | bytes) -> bytes:
    """All bytes of a file, or of its content, unpacked if it is gzip.

    Raises
    ------
    TraceError
        If it cannot be read.
    TraceFormatError
        If it is damaged gzip.
    TraceLimitError
        If it unpacks to far more than its size.

    Examples
    --------
    >>> import gzip
    >>> content_of(gzip.compress(b"GPU 0"))
    b'GPU 0'
    """
    if isinstance(source, bytes) and not source.startswith(_GZIP_MAGIC):
        return source
    log = RepairLog()
    with closing(ByteStream(source, log)) as stream:
        content = b"".join(iter(lambda: stream.read(_BLOCK), b""))
        path = stream.path
    if log.count([Defect.GZIP_TRUNCATED, Defect.GZIP_DAMAGED]):
        raise TraceFormatError("the gzip data is damaged.", path=path, hint="copy the file again.")
    return content
