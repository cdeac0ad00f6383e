"""What a scanned trace holds: slices with names and debug annotations, samples with values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.model.arrays import F64, I64
from htagraph.model.events import SparseColumn
from htagraph.model.samples import SampleTable, Series
from htagraph.readers.perfetto.packet_sequences import Sequences, Symbols
from htagraph.readers.perfetto.scan import BOOL, DOUBLE, FLOAT, INT, INTERNED, TEXT, UINT, Scan
from htagraph.readers.perfetto.slice_pairs import Slices
from htagraph.readers.perfetto.track_descriptors import Track, Tracks
from htagraph.readers.repair_log import RepairLog

_NARROW = 1 << 15
"""Names that fit in int16, which numpy sorts by radix."""

_INTEGERS, _TEXTS = (INT, UINT, BOOL), (TEXT, INTERNED)


@dataclass(frozen=True)
class Annotations:
    """Debug annotations of some slices, including those of their end packets.

    Parameters
    ----------
    slice : ndarray of shape (n,), dtype=int64
        Position of the slice.
    name : ndarray of shape (n,), dtype=int64
        Symbols.
    form : ndarray of shape (n,), dtype=int64
        As in `Scan`.
    value : ndarray of shape (n,), dtype=int64
        Numbers, bits of floats, or symbols.
    """

    slice: I64
    name: I64
    form: I64
    value: I64

    @classmethod
    def of(cls, scan: Scan, slices: Slices, chosen: I64, sequences: Sequences) -> Annotations:
        """The annotations of chosen slices, numbered by their position among these."""
        position = slices.of_packets(len(scan.at), chosen)
        known = np.flatnonzero((position[scan.annotation_packet] >= 0) & (scan.annotation_form > 0))
        packet = scan.annotation_packet[known]
        form, value = scan.annotation_form[known], scan.annotation_value[known].copy()
        texts = np.isin(form, _TEXTS)
        value[texts] = sequences.texts(
            "debug_annotation_string_values", packet[texts], value[texts]
        )
        name = sequences.texts("debug_annotation_names", packet, scan.annotation_name[known])
        return cls(position[packet], name, form, value)

    def columns(self) -> Iterator[tuple[int, str, I64, npt.NDArray[np.generic]]]:
        """Yield symbol of the name, kind of value, slices (ascending) and values.

        The kind is ``int``, ``float`` or ``text``; the last of several values of a slice counts.
        """
        number, names = pd.factorize(self.name)
        narrow = np.int16 if len(names) < _NARROW else np.int64
        order = np.argsort(number.astype(narrow), kind="stable")
        for rows in np.split(order, np.cumsum(np.bincount(number))[:-1]) if len(order) else ():
            for kind, forms in (("int", _INTEGERS), ("float", (DOUBLE,)), ("text", _TEXTS)):
                of_kind = rows[np.isin(self.form[rows], forms)]
                if not len(of_kind):
                    continue
                slices, last = np.unique(self.slice[of_kind][::-1], return_index=True)
                values = self.value[of_kind][::-1][last]
                yield (
                    int(self.name[rows[0]]),
                    kind,
                    slices,
                    values.view(np.float64) if kind == "float" else values,
                )


def dense(column: SparseColumn | None, n: int) -> I64:
    """A column with a value for every event, -1 if absent."""
    return np.full(n, -1, dtype=np.int64) if column is None else column.dense(n, -1)


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
    def sample_values(self) -> F64:
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
