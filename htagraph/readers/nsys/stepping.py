"""Integers and texts of a query as columns, by a compiled loop over the rows.

Python's `sqlite3` makes an object of each value, which takes four times as long as SQLite itself.
The loop calls the library that `sqlite3` is linked with, by the addresses of its functions, on a
connection of its own. Where these cannot be found (Python built without shared libraries), there is
no such loop, and the rows go through Python.
"""

from __future__ import annotations

import ctypes
import functools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.native.inner import emitted
from htagraph.native.passes import compiled

__all__ = ["Stepper", "can_step"]

I64 = npt.NDArray[np.int64]

_ROWS = 1 << 16
_BYTES = 1 << 22
_ROW, _DONE = 100, 101
_READ_ONLY, _URI = 0x01, 0x40
_FIRST_NUMBER, _LAST_NUMBER = 1, 2  # SQLITE_INTEGER, SQLITE_FLOAT


class _Library(NamedTuple):
    """The functions of SQLite that are called."""

    open: Callable[..., int]
    close: Callable[..., int]
    prepare: Callable[..., int]
    finalize: Callable[..., int]
    message: Callable[..., bytes]
    step: int
    column_type: int
    column_int64: int
    column_text: int
    column_bytes: int


@functools.cache
def _library() -> _Library | None:
    """The library that `sqlite3` is linked with, None where it cannot be reached."""
    try:
        import _sqlite3  # noqa: PLC0415 - its file is what is linked

        library = ctypes.CDLL(_sqlite3.__file__)
        names = ("open_v2", "close", "prepare_v2", "finalize", "errmsg")
        functions = [getattr(library, f"sqlite3_{name}") for name in names]
        functions[-1].restype = ctypes.c_char_p
        addresses = [
            ctypes.cast(getattr(library, f"sqlite3_{name}"), ctypes.c_void_p).value or 0
            for name in ("step", "column_type", "column_int64", "column_text", "column_bytes")
        ]
    except (ImportError, AttributeError, OSError):
        return None
    return _Library(*functions, *addresses)


def can_step() -> bool:
    """Whether the library can be reached."""
    return _library() is not None


def _call_of(n_columns: int, result: int) -> Callable[[], Any]:
    """What makes a call of C at an address, with a pointer and, of a column, its number."""

    def make() -> Any:  # noqa: ANN401 - numba and LLVM have no types
        from llvmlite import ir  # noqa: PLC0415 - only where this is compiled
        from numba import types  # noqa: PLC0415
        from numba.extending import intrinsic  # noqa: PLC0415

        signature = (types.int32 if result == 32 else types.int64)(*[types.int64] * (2 + n_columns))

        def generate(_: Any, builder: Any, __: Any, values: Any) -> Any:  # noqa: ANN401
            address, statement, *columns = values
            places = [builder.trunc(column, ir.IntType(32)) for column in columns]
            kinds = [ir.IntType(64), *(place.type for place in places)]
            function = ir.FunctionType(ir.IntType(result), kinds).as_pointer()
            return builder.call(builder.inttoptr(address, function), [statement, *places])

        if n_columns:
            return intrinsic(lambda _, address, statement, column: (signature, generate))  # noqa: ARG005
        return intrinsic(lambda _, address, statement: (signature, generate))  # noqa: ARG005

    return make


def _copied() -> Any:  # noqa: ANN401
    """What copies bytes from one address to another."""
    from llvmlite import ir  # noqa: PLC0415
    from numba import types  # noqa: PLC0415
    from numba.core import cgutils  # noqa: PLC0415
    from numba.extending import intrinsic  # noqa: PLC0415

    def generate(_: Any, builder: Any, __: Any, values: Any) -> None:  # noqa: ANN401
        pointers = [builder.inttoptr(value, ir.IntType(8).as_pointer()) for value in values[:2]]
        cgutils.raw_memcpy(builder, *pointers, values[2], 1)

    signature = types.void(types.int64, types.int64, types.int64)
    return intrinsic(lambda _, target, source, n_bytes: (signature, generate))  # noqa: ARG005


@emitted(_call_of(0, 32))
def _step(address: int, statement: int) -> int:
    """Call ``int f(statement)``."""
    raise NotImplementedError


@emitted(_call_of(1, 32))
def _type(address: int, statement: int, column: int) -> int:
    """Call ``int f(statement, int)``."""
    raise NotImplementedError


@emitted(_call_of(1, 64))
def _int64(address: int, statement: int, column: int) -> int:
    """Call ``sqlite3_int64 f(statement, int)``."""
    raise NotImplementedError


