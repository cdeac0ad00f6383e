"""Functions that only machine code calls: what they become is known when one is lowered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["INNER", "called", "emitted", "inlined"]

F = TypeVar("F", bound=Callable[..., Any])

INNER: dict[Callable[..., Any], Callable[[], Any] | dict[str, Any]] = {}
"""What numba takes for a function: options to compile it with, or what makes the code."""


def inlined(function: F) -> F:
    """A function that becomes part of the compiled function that calls it."""
    INNER[function] = {"forceinline": True}
    return function


def called(function: F) -> F:
    """A function that compiled code calls."""
    INNER[function] = {}
    return function


def emitted(make: Callable[[], Any]) -> Callable[[F], F]:
    """A function whose code an intrinsic of numba emits, which `make` makes."""

    def mark(function: F) -> F:
        INNER[function] = make
        return function

    return mark
