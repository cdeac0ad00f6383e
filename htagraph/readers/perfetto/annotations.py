"""Debug annotations of slices as columns: numbers, floats and texts, by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.model.events import SparseColumn
from htagraph.readers.perfetto.packet_sequences import Sequences
from htagraph.readers.perfetto.scan import (
    BOOL,
    DOUBLE,
    INT,
    INTERNED,
    TEXT,
    UINT,
    Scan,
)
from htagraph.readers.perfetto.slice_pairs import Slices

__all__ = ["Annotations", "dense"]

I64 = npt.NDArray[np.int64]

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
