"""Columns of a table, read from the pages of its file: https://sqlite.org/fileformat2.html.

Python's `sqlite3` makes an object of each cell, which takes ten times as long. What is not as
SQLite writes it (a damaged page, text in a column of integers) is not read here: SQLite decides.

::

    interior page   [child | child | last child]          pages and cells are in order of rowid
    leaf page       [payload size, rowid, payload | ...]  the rest of a long payload is in a chain
    payload         [header size, type, type, ... | cell, cell, ...]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.native.inner import called, inlined
from htagraph.native.passes import compiled

__all__ = ["Wanted", "read_table"]

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

_INTERIOR, _LEAF = 5, 13
"""Kinds of pages of a table."""

_DEEPEST = 32
"""Levels of a tree; SQLite's limit is 20."""

_PAGE_BYTES, _RESERVED, _ENCODING = 16, 20, 59
"""Places in the header: bytes of a page, those of it that are reserved, encoding of texts."""

_UTF8 = 1
"""An encoding of texts."""

_NULL, _INT48, _INT64, _ZERO, _ONE, _BLOB = 0, 5, 6, 8, 9, 12
"""Types of cells. Integers up to 32 bits are their number of bytes, reals 7; from 12 on even ones
are blobs, odd ones texts."""


class Wanted(NamedTuple):
    """What to read of a table.

    Parameters
    ----------
    root : int
        Number of its root page.
    row : ndarray of shape (n_columns,), dtype=int64
        By place of a column in the table: the row of the result, -1 for none.
    text : int
        Place of a column of texts, whose result is their length; -1 for none.
    owner, low, high : int
        Only records with a value from low to high in this row of the result; -1 for all.
    absent : int
        Result for NULL.
    """

    root: int
    row: I64
    text: int
    owner: int
    low: int
    high: int
    absent: int


@inlined
def _varint(data: U8, i: int, end: int) -> tuple[int, int]:
    """A number, and the position after it; -1 if it is cut off."""
    value, at, n = np.int64(0), -1, 0
    while i < end:
        byte = np.int64(data[i])
        i += 1
        n += 1
        if n == 9:
            value, at = (value << 8) | byte, i
            break
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            at = i
            break
    return value, at


@inlined
def _number(data: U8, i: int, n_bytes: int) -> int:
    """An unsigned number, its highest byte first."""
    value = np.int64(0)
    for k in range(n_bytes):
        value = (value << 8) | np.int64(data[i + k])
    return value


@inlined
def _copy(into: U8, to: int, data: U8, i: int, n_bytes: int) -> None:
    for k in range(n_bytes):
        into[to + k] = data[i + k]


@called
def _unchained(  # noqa: PLR0917
    file: U8, page_bytes: int, usable: int, i: int, n: int, local: int, whole: U8
) -> bool:
    """Put a payload together whose rest is in a chain of pages; false if the chain is broken."""
    _copy(whole, 0, file, i, local)
    page = _number(file, i + local, 4)
    while local < n:
        if page < 2 or page * page_bytes > len(file):
            return False
        start = (page - 1) * page_bytes
        more = min(n - local, usable - 4)
        _copy(whole, local, file, start + 4, more)
        page = _number(file, start, 4)
        local += more
    return True


@called
def _record(  # noqa: C901, PLR0911, PLR0917
    data: U8, begin: int, end: int, wanted: Wanted, out: I64, row: int, texts: U8, n_texts: int
) -> int:
    """Enter a record; return its bytes of text, -1 if it is not wanted, -2 if it is unusual."""
    size, i = _varint(data, begin, end)
    at = types_end = begin + size
    if i < 0 or size < 0 or at > end:
        return -2
    text_at, text_bytes = 0, 0
    for column in range(len(wanted.row)):
        kind, i = _varint(data, i, types_end)
        if i < 0 or kind < 0:
            return -2
        n_bytes = (kind - _BLOB) >> 1
        if kind < _BLOB:
            n_bytes = kind if kind < _INT48 else 6 if kind == _INT48 else 8 if kind < _ZERO else 0
        if n_bytes > end - at:
            return -2
        to = wanted.row[column]
        if to >= 0 and kind == _NULL:
            out[to, row] = wanted.absent
        elif to >= 0 and column == wanted.text:
            if kind < _BLOB or kind & 1 == 0:
                return -2
            out[to, row] = n_bytes
            text_at, text_bytes = at, n_bytes
        elif to >= 0:
            if kind > _INT64 and kind not in (_ZERO, _ONE):
                return -2
            value = kind - _ZERO
            if kind <= _INT64:
                value = _number(data, at, n_bytes)
                value -= (value >> (8 * n_bytes - 1) & 1) << (8 * n_bytes) if n_bytes < 8 else 0
            out[to, row] = value
        at += n_bytes
    if wanted.owner >= 0 and not wanted.low <= out[wanted.owner, row] <= wanted.high:
        return -1
    _copy(texts, n_texts, data, text_at, text_bytes)
    return text_bytes


