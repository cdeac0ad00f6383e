"""Texts of a page that it stores once, however often they are told: names of kernels are long."""

from __future__ import annotations

from collections.abc import Iterator


class Texts:
    """Texts by number, in the order in which they were first asked for.

    Examples
    --------
    >>> texts = Texts()
    >>> [texts.number(text) for text in ("gemm", "copy", "gemm")], list(texts)
    ([0, 1, 0], ['gemm', 'copy'])
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Number of a text, a new one if it was not told before."""
        return self._numbers.setdefault(text, len(self._numbers))

    def __iter__(self) -> Iterator[str]:
        """Texts in order of their numbers."""
        return iter(self._numbers)
