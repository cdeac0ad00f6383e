"""Answers of a bounded length: what fits is there, and what does not is named."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from htagraph.writers.labels import printable

__all__ = [
    "CHARACTERS_PER_TOKEN",
    "LEAST_TOKENS",
    "LONGEST_NAME",
    "MOST_TOKENS",
    "Part",
    "as_json",
    "fitted",
    "plain",
    "rows_part",
]

CHARACTERS_PER_TOKEN = 4
"""By which the length of an answer is estimated."""

LEAST_TOKENS = 300
"""Of an answer: what the trace and the window are, and what was left out, always fit."""

MOST_TOKENS = 50_000
"""Of an answer: whoever wants more reads a report."""

LONGEST_NAME = 120
"""Characters of a name, beyond which it loses its middle unless names are asked for in full."""

_MOST_ROWS = MOST_TOKENS // 5
_DIGITS = 6
_SPARE = 12
"""Characters around a name in what was left out, and digits that a number may gain."""


@dataclass(frozen=True)
class Part:
    """A list in an answer, of which as much is given as fits.

    Parameters
    ----------
    name : str
        Its key.
    items : sequence
        Plain values, the most important first.
    how : str
        How to ask for the rest.
    columns : tuple of str, default=()
        Of a table, whose items are rows.
    offset : int
        Items that were asked to be skipped, before the first.
    n_all : int, optional
        Number of all there are, with those skipped and those that nobody could read.
    """

    name: str
    items: Sequence[Any]
    how: str = ""
    columns: tuple[str, ...] = ()
    offset: int = 0
    n_all: int | None = None

    def first(self, n_items: int) -> Any:  # noqa: ANN401  a list, or a table
        """The part with so many items."""
        shown = list(self.items[:n_items])
        return {"columns": list(self.columns), "rows": shown} if self.columns else shown

    def rest(self, n_items: int) -> str:
        """What is missing after so many items; empty for nothing."""
        n_all = self.offset + len(self.items) if self.n_all is None else self.n_all
        n_left = n_all - self.offset - n_items
        if n_left <= 0:
            return ""
        how = self.how.replace("{next}", str(self.offset + n_items))
        return f"{n_left:,} of {n_all:,} left out: {how}"


@dataclass
class _Room:
    """Characters that are left for an answer."""

    left: int = field(default=0)

    def takes(self, text: str) -> bool:
        """Take a text, if there is room."""
        if len(text) > self.left:
            return False
        self.left -= len(text)
        return True


def as_json(document: Any) -> str:  # noqa: ANN401  plain values
    """JSON without spaces, in which every number is one that JSON has."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def fitted(head: Mapping[str, Any], parts: Iterable[Part], max_tokens: int) -> dict[str, Any]:
    """An answer of at most so many tokens.

    Parameters
    ----------
    head : mapping
        What is always there.
    parts : iterable of Part
        The most important first: it takes what it needs, and the next what is left.
    max_tokens : int
        Estimated as characters / `CHARACTERS_PER_TOKEN`.

    Returns
    -------
    dict
        ``left_out`` says for each part what is missing, and how to ask for it.

    Examples
    --------
    >>> rows = Part("rows", ["a" * 500, "b" * 500, "c" * 500], "offset={next}.")
    >>> fitted({}, [rows], 300)["left_out"]
    {'rows': '1 of 3 left out: offset=2.'}
    """
    parts = [part for part in parts if part.items]
    names = {part.name: len(part.rest(0)) + len(part.name) + _SPARE for part in parts}
    kept = len(as_json(head)) + len('"left_out":{},') + sum(names.values())
    room = _Room(max_tokens * CHARACTERS_PER_TOKEN - kept)
    shown: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for part in parts:
        n_fit = _n_fit(part, room)
        if n_fit:
            shown[part.name] = part.first(n_fit)
        if rest := part.rest(n_fit):
            left_out[part.name] = rest
        else:
            room.left += names[part.name]
    return {**head, **shown, **({"left_out": left_out} if left_out else {})}


def _n_fit(part: Part, room: _Room) -> int:
    """How many items of a part there is room for, which they then take."""
    frame = as_json({part.name: part.first(0)})
    if not room.takes(frame):
        return 0
    n_fit = 0
    for item in part.items:
        if not room.takes(as_json(item) + ","):
            break
        n_fit += 1
    if not n_fit:
        room.left += len(frame)
    return n_fit


def plain(value: Any, *, longest: int | None = LONGEST_NAME) -> Any:  # noqa: ANN401  any value
    r"""A value as JSON has it: no number that is none, and texts without control characters.

    Parameters
    ----------
    longest : int, optional
        Characters from which on a text loses its middle; None for never.

    Examples
    --------
    >>> plain({"share": float("nan"), "dur_ns": np.int64(5), "name": "a\x1b[2Jb"})
    {'share': None, 'dur_ns': 5, 'name': 'a␛[2Jb'}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(one, longest=longest) for key, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(one, longest=longest) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, bool | int):
        return value
    return _shortened(printable(str(value)), longest)


def _shortened(text: str, longest: int | None) -> str:
    """A text without its middle, if it is too long."""
    if longest is None or len(text) <= longest:
        return text
    n_first = longest * 2 // 3
    return f"{text[:n_first]}…{text[n_first + 1 - longest :]}"


def rows_part(
    name: str,
    frame: pd.DataFrame,
    how: str,
    *,
    offset: int = 0,
    limit: int | None = None,
    longest: int | None = LONGEST_NAME,
) -> Part:
    """A table, of which as many rows are given as fit.

    Parameters
    ----------
    name : str
        As of `Part`.
    how : str
        As of `Part`.
    offset, limit : int
        Rows to skip, and how many to give at most.
    longest : int, optional
        As of `plain`.

    Examples
    --------
    >>> rows_part("kernels", pd.DataFrame({"name": ["mm"], "dur_ns": [5]}), "").first(1)
    {'columns': ['name', 'dur_ns'], 'rows': [['mm', 5]]}
    """
    rows = frame.iloc[offset : offset + min(_MOST_ROWS, limit or _MOST_ROWS)]
    columns = [rows.iloc[:, at].astype(object).tolist() for at in range(rows.shape[1])]
    items = [[plain(one, longest=longest) for one in row] for row in zip(*columns, strict=True)]
    return Part(name, items, how, tuple(map(str, frame.columns)), offset, len(frame))
