"""What a scanned trace holds: slices with their texts, and samples with their values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.model.samples import SampleTable, Series
from htagraph.readers.perfetto.annotations import Annotations
from htagraph.readers.perfetto.packet_sequences import Sequences, Symbols
from htagraph.readers.perfetto.scan import FLOAT, Scan
from htagraph.readers.perfetto.slice_pairs import Slices
from htagraph.readers.perfetto.track_descriptors import Track, Tracks
from htagraph.readers.repair_log import RepairLog

__all__ = ["TraceContent"]

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TraceContent:
    """Everything found in a trace.

    Parameters
    ----------
    day_ns : int
        What to add to times to get those since 1970.
    """

    scan: Scan
    sequences: Sequences
    symbols: Symbols
    tracks: Tracks
    slices: Slices
    day_ns: int
    log: RepairLog
    skipped: dict[str, int]

    def skip(self, reason: str, n: int) -> None:
        """Count what is left out."""
        if n:
            self.skipped[reason] = self.skipped.get(reason, 0) + n

    def names(self, chosen: I64) -> I64:
        """Symbols of the names of slices."""
        packet = self.slices.packet[chosen]
        return self.sequences.texts("event_names", packet, self.scan.name[packet])

    def categories(self, chosen: I64) -> I64:
        """Symbols of the first category of slices."""
        packet = self.slices.packet[chosen]
        return self.sequences.texts("event_categories", packet, self.scan.category[packet])

    def annotations(self, chosen: I64) -> Annotations:
        """Annotations of slices."""
        return Annotations.of(self.scan, self.slices, chosen, self.sequences)

    @cached_property
    def sample_values(self) -> npt.NDArray[np.float64]:
        """Values of samples as in the file."""
        packet = self.slices.sample_packet
        raw = self.scan.value[packet]
        is_float = self.scan.what[packet] & FLOAT != 0
        return np.where(is_float, raw.view(np.float64), raw.astype(np.float64))

    def samples(self, series: Iterable[tuple[int, Series]], zero_ns: int) -> SampleTable:
        """Samples of some counters.

        Parameters
        ----------
        series : iterable of (int, Series)
            Bits of the track's uuid, and its description.
        zero_ns : int, unit=ns
            Added to all times.
        """
        parts: list[tuple[Series, Any, Any]] = []
        for uuid, one in series:
            rows = np.flatnonzero(self.slices.sample_track == uuid)
            ts_ns = self.slices.sample_ts_ns[rows]
            order = np.argsort(ts_ns, kind="stable")
            track = self.tracks.by_uuid.get(uuid % (1 << 64), Track())
            value = self.sample_values[rows[order]]
            if track.is_incremental:
                value = np.cumsum(value)
            parts.append((one, ts_ns[order] + zero_ns, value * track.multiplier))
        return SampleTable.of(parts)
