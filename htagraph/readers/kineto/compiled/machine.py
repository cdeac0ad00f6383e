"""Compilation of the functions over bytes: by numba, once per machine, without the GIL.

`entry` is what Python calls; `inlined` and `called` are for what only compiled code calls. None of
them may allocate: with numba's reference counting off (``_nrt``) an array costs nothing to pass,
which makes the scanner six times as fast; with `inlined` it is three times as fast again, at the
price of longer compilation, so large functions are `called`.

Only modules that are imported when a file is read import this one, so that ``import htagraph`` does
not import numba.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from htagraph.algorithms.jit import machine_code

__all__ = ["called", "entry", "inlined", "is_ready", "word_at"]

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = {"nogil": True, "_nrt": False, "error_model": "numpy"}
_INNER = _OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def entry(function: F) -> F:
    """A function for Python, compiled on its first call; later processes load it."""
    dispatcher: F = machine_code(function, **_OPTIONS)
    with suppress(
        AttributeError
    ):  # numba looks at the function's own file only, and not at what is inlined from others
        dispatcher._cache._cache_file._source_stamp = _sources_stamp()  # type: ignore[attr-defined]  # noqa: SLF001
    return dispatcher


@cache
def _sources_stamp() -> str:
    """A digest of all files that compiled code is made from."""
    here = Path(__file__).parent
    sources = [*sorted(here.glob("*.py")), here.parent / "fields.py", here.parent / "repairs.py"]
    return sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def inlined(function: F) -> F:
    """A function that becomes part of the compiled function that calls it."""
    return njit(**_INNER, forceinline=True)(function)


def called(function: F) -> F:
    """A function that compiled code calls."""
    return njit(**_INNER)(function)


def is_ready(function: Callable[..., Any]) -> bool:
    """Whether an `entry` was compiled, or its machine code found, in this process."""
    return bool(getattr(function, "nopython_signatures", ()))


@intrinsic  # type: ignore[untyped-decorator]
def word_at(typing_context: Any, array: Any, index: Any) -> Any:  # noqa: ARG001 - numba's protocol
    """Eight bytes from any position as one uint64, the first byte lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [arguments[1]])
        word = ir.IntType(64)
        return builder.load(builder.bitcast(place, word.as_pointer()), align=1, typ=word)

    return types.uint64(array, types.int64), generate
