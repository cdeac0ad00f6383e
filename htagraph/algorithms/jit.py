"""Compile a sequential pass with numba at its first call.

numba takes a third of a second to import, so nothing imports it before a pass is needed; compiled
code is cached on disk.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["compiled", "machine_code"]

Function = TypeVar("Function", bound=Callable[..., Any])

_BROKEN = (OSError, EOFError, ValueError, KeyError, pickle.PickleError)
"""What a cache on a full or a damaged disk raises."""


def machine_code(function: Function, **options: Any) -> Any:  # noqa: ANN401  numba's dispatcher
    """Machine code of a function, compiled at its first call and kept on disk.

    Where it cannot be kept (nothing can be written, the disk is full) or read again, each process
    compiles anew.
    """
    import numba  # noqa: PLC0415  deferred: see the module's docstring

    try:
        dispatcher = numba.njit(**options, cache=True)(function)
    except RuntimeError:  # no folder that can be written
        return numba.njit(**options)(function)
    with suppress(AttributeError):
        cache = dispatcher._cache  # noqa: SLF001  numba has no setting for it
        for name in ("load_overload", "save_overload"):
            setattr(cache, name, _or_none(getattr(cache, name)))
    return dispatcher


def _or_none(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a cache that gives nothing where the cache is broken."""

    @functools.wraps(method)
    def call(*args: Any) -> Any:  # noqa: ANN401
        with suppress(*_BROKEN):
            return method(*args)
        return None

    return call


def compiled(function: Function) -> Function:
    """Function that numba compiles at its first call; cached on disk, without the GIL."""
    dispatcher: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def call(*args: Any) -> Any:  # noqa: ANN401
        if not dispatcher:
            dispatcher.append(machine_code(function, nogil=True))
        return dispatcher[0](*args)

    return call  # type: ignore[return-value]
