"""Columns that a scan of a trace fills: of packets, annotations, flows and texts.

All are 64 bits wide; a float is stored by its bits. A text that is not interned is a row of
`Scan.text_at`, and its number is ``-1 - row``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.model.arrays import I64

EVENT, SPECIAL, BAD, CLEARED, HAS_TIME, HAS_TRACK, LEGACY, INTEGER, FLOAT, EXTRA, AFTER_LOSS = (
    1 << bit for bit in range(11)
)
"""What a packet is, or has: bits of `Scan.what`."""

INT, DOUBLE, INTERNED, TEXT, BOOL, UINT, OTHER = range(1, 8)
"""Forms of annotation values."""

_ROWS = (12, 4, 3, 2)
"""Columns of packets, annotations, flows and texts."""


class Room(NamedTuple):
    """Tables to fill, a row for each column: of packets, annotations, flows and texts."""

    packets: I64
    annotations: I64
    flows: I64
    texts: I64

    @classmethod
    def of(cls, *counts: int) -> Room:
        """Tables with so many columns each."""
        sizes = zip(_ROWS, counts, strict=True)
        return cls(*(np.zeros(size, dtype=np.int64) for size in sizes))


class Scan(NamedTuple):
    """The columns; those of one group have one length.

    Of packets: place; time, clock, sequence, what it is, and its first unknown field; type, track,
    name, category and value of its event. Of annotations and flows: their packet and content. Of
    texts: place.
    """

    at: I64
    n_bytes: I64
    ts: I64
    clock: I64
    sequence: I64
    what: I64
    other: I64
    type: I64
    track: I64
    name: I64
    category: I64
    value: I64
    annotation_packet: I64
    annotation_name: I64
    annotation_form: I64
    annotation_value: I64
    flow_packet: I64
    flow_id: I64
    flow_ends: I64
    text_at: I64
    text_bytes: I64
