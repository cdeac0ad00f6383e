"""Texts of PyTorch on operators: ``aten::mm, seq = 7, op_id = 12, sizes = [[2, 3]]``.

Such texts differ in each row, but for their names. So they are taken apart by a compiled pass, and
names are told apart by their hashes; no text becomes an object of Python.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.native.passes import compiled

__all__ = ["OperatorTexts", "operator_texts"]

I64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_SEQUENCE, _OP_ID, _SIZES = b", seq = ", b", op_id = ", b", sizes = [["
_MARKS = np.frombuffer(_SEQUENCE + _OP_ID + _SIZES, dtype=np.uint8)
_MARK_ENDS = np.cumsum([0, len(_SEQUENCE), len(_OP_ID), len(_SIZES)])
_N_NUMBERS = 2
_LONGEST = 26  # a mark and 18 digits, more or less
_ZERO, _NINE = ord("0"), ord("9")


class OperatorTexts(NamedTuple):
    """Texts, taken apart.

    Parameters
    ----------
    name : ndarray of shape (n,), dtype=int64
        Position of each name in `names`.
    names : list of str
        Distinct names, in order of first appearance.
    sequence, op_id : ndarray of shape (n,), dtype=int64
        -1 where the text has none.
    """

    name: I64
    names: list[str]
    sequence: I64
    op_id: I64


def operator_texts(text: Bytes, ends: I64) -> OperatorTexts:
    """Texts, one after the other, taken apart.

    Parameters
    ----------
    ends : ndarray of shape (n,), dtype=int64
        Where each text ends.

    Examples
    --------
    >>> texts = b"aten::mm, seq = 7, op_id = 12, sizes = [[2]]" b"seq = 7" b"aten::mm"
    >>> taken = operator_texts(np.frombuffer(texts, dtype=np.uint8), np.array([44, 51, 59]))
    >>> taken.names, taken.name.tolist(), taken.sequence.tolist(), taken.op_id.tolist()
    (['aten::mm', 'seq = 7'], [0, 1, 0], [7, -1, -1], [12, -1, -1])
    """
    out = np.empty((4, len(ends)), dtype=np.int64)
    _take_apart(text, ends, _MARKS, _MARK_ENDS, out)
    name_ends, hashes, sequence, op_id = out
    name, distinct = pd.factorize(hashes)
    first = np.full(len(distinct), len(ends), dtype=np.int64)
    np.minimum.at(first, name, np.arange(len(ends)))
    begins = np.concatenate([[0], ends[:-1]])[first] if len(ends) else first
    names = [
        text[begin:end].tobytes().decode("utf-8", "replace")
        for begin, end in zip(begins.tolist(), name_ends[first].tolist(), strict=True)
    ]
    return OperatorTexts(name, names, sequence, op_id)


@compiled
def _take_apart(  # noqa: C901 - one pass over the bytes
    text: Bytes, ends: I64, marks: Bytes, mark_ends: I64, out: I64
) -> None:
    """Fill for each text: where its name ends, the hash of the name, and both numbers.

    The name ends at the first mark with what belongs after it: a digit, or a list of lists.
    """
    begin = 0
    for row in range(len(ends)):
        end = ends[row]
        name_end = end
        out[2, row] = out[3, row] = -1
        for place in range(begin, end):
            if text[place] != marks[0]:
                continue
            for mark in range(3):
                size = mark_ends[mark + 1] - mark_ends[mark]
                if place + size > end:
                    continue
                same = True
                for offset in range(size):
                    same &= text[place + offset] == marks[mark_ends[mark] + offset]
                if not same:
                    continue
                number, digit = 0, place + size
                while digit < end and _ZERO <= text[digit] <= _NINE and digit < place + _LONGEST:
                    number = 10 * number + text[digit] - _ZERO
                    digit += 1
                if mark < _N_NUMBERS and digit == place + size:
                    continue
                if mark < _N_NUMBERS and out[2 + mark, row] < 0:
                    out[2 + mark, row] = number
                name_end = min(name_end, place)
        value = np.uint64(14695981039346656037)
        for place in range(begin, name_end):
            value = (value ^ np.uint64(text[place])) * np.uint64(1099511628211)
        out[0, row], out[1, row] = name_end, np.int64(value)
        begin = end
