"""Alignment of sequences that should be equal: which elements correspond."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt

__all__ = ["align"]

I64 = npt.NDArray[np.int64]


def align(sequences: Sequence[npt.NDArray[np.integer]]) -> list[I64]:
    """Position of each element of each sequence in the longest one, -1 for none.

    Sequences are aligned by common runs (the gestalt matching of Ratcliff and Obershelp, as in
    `difflib`).

    Examples
    --------
    >>> whole, part = np.array([5, 7, 7]), np.array([7, 7])
    >>> [places.tolist() for places in align([whole, part, whole])]
    [[0, 1, 2], [1, 2], [0, 1, 2]]
    """
    reference = max(sequences, key=len)
    out = []
    for sequence in sequences:
        if np.array_equal(sequence, reference):  # usual, and matching takes quadratic time
            out.append(np.arange(len(reference), dtype=np.int64))
            continue
        place = np.full(len(sequence), -1, dtype=np.int64)
        matcher = SequenceMatcher(None, reference.tolist(), sequence.tolist(), autojunk=False)
        for run in matcher.get_matching_blocks():
            place[run.b : run.b + run.size] = np.arange(run.a, run.a + run.size)
        out.append(place)
    return out
