"""Repeated sequences of codes, each only in its longest form.

Maximal repeats (Gusfield, "Algorithms on Strings, Trees, and Sequences", 1997) that do not overlap
themselves. They grow by one code at a time (Karp, Miller and Rosenberg, "Rapid identification of
repeated patterns in strings, trees and arrays", 1972): a sequence is numbered by its shorter form
and the next code, so that each length costs one sort.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.model.arrays import I64, Bools
from htagraph.native.passes import compiled


class Repeats(NamedTuple):
    """Occurrences of repeated sequences that do not overlap themselves.

    Parameters
    ----------
    sequence : ndarray of shape (n,), dtype=int64
        Dense number of the sequence that each occurrence is of; ascending.
    start : ndarray of shape (n,), dtype=int64
        Position of its first code; ascending within a sequence.
    length : ndarray of shape (n,), dtype=int64
        Number of its codes.
    """

    sequence: I64
    start: I64
    length: I64


@compiled
def _without_overlap(group: I64, start: I64, length: int, keep: Bools) -> None:
    """Keep the leftmost occurrences of each group that do not overlap one that is kept."""
    last_group = -1
    free = 0
    for row in range(len(group)):
        if group[row] != last_group:
            last_group = group[row]
            free = start[row]
        if start[row] >= free:
            keep[row] = True
            free = start[row] + length


def _numbered(*keys: I64) -> tuple[I64, I64]:
    """Dense number of each distinct row of keys, and how often it occurs."""
    key = keys[0]
    for other in keys[1:]:
        key = key * (int(other.max(initial=0)) + 1) + other
    _, number, count = np.unique(key, return_inverse=True, return_counts=True)
    return number.astype(np.int64), count[number].astype(np.int64)


def repeats(code: I64, lane: I64, *, min_length: int, max_length: int) -> Repeats:
    """Sequences of neighbors that occur at least twice without overlapping themselves.

    Left out are sequences that occur as often as one that is longer by one code, on either side,
    and those that are a shorter one repeated.

    Parameters
    ----------
    code : ndarray of shape (n,), dtype=int64
        Dense codes, ``>= 0``, in order.
    lane : ndarray of shape (n,), dtype=int64
        Sequences do not cross from one lane to another; ascending.
    min_length, max_length : int
        ``1 <= min_length <= max_length``.

    Examples
    --------
    >>> code, lane = np.array([1, 2, 3, 1, 2, 4, 1, 2]), np.zeros(8, np.int64)
    >>> found = repeats(code, lane, min_length=2, max_length=4)
    >>> found.sequence.tolist(), found.start.tolist(), found.length.tolist()
    ([0, 0, 0], [0, 3, 6], [2, 2, 2])
    """
    n = len(code)
    number, count = _numbered(code)
    position = np.flatnonzero(count > 1)
    number, count = number[position], count[position]
    parts: list[Repeats] = []
    n_sequences = 0
    for length in range(1, min(max_length, n) + 1):
        if not len(position):
            break
        longer = _grown(position, number, code, lane, length)
        if length >= min_length:
            closed = ~_explained(position, count, longer, n) & ~_is_power(position, code, length)
            parts.append(_occurrences(position[closed], number[closed], length, n_sequences))
            n_sequences = int(parts[-1].sequence.max(initial=n_sequences - 1)) + 1
        position, number, count = longer
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return Repeats(none, none, none)
    return Repeats(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in Repeats._fields)
    )


def _grown(position: I64, number: I64, code: I64, lane: I64, length: int) -> tuple[I64, I64, I64]:
    """Position, number and count of sequences that still repeat with one code more."""
    fits = position + length < len(code)
    fits[fits] = lane[position[fits]] == lane[position[fits] + length]
    position, number = position[fits], number[fits]
    number, count = _numbered(number, code[position + length])
    again = count > 1
    return position[again], number[again], count[again]


def _explained(position: I64, count: I64, longer: tuple[I64, I64, I64], n: int) -> Bools:
    """Whether a sequence occurs as often as one that is longer by one code."""
    longer_count = np.zeros(n + 1, dtype=np.int64)
    longer_count[longer[0]] = longer[2]
    after = longer_count[position] == count
    before = (position > 0) & (longer_count[position - 1] == count)
    explained: Bools = after | before
    return explained


def _is_power(position: I64, code: I64, length: int) -> Bools:
    """Whether a sequence is a shorter one repeated."""
    power = np.zeros(len(position), dtype=bool)
    for period in range(1, length // 2 + 1):
        if length % period == 0:
            differs = np.concatenate([[0], np.cumsum(code[:-period] != code[period:])])
            power |= differs[position + length - period] == differs[position]
    return power


def _occurrences(position: I64, number: I64, length: int, first_number: int) -> Repeats:
    """Occurrences of sequences of one length, numbered from a first number."""
    order = np.lexsort((position, number))
    start = position[order]
    _, dense = np.unique(number[order], return_inverse=True)
    keep = np.zeros(len(start), dtype=bool)
    _without_overlap(dense.astype(np.int64), start, length, keep)
    again = np.bincount(dense[keep]) > 1
    kept = np.flatnonzero(keep & again[dense])
    _, sequence = np.unique(dense[kept], return_inverse=True)
    return Repeats(
        sequence.astype(np.int64) + first_number,
        start[kept],
        np.full(len(kept), length, dtype=np.int64),
    )
