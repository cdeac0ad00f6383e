"""Where a trace came from, for what needs the original again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["TraceSource"]


@dataclass(frozen=True)
class TraceSource:
    """The original of a trace.

    Parameters
    ----------
    content : Path or bytes
        The file, or its content.
    base_ns : int, unit=ns
        Time that is 0 in the original (``baseTimeNanoseconds``).
    """

    content: Path | bytes
    base_ns: int = 0