@compiled
def _fill(  # noqa: C901, PLR0911, PLR0912, PLR0917
    file: U8, page_bytes: int, usable: int, wanted: Wanted, fills: bool,
    stack: I64, whole: U8, out: I64, texts: U8,
) -> tuple[int, int, int]:  # fmt: skip
    """Fill the rows, or only count them; return their number, bytes, and those of the longest.

    The number is -1 if anything is unusual.
    """
    n_pages, n_seen, depth = len(file) // page_bytes, 0, 0
    n_rows, n_bytes, longest = 0, 0, 0
    stack[0], stack[1] = wanted.root, 0
    while depth >= 0:
        page, child = stack[2 * depth], stack[2 * depth + 1]
        n_seen += child == 0
        if page < 2 or page > n_pages or n_seen > n_pages or depth + 1 >= _DEEPEST:
            return -1, 0, 0
        start = (page - 1) * page_bytes
        stop = start + usable
        n_cells = _number(file, start + 3, 2)
        if file[start] == _INTERIOR and 12 + 2 * n_cells <= usable:
            if child > n_cells:
                depth -= 1
                continue
            at = start + 8
            if child < n_cells:
                at = start + _number(file, start + 12 + 2 * child, 2)
            if at + 4 > stop:
                return -1, 0, 0
            stack[2 * depth + 1] = child + 1
            depth += 1
            stack[2 * depth], stack[2 * depth + 1] = _number(file, at, 4), 0
            continue
        if file[start] != _LEAF or 8 + 2 * n_cells > usable:
            return -1, 0, 0
        depth -= 1
        for cell in range(n_cells):
            i = start + _number(file, start + 8 + 2 * cell, 2)
            n, i = _varint(file, i, stop)
            if i >= 0:
                _, i = _varint(file, i, stop)
            if i < 0 or n < 0 or n > len(file):
                return -1, 0, 0
            local = n
            if n > usable - 35:
                least = (usable - 12) * 32 // 255 - 23
                local = least + (n - least) % (usable - 4)
                local = local if local <= usable - 35 else least
            if i + local + (4 if local < n else 0) > stop:
                return -1, 0, 0
            if not fills:
                n_rows, n_bytes, longest = n_rows + 1, n_bytes + n, max(longest, n)
                continue
            source, begin = file, i
            if local < n:
                if not _unchained(file, page_bytes, usable, i, n, local, whole):
                    return -1, 0, 0
                source, begin = whole, 0
            said = _record(source, begin, begin + n, wanted, out, n_rows, texts, n_bytes)
            if said < -1:
                return -1, 0, 0
            if said >= 0:
                n_rows, n_bytes = n_rows + 1, n_bytes + said
    return n_rows, n_bytes, longest


def read_table(file: U8, wanted: Wanted) -> tuple[I64, U8] | None:
    """Columns of shape (n, n_rows), and texts; None if SQLite is to read the table.

    Parameters
    ----------
    file : ndarray of shape (n,), dtype=uint8
        Content of a database.
    """
    page_bytes = int(file[_PAGE_BYTES]) << 8 | int(file[_PAGE_BYTES + 1])
    page_bytes = 1 << 16 if page_bytes == 1 else page_bytes
    usable = page_bytes - int(file[_RESERVED])
    if file[_ENCODING] != _UTF8:
        return None
    stack, none = np.zeros(2 * _DEEPEST, dtype=np.int64), np.empty(0, dtype=np.uint8)
    n_columns = int(wanted.row.max()) + 1
    out = np.empty((n_columns, 0), dtype=np.int64)
    n, n_bytes, longest = _fill(file, page_bytes, usable, wanted, False, stack, none, out, none)
    if n < 0:
        return None
    texts = np.empty(n_bytes if wanted.text >= 0 else 0, dtype=np.uint8)
    whole, out = np.empty(longest, dtype=np.uint8), np.empty((n_columns, n), dtype=np.int64)
    n, n_bytes, _ = _fill(file, page_bytes, usable, wanted, True, stack, whole, out, texts)
    return None if n < 0 else (out[:, :n], texts[:n_bytes])
