"""What the texts of PyTorch's ranges hold: ``aten::mm, seq = 7, op_id = 12, sizes = [[2, 3]]``.

They hold numbers and sizes of tensors, so nearly every row has a text of its own. A compiled pass
splits them and only names, which repeat, become Python objects.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.native.passes import compiled

__all__ = ["RangeTexts", "range_texts"]

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

_SEQUENCE, _OP_ID, _SIZES = b", seq = ", b", op_id = ", b", sizes = [["
_MARKS = np.frombuffer(_SEQUENCE + _OP_ID + _SIZES, dtype=np.uint8)
_MARK_ENDS = np.cumsum([0, len(_SEQUENCE), len(_OP_ID), len(_SIZES)])
"""What ``emit_nvtx`` appends to names; after the first two comes a number."""

_MOST_DIGITS = 18
"""Of a number of 64 bits; further digits are left out."""


class RangeTexts(NamedTuple):
    """What the texts of ranges hold; numbers are -1 where absent.

    Parameters
    ----------
    name : ndarray of shape (n,), dtype=int64
        Positions in `names`.
    """

    name: I64
    names: list[str]
    sequence: I64
    op_id: I64


def range_texts(content: U8, begins: I64, ends: I64) -> RangeTexts:
    """Texts with these places, taken apart.

    Examples
    --------
    >>> texts = b"aten::mm, seq = 7, op_id = 12, sizes = [[2]]" b"seq = 7" b"aten::mm"
    >>> begins, ends = np.array([0, 44, 51]), np.array([44, 51, 59])
    >>> found = range_texts(np.frombuffer(texts, dtype=np.uint8), begins, ends)
    >>> found.names, found.name.tolist(), found.sequence.tolist(), found.op_id.tolist()
    (['aten::mm', 'seq = 7'], [0, 1, 0], [7, -1, -1], [12, -1, -1])
    """
    out = np.empty((4, len(ends)), dtype=np.int64)
    _take_apart(content, begins, ends, _MARKS, _MARK_ENDS, out)
    name_ends, hashes, sequence, op_id = out
    name, distinct = pd.factorize(hashes)
    first = np.unique(name, return_index=True)[1] if len(distinct) else name
    names = [
        content[begin:end].tobytes().decode("utf-8", "replace")
        for begin, end in zip(begins[first].tolist(), name_ends[first].tolist(), strict=True)
    ]
    return RangeTexts(name, names, sequence, op_id)


@compiled
def _take_apart(  # noqa: C901, PLR0917
    content: U8, begins: I64, ends: I64, marks: U8, mark_ends: I64, out: I64
) -> None:
    """Fill for each text: where its name ends, a hash of the name, and both numbers.

    The name ends at the first mark.
    """
    for row in range(len(ends)):
        begin, end = begins[row], ends[row]
        name_end = end
        out[2, row] = out[3, row] = -1
        for place in range(begin, end):
            if content[place] != marks[0]:
                continue
            for mark in range(3):
                i = place + mark_ends[mark + 1] - mark_ends[mark]
                if i > end:
                    continue
                k = 0
                while place + k < i and content[place + k] == marks[mark_ends[mark] + k]:
                    k += 1
                if place + k < i:
                    continue
                number, n_digits = 0, 0
                while i < end and 48 <= content[i] <= 57 and n_digits < _MOST_DIGITS:
                    number = 10 * number + np.int64(content[i]) - 48
                    i += 1
                    n_digits += 1
                if mark < 2 and n_digits == 0:
                    continue
                if mark < 2 and out[2 + mark, row] < 0:
                    out[2 + mark, row] = number
                name_end = min(name_end, place)
        value = np.uint64(14695981039346656037)  # FNV-1a
        for place in range(begin, name_end):
            value = (value ^ np.uint64(content[place])) * np.uint64(1099511628211)
        out[0, row], out[1, row] = name_end, np.int64(value)
