"""How the functions that go over bytes are compiled: by numba, once per machine, without the interpreter lock.

Only modules that are imported when a file is read import this one, so that ``import htagraph`` does not import numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

__all__ = ["compiled", "word_at"]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Return the function compiled on its first call; the machine code is kept for later processes where it can be."""
    try:
        return njit(cache=True, nogil=True, _nrt=False)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # no folder that can be written: compiled anew in each process
        return njit(nogil=True)(function)  # type: ignore[no-any-return]


@intrinsic  # type: ignore[untyped-decorator]
def word_at(typing_context: Any, array: Any, index: Any) -> Any:  # noqa: ARG001 - numba's protocol
    """Return eight bytes of a uint8 array from any position as one uint64, the first byte lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [arguments[1]])
        word = ir.IntType(64)
        return builder.load(builder.bitcast(place, word.as_pointer()), align=1, typ=word)

    return types.uint64(array, types.int64), generate
