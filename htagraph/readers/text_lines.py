"""The lines of a text that stands beside a trace, packed or not."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from htagraph.errors import TraceFormatError
from htagraph.readers.storage import open_file

__all__ = ["text_lines"]


def text_lines(path: Path) -> list[str]:
    """Lines of a file, unpacked if it is gzip; bytes that are no UTF-8 are replaced.

    Raises
    ------
    TraceFormatError
        If it cannot be read.
    """
    try:
        with open_file(path) as file:
            content = file.read()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as exc:
        raise TraceFormatError(f"this file cannot be read: {exc}.", path=path) from exc
    return content.decode("utf-8", "replace").splitlines()
