"""Machine instructions for scanners that Python has no word for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from htagraph.arrays.inner import called, emitted, inlined
from htagraph.arrays.passes import compiled

__all__ = ["called", "entry", "inlined", "trailing_zeros", "word_at"]

F = TypeVar("F", bound=Callable[..., Any])

_HERE = Path(__file__).parent
_SOURCES = (
    *sorted(str(file) for file in _HERE.glob("*.py")),
    str(_HERE.parent / "event_fields.py"),
    str(_HERE.parents[1] / "defects.py"),
)


def entry(function: F) -> F:
    """A function that Python calls; any file of this folder may be part of its code."""
    return compiled(function, _SOURCES)


def _word_at() -> Any:
    from llvmlite import ir  # noqa: PLC0415
    from numba import types  # noqa: PLC0415
    from numba.extending import intrinsic  # noqa: PLC0415

    @intrinsic  # type: ignore[untyped-decorator]
    def word_at(typing_context: Any, array: Any, index: Any) -> Any:  # noqa: ARG001 - numba's protocol
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            place = builder.gep(data, [arguments[1]])
            word = ir.IntType(64)
            return builder.load(builder.bitcast(place, word.as_pointer()), align=1, typ=word)

        return types.uint64(array, types.int64), generate

    return word_at


@emitted(_word_at)
def word_at(array: npt.NDArray[np.uint8], index: int) -> np.uint64:
    """Eight bytes at any position as one uint64, little endian."""
    return np.uint64(int.from_bytes(array[index : index + 8].tobytes(), "little"))


def _trailing_zeros() -> Any:
    from llvmlite import ir  # noqa: PLC0415
    from numba import types  # noqa: PLC0415
    from numba.extending import intrinsic  # noqa: PLC0415

    @intrinsic  # type: ignore[untyped-decorator]
    def trailing_zeros(typing_context: Any, word: Any) -> Any:  # noqa: ARG001 - numba's protocol
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

        return types.int64(types.uint64), generate

    return trailing_zeros


@emitted(_trailing_zeros)
def trailing_zeros(word: np.uint64) -> int:
    """The number of zero bits below the lowest set bit of a nonzero word."""
    return (int(word) & -int(word)).bit_length() - 1
