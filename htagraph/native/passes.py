"""`compiled`: a function as machine code, made at its first call and kept.

Machine code is found where an earlier process left it; else it is made of the bitcode that came
with the package, in a fraction of a second; else, in a checkout, numba lowers the Python of it,
which takes seconds. A test of the package never sees which.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from htagraph.native import arguments, inner, kept
from htagraph.native.arguments import Form, Words, form_of, n_results_of, text_of

__all__ = ["PASSES", "compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])

PASSES: dict[str, dict[tuple[Form, ...], Callable[[int, int], None]]] = {}
"""By module and name of each function: the machine code that this process has."""

_PATIENCE_S = 1.0
_ONE_AT_A_TIME = threading.RLock()


def compiled(function: Function, sources: tuple[str, ...] = ()) -> Function:
    """Function of arrays and numbers as machine code; it runs without the GIL.

    It allocates nothing and raises nothing: it fills arrays, and returns numbers.

    Parameters
    ----------
    sources : tuple of str, optional
        Files that its code is made from, beside its own.
    """
    ready = PASSES.setdefault(f"{function.__module__}.{function.__qualname__}", {})
    n_results = n_results_of(function)

    @functools.wraps(function)
    def call(*values: Any) -> Any:
        forms = tuple(form_of(value) for value in values)
        code = ready.get(forms)
        if code is None:
            with _ONE_AT_A_TIME:
                code = ready[forms] = ready.get(forms) or _machine_code(function, forms, sources)
        words = Words(values)
        address = words.content.ctypes.data
        code(address, address)
        return words.result(n_results)

    return call  # type: ignore[return-value]


def _machine_code(
    function: Callable[..., Any], forms: tuple[Form, ...], sources: tuple[str, ...]
) -> Callable[[int, int], None]:
    """Machine code of a function for arguments of some forms: kept, shipped or new."""
    from htagraph.native import objects  # noqa: PLC0415 - imports LLVM

    name = _name(function, forms, sources)
    machine = sha256(objects.machine_name().encode()).hexdigest()[:16]
    code = kept.found(f"{name}-{machine}.o")
    if code is None:
        with kept.alone():
            code = kept.found(f"{name}-{machine}.o")  # another process was first
            if code is None:
                code = _made(function, forms, f"{name}.bc")
                kept.keep(f"{name}-{machine}.o", code)
    return objects.callable_of(code)


def _made(function: Callable[..., Any], forms: tuple[Form, ...], name: str) -> bytes:
    """Machine code of the bitcode that came with the package or is kept, else of new bitcode."""
    from htagraph.native import objects  # noqa: PLC0415 - imports LLVM

    bitcode = kept.found(name)
    if bitcode is not None:
        with suppress(RuntimeError):  # a later LLVM wrote it
            return objects.object_code(bitcode)
    with _announced():
        from htagraph.native.lowering import lowered  # noqa: PLC0415 - imports numba

        bitcode = lowered(function, forms)
    kept.keep(name, bitcode)
    return objects.object_code(bitcode)


def _name(function: Callable[..., Any], forms: tuple[Form, ...], sources: tuple[str, ...]) -> str:
    """The name of a function's bitcode for arguments of some forms: another for other sources."""
    files, numbers = _rests_on(function)
    digest = _digest_of((*files, *sources))
    text = f"{function.__qualname__} {text_of((tuple, forms))} {numbers} {digest}"
    return f"{function.__name__.strip('_')}-{sha256(text.encode()).hexdigest()[:20]}"


@cache
def _rests_on(function: Callable[..., Any]) -> tuple[tuple[str, ...], str]:
    """Files of a function and of those that it calls, and the numbers that lowering freezes.

    A number of another file, such as the code of a rule, may change while this file does not.
    """
    files, numbers, left = dict[str, None](), dict[str, str](), [function]
    for one in left:
        files[one.__code__.co_filename] = None
        known = {name: one.__globals__.get(name) for name in one.__code__.co_names}
        numbers |= {
            f"{one.__name__}.{name}": repr(value)
            for name, value in known.items()
            if isinstance(value, int | float | tuple)
        }
        called = [value for value in known.values() if callable(value) and value in inner.INNER]
        left += [value for value in called if value not in left]
    return tuple(files), repr(sorted(numbers.items()))


@cache
def _digest_of(files: tuple[str, ...]) -> str:
    """A digest of files, and of what lowers them."""
    lowering = Path(__file__).with_name("lowering.py")
    every = [*files, arguments.__file__, inner.__file__, str(lowering)]
    return sha256(b"".join(Path(file).read_bytes() for file in every)).hexdigest()


@cache
def _say() -> None:
    logging.getLogger("htagraph").warning("compiling, once on this machine …")


@contextmanager
def _announced() -> Iterator[None]:
    """Say so, once, if it takes long."""
    timer = threading.Timer(_PATIENCE_S, _say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
