"""Where a trace came from, for what needs the original again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

__all__ = ["Original", "TraceSource"]


class Original(Protocol):
    """What can be read of events from their file."""

    def decode(self, events: npt.ArrayLike) -> Sequence[Mapping[str, Any]]:
        """Return the ``args`` of events."""

    def raw(self, events: npt.ArrayLike) -> list[bytes]:
        """Return events as they stand in the file."""


@dataclass(frozen=True)
class TraceSource:
    """The original of a trace.

    Parameters
    ----------
    content : Path or bytes
        The file, or its content.
    base_ns : int, unit=ns
        Time that is 0 in the original (``baseTimeNanoseconds``).
    original : Original, optional
        Reads events from it.
    metadata : mapping
        What the original says beside events.
    """

    content: Path | bytes
    base_ns: int = 0
    original: Original | None = field(default=None, compare=False)
    metadata: Mapping[str, Any] = field(default_factory=dict, compare=False)
