"""Args of events on demand: the place of each event in its file, read again when asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.errors import TraceError
from htagraph.readers.kineto.byte_stream import ByteStream
from htagraph.readers.kineto.header import decoded
from htagraph.readers.kineto.repairs import RepairLog

__all__ = ["ArgsIndex"]

_BLOCK = 1 << 20


@dataclass(frozen=True)
class ArgsIndex:
    """The place of each event in the decompressed file; reads events from there again.

    Parameters
    ----------
    source : Path or bytes
        The file, or its content; it is read again for each call of `decode`.
    offset : ndarray of shape (n_events,), dtype=int64, unit=byte
        First byte of each event.
    length : ndarray of shape (n_events,), dtype=int32, unit=byte
        Bytes of each event.
    """

    source: Path | bytes = field(repr=False)
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int32]

    def raw(self, events: npt.ArrayLike) -> list[bytes]:
        """The bytes of some events, as they stand in the file.

        The file is read once from the start, so ask for many events at a time.

        Raises
        ------
        TraceError
            If they are not there any more.
        """
        wanted = np.atleast_1d(np.asarray(events, dtype=np.int64))
        found: dict[int, bytes] = {}
        stream = ByteStream(self.source, RepairLog())
        held, start = b"", 0
        try:
            for event in np.unique(wanted).tolist():
                a, n = int(self.offset[event]), int(self.length[event])
                while start + len(held) < a + n:
                    passed = min(max(a - start, 0), len(held))
                    block = stream.read(_BLOCK)
                    if not block:
                        break
                    start, held = start + passed, held[passed:] + block
                found[event] = held[a - start : a - start + n]
        finally:
            stream.close()
        if not all(raw[:1] == b"{" and raw[-1:] == b"}" for raw in found.values()):
            raise TraceError(
                "the file has changed since it was loaded: its events are elsewhere.",
                path=self.source if isinstance(self.source, Path) else None,
                hint="load it again.",
            )
        return [found[event] for event in wanted.tolist()]

    def decode(self, events: npt.ArrayLike) -> list[dict[str, Any]]:
        """The args of some events, an empty dict for an event without args."""
        out: list[dict[str, Any]] = []
        for raw in self.raw(events):
            event = _decoded(raw)
            args = event.get("args") if isinstance(event, dict) else None
            out.append(args if isinstance(args, dict) else {})
        return out


def _decoded(raw: bytes) -> object:
    """An event, mended where it is broken."""
    try:
        return decoded(raw)
    except ValueError:
        from htagraph.readers.kineto.mending import mended_text  # noqa: PLC0415 - only for this kind of file

        return decoded(mended_text(raw))
