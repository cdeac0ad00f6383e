"""The lines of a text that stands beside a trace, packed or not."""

from __future__ import annotations

from pathlib import Path

from htagraph.readers.content import content_of

__all__ = ["text_lines"]


def text_lines(path: Path) -> list[str]:
    """Lines of a file, unpacked if it is gzip; bytes that are no UTF-8 are replaced.

    Raises
    ------
    TraceError
        If it cannot be read, as `content_of` says.
    """
    return content_of(path).decode("utf-8", "replace").splitlines()
