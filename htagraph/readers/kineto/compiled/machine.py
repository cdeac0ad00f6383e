"""How the functions that go over bytes are compiled: by numba, once per machine, without the interpreter lock.

`entry` is what Python calls; `inlined` and `called` are for what only compiled code calls. None of them may allocate: with
numba's reference counting off (``_nrt``) an array costs nothing to pass, which makes the scanner six times as fast; with
`inlined` it is three times as fast again, at the price of longer compilation, so large functions are `called`.

Only modules that are imported when a file is read import this one, so that ``import htagraph`` does not import numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

__all__ = ["called", "entry", "inlined", "word_at"]

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = {"nogil": True, "_nrt": False, "error_model": "numpy"}
_INNER = _OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def entry(function: F) -> F:
    """Return a function that Python calls, compiled on its first call; later processes find the machine code on disk."""
    try:
        return njit(**_OPTIONS, cache=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # no folder that can be written: compiled anew in each process
        return njit(**_OPTIONS)(function)  # type: ignore[no-any-return]


def inlined(function: F) -> F:
    """Return a function that becomes part of the compiled function that calls it."""
    return njit(**_INNER, forceinline=True)(function)  # type: ignore[no-any-return]


def called(function: F) -> F:
    """Return a function that compiled code calls."""
    return njit(**_INNER)(function)  # type: ignore[no-any-return]


@intrinsic  # type: ignore[untyped-decorator]
def word_at(typing_context: Any, array: Any, index: Any) -> Any:  # noqa: ARG001 - numba's protocol
    """Return eight bytes of a uint8 array from any position as one uint64, the first byte lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [arguments[1]])
        word = ir.IntType(64)
        return builder.load(builder.bitcast(place, word.as_pointer()), align=1, typ=word)

    return types.uint64(array, types.int64), generate