@emitted(_copied)
def _copy(target: int, source: int, n_bytes: int) -> None:
    """Copy bytes from one address to another."""
    raise NotImplementedError


@compiled
def _fill(  # noqa: PLR0917
    step: int, type_of: int, int64_of: int, statement: int, absent: int, out: I64
) -> tuple[int, int]:
    """Fill columns with rows; return how many there were, and what the last step said."""
    n_columns, n_rows = out.shape
    for row in range(n_rows):
        said = _step(step, statement)
        if said != _ROW:
            return row, said
        for column in range(n_columns):
            kind = _type(type_of, statement, column)
            is_number = _FIRST_NUMBER <= kind <= _LAST_NUMBER
            out[column, row] = _int64(int64_of, statement, column) if is_number else absent
    return n_rows, _ROW


@compiled
def _fill_texts(  # noqa: PLR0917
    step: int,
    text_of: int,
    bytes_of: int,
    statement: int,
    is_on_row: bool,
    target: int,
    n_free: int,
    ends: I64,
) -> tuple[int, int]:
    """Fill a buffer with texts; return how many, and what the last step said.

    Where the next text has no room the statement stays on its row, and 0 is said.
    """
    end = 0
    for row in range(len(ends)):
        said = _ROW if is_on_row and row == 0 else _step(step, statement)
        if said != _ROW:
            return row, said
        source = _int64(text_of, statement, 0)
        n_bytes = _type(bytes_of, statement, 0)
        if end + n_bytes > n_free:
            return row, 0
        _copy(target + end, source, n_bytes)
        end += n_bytes
        ends[row] = end
    return len(ends), _ROW


class Stepper:
    """A connection to a file, to be closed.

    Parameters
    ----------
    uri : str
        As for `sqlite3.connect`.
    """

    def __init__(self, uri: str) -> None:
        library = _library()
        assert library is not None
        self._library = library
        self._connection = ctypes.c_void_p()
        said = library.open(uri.encode(), ctypes.byref(self._connection), _READ_ONLY | _URI, None)
        self._check(said)

    def _check(self, said: int) -> None:
        """Raise what `sqlite3` would."""
        if said:
            message = self._library.message(self._connection) or b"unknown error"
            raise sqlite3.DatabaseError(message.decode("utf-8", "replace"))

    @contextmanager
    def _prepared(self, sql: str) -> Iterator[int]:
        """A statement, until the context ends."""
        library, statement = self._library, ctypes.c_void_p()
        self._check(
            library.prepare(self._connection, sql.encode(), -1, ctypes.byref(statement), None)
        )
        try:
            yield statement.value or 0
        finally:
            library.finalize(statement)

    def columns(self, sql: str, n_columns: int, absent: int) -> I64:
        """The answer to a query, shape (n_columns, n_rows); `absent` for what is no number.

        Raises
        ------
        sqlite3.DatabaseError
            If the file is damaged.
        """
        library, parts, said = self._library, [], _ROW
        with self._prepared(sql) as statement:
            while said == _ROW:
                part = np.empty((n_columns, _ROWS), dtype=np.int64)
                addresses = library.step, library.column_type, library.column_int64
                n, said = _fill(*addresses, statement, absent, part)
                parts.append(part[:, :n])
            self._check(said - _DONE)
        return np.concatenate(parts, axis=1)

    def texts(self, sql: str) -> tuple[npt.NDArray[np.uint8], I64]:
        """The only column of an answer: its texts one after the other, and where each ends.

        Raises
        ------
        sqlite3.DatabaseError
            If the file is damaged.
        """
        library, buffers, sizes, said = self._library, [], [], _ROW
        n_bytes = _BYTES
        with self._prepared(sql) as statement:
            while said in (_ROW, 0):
                buffer, ends = np.empty(n_bytes, dtype=np.uint8), np.empty(_ROWS, dtype=np.int64)
                addresses = library.step, library.column_text, library.column_bytes
                target = buffer.ctypes.data
                n, said = _fill_texts(*addresses, statement, said == 0, target, n_bytes, ends)
                n_bytes *= 2 if n == 0 and said == 0 else 1
                buffers.append(buffer[: ends[n - 1] if n else 0].copy())
                sizes.append(np.diff(ends[:n], prepend=0))
            self._check(said - _DONE)
        return np.concatenate(buffers), np.cumsum(np.concatenate(sizes))

    def close(self) -> None:
        """Close the connection."""
        self._library.close(self._connection)
        self._connection = ctypes.c_void_p()
