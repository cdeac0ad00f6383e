"""Interned strings: each distinct string once, rows hold its code."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from htagraph.errors import QueryError
from htagraph.model.arrays import I32, I64, Bools, Texts, brief
from htagraph.model.labels import CUT, is_printed_as

_FEW, _MOST_OPEN = 8, 4
_REGEX_ONLY = re.compile(r"[\^$|(){}+\\]|\.\*|\.\+")

Names = str | re.Pattern[str] | tuple[str | re.Pattern[str], ...]
"""A glob or a regex for names, or several, of which one has to match."""


def compile_pattern(pattern: str | re.Pattern[str]) -> Callable[[str], bool]:
    """Test of names by a glob (``"nccl*"``, whole name) or a compiled regex (searched).

    A text with regex-only syntax (``"ProfilerStep#(3|4)"``, ``"^aten"``) that is not the literal
    name of anything is taken as a regex; pass ``re.compile(...)`` to leave no doubt. Square
    brackets stand for themselves in a glob, as event names hold them.
    """
    if isinstance(pattern, re.Pattern):
        return lambda name: pattern.search(name) is not None
    if _REGEX_ONLY.search(pattern):
        regex = checked_regex(pattern)
        return lambda name: name == pattern or regex.search(name) is not None
    glob = re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
    return lambda name: glob.match(name) is not None


def checked_regex(text: str) -> re.Pattern[str]:
    """A regular expression that can be searched for in any name in bounded time."""
    try:
        regex = re.compile(text)
    except (re.error, RecursionError, OverflowError) as exc:
        raise QueryError(f"{text!r} is no regular expression: {exc}.") from exc
    if _may_take_forever(text):
        raise QueryError(
            f"{text!r} repeats what repeats or has alternatives: it may take for ever.",
            hint="write it without that, or as a glob: 'nccl*'.",
        )
    return regex


def _may_take_forever(pattern: str) -> bool:
    """Whether a regex may match a name in ways that double with each letter, or nearly so.

    Python searches in C, and nothing can stop it.
    """
    from re import _constants, _parser  # type: ignore[attr-defined] # noqa: PLC0415

    n_open = 0

    def explodes(tree: Any, within: bool) -> bool:  # noqa: ANN401
        nonlocal n_open
        for kind, value in tree:
            if kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
                is_open = value[1] > _FEW
                n_open += is_open
                if (is_open and within) or explodes(value[2], within or is_open):
                    return True
            elif kind is _constants.BRANCH:
                if within or any(explodes(one, within) for one in value[1]):
                    return True
            elif kind is _constants.SUBPATTERN and explodes(value[3], within):
                return True
        return False

    return explodes(_parser.parse(pattern), False) or n_open > _MOST_OPEN


def alphabetical(texts: Iterable[str]) -> tuple[Texts, I64]:
    """The distinct strings in alphabetical order, and the place of each string among them.

    `numpy.unique` needs an array of dtype ``str``, in which each takes the room of the longest.
    """
    table, codes = SymbolTable.intern(texts)
    order = sorted(range(len(table)), key=table.texts.__getitem__)
    place = np.empty(len(table), dtype=np.int64)
    place[order] = np.arange(len(table))
    return table.array[order], place[codes]


@brief
@dataclass(frozen=True)
class SymbolTable:
    """Distinct strings and their codes."""

    texts: Sequence[str]  # The strings; the code of a string is its position

    @classmethod
    def intern(cls, strings: Iterable[str]) -> tuple[SymbolTable, I32]:
        """A table and the code of each string, in order of first appearance."""
        seen: dict[str, int] = {}
        codes = np.fromiter((seen.setdefault(text, len(seen)) for text in strings), dtype=np.int32)
        return cls(tuple(seen)), codes

    def __len__(self) -> int:
        """Number of distinct strings."""
        return len(self.texts)

    @cached_property
    def array(self) -> Texts:
        """The strings as an object array, so that ``array[codes]`` looks up many."""
        out = np.empty(len(self.texts), dtype=object)
        out[:] = self.texts
        return out

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {text: code for code, text in enumerate(self.texts)}

    @cached_property
    def _searched(self) -> dict[re.Pattern[str], Bools]:
        """Answers of `searched`: the same names are looked for again and again."""
        return {}

    def code(self, text: str) -> int:
        """Code of a string, -1 if it is not in the table."""
        return self._codes.get(text, -1)

    def mask(self, test: Callable[[str], bool]) -> Bools:
        """Whether each string passes a test, by code; index it by a code column."""
        return np.fromiter((test(text) for text in self.texts), dtype=bool, count=len(self.texts))

    def searched(self, regex: str | re.Pattern[str]) -> Bools:
        """Whether a regular expression is found in each string, by code; read-only."""
        pattern = re.compile(regex)
        if pattern not in self._searched:
            found = self.mask(lambda text: pattern.search(text) is not None)
            found.setflags(write=False)
            self._searched[pattern] = found
        return self._searched[pattern]

    def named(self, pattern: Names) -> Bools:
        """Whether each string matches a glob or regex; if none does, whether it is printed so."""
        if isinstance(pattern, tuple):
            some: Bools = np.logical_or.reduce([self.named(one) for one in pattern])
            return some
        if not isinstance(pattern, str):
            return self.mask(compile_pattern(pattern))
        is_cut = CUT in pattern and self.code(pattern) < 0
        found = self.mask((is_printed_as if is_cut else compile_pattern)(pattern))
        return found if is_cut or found.any() else self.mask(is_printed_as(pattern))
