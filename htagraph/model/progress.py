"""How far long work is: told to whoever listens; where nobody does, it costs nothing.

What works says so where it works, as `logging` does, and needs no argument for it. What runs in
another thread or process is not heard; whoever waits for that tells how much of it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

__all__ = ["Listener", "counted", "heard_by", "tell"]

Listener = Callable[[str, int, int, str], None]
"""Called with what is done, how many of them are done, how many there are (0 for not known), and
what is awaited, where that takes long."""

Item = TypeVar("Item")

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener | None) -> Iterator[None]:
    """Tell a listener what is done in the block; None for nobody."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def tell(doing: str, done: int = 0, total: int = 0, awaited: str = "") -> None:
    """Tell what is done now; with numbers, where each of `total` takes about as long.

    Parameters
    ----------
    doing : str
        In a word or two: of a count the noun, as in ``change 3 of 20``.
    awaited : str, optional
        What is not done yet, where that takes long.
    """
    listener = _LISTENER.get()
    if listener is not None:
        listener(doing, done, total, awaited)


def counted(doing: str, items: Collection[Item]) -> Iterator[Item]:
    """Go through items, and tell how many are done; what is told within each is not heard.

    Examples
    --------
    >>> with heard_by(lambda doing, done, total, _: print(doing, done, "of", total)):
    ...     for _ in counted("change", "ab"):
    ...         tell("part of it")
    change 0 of 2
    change 1 of 2
    change 2 of 2
    """
    for done, item in enumerate(items):
        tell(doing, done, len(items))
        with heard_by(None):
            yield item
    tell(doing, len(items), len(items))
