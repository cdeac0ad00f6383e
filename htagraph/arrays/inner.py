"""Functions that only compiled functions call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

INNER: dict[Callable[..., Any], Callable[[], Any] | dict[str, Any]] = {}
"""How numba compiles a function: its options, or a maker of an intrinsic."""


def inlined(function: F) -> F:
    """Function that is inlined into the compiled function that calls it."""
    INNER[function] = {"forceinline": True}
    return function


def called(function: F) -> F:
    """Function that a compiled function calls."""
    INNER[function] = {}
    return function


def emitted(make: Callable[[], Any]) -> Callable[[F], F]:
    """Function whose code a numba intrinsic emits, made by `make`."""

    def mark(function: F) -> F:
        INNER[function] = make
        return function

    return mark
