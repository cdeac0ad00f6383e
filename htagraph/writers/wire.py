"""Protobuf's wire format by column: messages of one shape are one matrix of bytes, a row each.

Messages with the same fields differ only in their numbers. With numbers padded to one width
(protobuf allows leading zeros in a varint) all messages have the same size, so a field is a few
columns of a matrix::

    08 96 81 00  50 01  5a 04 ...      row 0: field 8 = 150, field 10 = 1, field 11 of length 4 ...
    08 ff ff 03  50 01  5a 04 ...      row 1

A message is a list of pieces: bytes that are equal in all rows, and blocks (matrices) that are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import U8

Piece = bytes | U8

_VARINT, _FIXED64, _BYTES = 0, 1, 2
"""Wire types of protobuf."""


def utf8(text: str) -> str:
    """A text without what UTF-8 cannot encode: half a surrogate pair, as in truncated names."""
    return text.encode("utf-8", "replace").decode()


def varint(number: int) -> bytes:
    """A number as a varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _tag(field: int, wire_type: int) -> bytes:
    return varint(field << 3 | wire_type)


def _width(piece: Piece) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.shape[1]


def varint_field(field: int, values: int | npt.NDArray[np.integer[Any]]) -> list[Piece]:
    """A field with one number, or with a number per row.

    Parameters
    ----------
    values : int, or ndarray of shape (n,)
        Negative numbers are written in two's complement, as protobuf does.
    """
    if isinstance(values, int):
        return [_tag(field, _VARINT) + varint(values & 0xFFFFFFFFFFFFFFFF)]
    if len(values) and (values == values[0]).all():
        return varint_field(field, int(values[0]))
    rest = values.astype(np.int64).view(np.uint64)
    width = max(1, -(-int(rest.max(initial=0)).bit_length() // 7))
    block = np.empty((len(rest), width), dtype=np.uint8)
    for column in range(width):
        block[:, column] = (rest >> np.uint64(7 * column)) & np.uint64(0x7F)
    block[:, :-1] |= 0x80
    return [_tag(field, _VARINT), block]


def fixed64_field(field: int, values: npt.NDArray[Any]) -> list[Piece]:
    """A field with 8 bytes per row: an int64 or a float64."""
    return [
        _tag(field, _FIXED64),
        np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8),
    ]


def message_field(field: int, pieces: Sequence[Piece]) -> list[Piece]:
    """A field that holds a message.

    Examples
    --------
    >>> assemble(2, message_field(4, [b"xy", np.array([[1], [2]], dtype=np.uint8)])).tolist()
    [[34, 3, 120, 121, 1], [34, 3, 120, 121, 2]]
    """
    return [_tag(field, _BYTES) + varint(sum(map(_width, pieces))), *pieces]


def assemble(n: int, pieces: Iterable[Piece]) -> U8:
    """Rows of a message, shape (n, sum of widths).

    Parameters
    ----------
    pieces : iterable of bytes or U8
        Blocks of shape (n, width).
    """
    parts = list(pieces)
    out = np.empty((n, sum(map(_width, parts))), dtype=np.uint8)
    column = 0
    for part in parts:
        width = _width(part)
        out[:, column : column + width] = (
            np.frombuffer(part, dtype=np.uint8) if isinstance(part, bytes) else part
        )
        column += width
    return out
