"""`compiled`: a function as machine code, made at its first call and cached on disk.

In order: machine code of an earlier process; machine code from the bitcode in the wheel, in a
fraction of a second; in a checkout, bitcode that numba makes from the Python function, in seconds.
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

from htagraph.arrays import arguments, code_cache, inner
from htagraph.arrays.arguments import Form, Words, form_of, n_results_of, text_of

Function = TypeVar("Function", bound=Callable[..., Any])

PASSES: dict[str, dict[tuple[Form, ...], Callable[[int, int], None]]] = {}
"""The machine code that this process has loaded, by module and name of each function."""

_PATIENCE_S = 1.0
"""Seconds of compiling before a message, chosen: bitcode takes a fraction of one, numba several."""

_ONE_AT_A_TIME = threading.RLock()


def compiled(function: Function, sources: tuple[str, ...] = ()) -> Function:
    """Function of arrays and numbers as machine code, which runs without the GIL.

    It allocates nothing and raises nothing: it fills arrays, and returns numbers. `sources`: files
    that its code is generated from, besides its own.
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
    """Machine code of a function for arguments of some forms: cached, or made now."""
    from htagraph.arrays import objects  # noqa: PLC0415 - imports LLVM

    name = _name(function, forms, sources)
    machine = sha256(objects.machine_name().encode()).hexdigest()[:16]
    code = code_cache.found(f"{name}-{machine}.o")
    if code is None:
        with code_cache.alone():
            code = code_cache.found(f"{name}-{machine}.o")  # of another process
            if code is None:
                code = _made(function, forms, f"{name}.bc")
                code_cache.keep(f"{name}-{machine}.o", code)
    return objects.callable_of(code)


def _made(function: Callable[..., Any], forms: tuple[Form, ...], name: str) -> bytes:
    """Machine code from shipped or cached bitcode, else from new bitcode."""
    from htagraph.arrays import objects  # noqa: PLC0415 - imports LLVM

    bitcode = code_cache.found(name)
    if bitcode is not None:
        with suppress(RuntimeError):  # this LLVM cannot read bitcode of a later one
            return objects.object_code(bitcode)
    with _announced():
        from htagraph.arrays.lowering import lowered  # noqa: PLC0415 - imports numba

        bitcode = lowered(function, forms)
    code_cache.keep(name, bitcode)
    return objects.object_code(bitcode)


def _name(function: Callable[..., Any], forms: tuple[Form, ...], sources: tuple[str, ...]) -> str:
    """The file name of a function's bitcode, which changes with its sources and constants."""
    files, numbers = _rests_on(function)
    digest = _digest_of((*files, *sources))
    text = f"{function.__qualname__} {text_of((tuple, forms))} {numbers} {digest}"
    return f"{function.__name__.strip('_')}-{sha256(text.encode()).hexdigest()[:20]}"


@cache
def _rests_on(function: Callable[..., Any]) -> tuple[tuple[str, ...], str]:
    """Files of a function and of the functions it calls, and the constants that lowering freezes.

    A constant from another file, such as the code of a rule, can change while this file does not.
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
    """A digest of some files, and of those that turn them into bitcode."""
    lowering = Path(__file__).with_name("lowering.py")
    every = [*files, arguments.__file__, inner.__file__, str(lowering)]
    return sha256(b"".join(Path(file).read_bytes() for file in every)).hexdigest()


@cache
def _say() -> None:
    logging.getLogger("htagraph").warning("compiling, once on this machine …")


@contextmanager
def _announced() -> Iterator[None]:
    """Log a message, once, if the block takes long."""
    timer = threading.Timer(_PATIENCE_S, _say)
    timer.daemon = True
    with suppress(RuntimeError):  # no more threads: only the message is lost
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
