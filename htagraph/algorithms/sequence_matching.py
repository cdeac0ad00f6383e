"""Alignment of sequences that should be one: which element of each is the same."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt

__all__ = ["align"]

I64 = npt.NDArray[np.int64]


def _common(reference: Sequence[int], other: Sequence[int]) -> list[tuple[int, int, int]]:
    """Runs that both have, in order: position in reference, position in other, length."""
    matcher: SequenceMatcher[int] = SequenceMatcher(None, reference, other, autojunk=False)
    return [(run.a, run.b, run.size) for run in matcher.get_matching_blocks() if run.size]


def align(sequences: Sequence[npt.NDArray[np.integer]]) -> list[I64]:
    """Position of each element of each sequence in a common reference, -1 for none.

    Equal sequences are aligned element by element. Others are aligned with the longest one by
    common runs (the gestalt matching of Ratcliff and Obershelp, as in `difflib`); what cannot be
    placed stays apart.

    Parameters
    ----------
    sequences : sequence of ndarray of shape (n_i,)
        Symbols.

    Returns
    -------
    list of ndarray of shape (n_i,), dtype=int64

    Examples
    --------
    >>> whole, part = np.array([5, 7, 7]), np.array([7, 7])
    >>> [places.tolist() for places in align([whole, part, whole])]
    [[0, 1, 2], [1, 2], [0, 1, 2]]
    """
    reference = max(sequences, key=len)
    out = []
    for sequence in sequences:
        if np.array_equal(sequence, reference):
            out.append(np.arange(len(reference), dtype=np.int64))
            continue
        place = np.full(len(sequence), -1, dtype=np.int64)
        for at, position, length in _common(reference.tolist(), sequence.tolist()):
            place[position : position + length] = np.arange(at, at + length)
        out.append(place)
    return out
