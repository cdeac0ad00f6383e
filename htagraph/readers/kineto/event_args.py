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
from htagraph.readers.byte_stream import ByteStream
from htagraph.readers.kineto.header import decoded

_READ = 1 << 16
"""Decompressed bytes read at once (chosen)."""


@dataclass(frozen=True)
class ArgsIndex:
    """The place of each event in the decompressed file."""

    # The file, or its content; each call of `decode` reads it again
    source: Path | bytes = field(repr=False)
    offset: I64  # Of shape (n_events,). In byte. First byte of each event.
    length: I32  # Of shape (n_events,). In byte.

    def raw(self, events: npt.ArrayLike) -> list[bytes]:
        """The bytes of events, as they are in the file; none for frames that were sampled.

        Each call reads a compressed file from its start, so pass many events at once.
        """
        wanted = np.atleast_1d(np.asarray(events, dtype=np.int64))
        found: dict[int, bytes] = {}
        rows = np.unique(wanted)
        text, at = b"", 0  # what was read last, and where it begins
        with closing(ByteStream(self.source)) as stream:
            for event in rows[np.argsort(self.offset[rows], kind="stable")].tolist():
                start = int(self.offset[event])
                end = start + int(self.length[event])
                if end > at + len(text):
                    stream.skip(max(start - stream.n_read, 0))
                    text, at = text[start - at :], min(start, stream.n_read)
                    while at + len(text) < end and (block := stream.read(_READ)):
                        text += block
                found[event] = text[start - at : end - at]
        if any(raw[:1] + raw[-1:] != b"{}" and self.length[one] for one, raw in found.items()):
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
            try:
                event = decoded(raw) if raw else None
            except ValueError:  # rare
                from htagraph.readers.kineto.worker import repaired_text  # noqa: PLC0415

                event = decoded(repaired_text(raw))
            args = event.get("args") if isinstance(event, dict) else None
            out.append(args if isinstance(args, dict) else {})
        return out
