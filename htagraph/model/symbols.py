"""Interned strings: each distinct string once, rows hold its code."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from htagraph.errors import QueryError

__all__ = ["SymbolTable", "compile_pattern"]

_REGEX_ONLY = re.compile(r"[\^$|(){}+\\]|\.\*|\.\+")


def compile_pattern(pattern: str | re.Pattern[str]) -> Callable[[str], bool]:
    """Test of names by a glob (``"nccl*"``, whole name) or a compiled regex (searched).

    A text with regex-only syntax (``"ProfilerStep#(3|4)"``, ``"^aten"``) that is not the literal
    name of anything is taken as a regex; pass ``re.compile(...)`` to leave no doubt. Square
    brackets stand for themselves in a glob, as event names hold them.

    Examples
    --------
    >>> compile_pattern("nccl*")("ncclDevKernel_AllReduce")
    True
    >>> compile_pattern(re.compile("Dev"))("ncclDevKernel_AllReduce")
    True
    """
    if isinstance(pattern, re.Pattern):
        return lambda name: pattern.search(name) is not None
    if _REGEX_ONLY.search(pattern):
        try:
            regex = re.compile(pattern)
        except re.error as exc:
            raise QueryError(f"{pattern!r} is no regular expression: {exc}.") from exc
        return lambda name: name == pattern or regex.search(name) is not None
    glob = re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
    return lambda name: glob.match(name) is not None


@dataclass(frozen=True)
class SymbolTable:
    """Distinct strings and their codes.

    Parameters
    ----------
    texts : sequence of str
        The strings; the code of a string is its position.

    Examples
    --------
    >>> table = SymbolTable(("aten::mm", "ncclAllReduce"))
    >>> table.code("aten::mm"), table.code("absent")
    (0, -1)
    >>> table.matching("nccl*").tolist()
    [1]
    """

    texts: Sequence[str]

    @classmethod
    def intern(cls, strings: Iterable[str]) -> tuple[SymbolTable, npt.NDArray[np.int32]]:
        """A table and the code of each string, in order of first appearance."""
        seen: dict[str, int] = {}
        codes = np.fromiter((seen.setdefault(text, len(seen)) for text in strings), dtype=np.int32)
        return cls(tuple(seen)), codes

    def __len__(self) -> int:
        """Number of distinct strings."""
        return len(self.texts)

    @cached_property
    def array(self) -> npt.NDArray[np.object_]:
        """The strings as an object array, so that ``array[codes]`` looks up many."""
        out = np.empty(len(self.texts), dtype=object)
        out[:] = self.texts
        return out

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {text: code for code, text in enumerate(self.texts)}

    @cached_property
    def _searched(self) -> dict[re.Pattern[str], npt.NDArray[np.bool_]]:
        """Answers of `searched`: the same names are looked for again and again."""
        return {}

    def code(self, text: str) -> int:
        """Code of a string, -1 if it is not in the table."""
        return self._codes.get(text, -1)

    def mask(self, test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Whether each string passes a test, by code; index it by a code column."""
        return np.fromiter((test(text) for text in self.texts), dtype=bool, count=len(self.texts))

    def searched(self, regex: str | re.Pattern[str]) -> npt.NDArray[np.bool_]:
        """Whether a regular expression is found in each string, by code; read-only."""
        pattern = re.compile(regex)
        if pattern not in self._searched:
            found = self.mask(lambda text: pattern.search(text) is not None)
            found.setflags(write=False)
            self._searched[pattern] = found
        return self._searched[pattern]

    def matching(self, pattern: str | re.Pattern[str]) -> npt.NDArray[np.int32]:
        """Codes of the strings that match a glob or regex, ascending."""
        return np.flatnonzero(self.mask(compile_pattern(pattern))).astype(np.int32)
