"""Compile a sequential pass with numba at its first call.

numba takes a third of a second to import, so nothing imports it before a pass is needed; compiled
code is cached on disk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Function that numba compiles at its first call; cached on disk, without the GIL."""
    machine_code: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def call(*args: Any) -> Any:  # noqa: ANN401
        if not machine_code:
            import numba  # noqa: PLC0415  deferred: see the module's docstring

            machine_code.append(numba.njit(cache=True, nogil=True)(function))
        return machine_code[0](*args)

    return call  # type: ignore[return-value]
