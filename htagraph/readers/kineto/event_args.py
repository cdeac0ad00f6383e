"""``args`` of events on demand: read again from the file, at the place of each event."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.errors import TraceError
from htagraph.model.arrays import I32, I64
from htagraph.readers.kineto.header import decoded
from htagraph.readers.kineto.seek_points import FROM_START, SeekPoints, TextReader


@dataclass(frozen=True)
class ArgsIndex:
    """The place of each event in the decompressed file."""

    # The file, or its content; each call of `decode` reads it again
    source: Path | bytes = field(repr=False)
    offset: I64  # Of shape (n_events,). In byte. First byte of each event.
    length: I32  # Of shape (n_events,). In byte.
    # From which the file can be read; by default its start
    points: SeekPoints = field(default=FROM_START, repr=False)

    def raw(self, events: npt.ArrayLike) -> list[bytes]:
        """The bytes of events, as they are in the file.

        Without points, each call reads the file from its start, so pass many events at once.
        """
        wanted = np.atleast_1d(np.asarray(events, dtype=np.int64))
        found: dict[int, bytes] = {}
        with closing(TextReader(self.source, self.points)) as reader:
            for event in np.unique(wanted).tolist():
                start = int(self.offset[event])
                found[event] = reader.read(start, start + int(self.length[event]))
        if not all(raw[:1] == b"{" and raw[-1:] == b"}" for raw in found.values()):
            raise TraceError(
                "the file has changed since it was loaded.",
                path=self.source if isinstance(self.source, Path) else None,
                hint="load it again.",
            )
        return [found[event] for event in wanted.tolist()]

    def decode(self, events: npt.ArrayLike) -> list[dict[str, Any]]:
        """The ``args`` of events, an empty dict for an event without."""
        out: list[dict[str, Any]] = []
        for raw in self.raw(events):
            event = _decoded(raw)
            args = event.get("args") if isinstance(event, dict) else None
            out.append(args if isinstance(args, dict) else {})
        return out


def _decoded(raw: bytes) -> object:
    try:
        return decoded(raw)
    except ValueError:
        from htagraph.readers.kineto.worker import repaired_text  # noqa: PLC0415  rarely needed

        return decoded(repaired_text(raw))
