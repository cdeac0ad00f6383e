"""What a schema is: the columns of a table, and all that is known of each.

A schema is a contract: same columns, same dtypes, same order, also for an empty answer. It is the
only description of a column: the terminal, the page, Markdown and the reference read there how
values are formatted, what the heading is, what the column means and whether it is shown first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.errors import GraphError


def categorical(codes: npt.ArrayLike, labels: Sequence[str]) -> pd.Categorical[str]:
    """Column of labels, given by their positions."""
    return pd.Categorical.from_codes(np.asarray(codes), categories=pd.Index(list(labels)))


def labelled(values: Sequence[str] | pd.Series[str], labels: Sequence[str]) -> pd.Categorical[str]:
    """Column of labels, given as texts."""
    return categorical(pd.Index(list(labels)).get_indexer(pd.Index(values)), labels)


class Quantity(StrEnum):
    """What the values of a column are, which decides how people see them."""

    INSTANT = "instant"
    """Shown as the time since the start of the window."""
    DURATION = "duration"
    SHARE = "share"
    """A part of 1, shown in percent."""
    COUNT = "count"
    """Shown as nothing if negative: not known."""
    NUMBER = "number"
    """Any number, of any sign."""
    IDENTIFIER = "identifier"
    """Shown as nothing if -1: none."""
    FLAG = "flag"
    LABEL = "label"
    """A word of htagraph's own vocabulary, never shortened."""
    NAME = "name"
    """A name from the trace: long ones are shortened."""
    TEXT = "text"
    """Prose, which may wrap."""


@dataclass(frozen=True)
class Column:
    """One column of a schema."""

    meaning: str  # A phrase
    # ``int64``, ``float64``, ``bool``, ``category``, or ``object``: text and ids of mixed type
    dtype: str
    unit: str  # ``ns``, ``share`` (of 1), ``count``, ``event``, ``edge``, ``name`` …
    quantity: Quantity
    heading: str = ""  # What people see; by default the name in words, without its unit


@dataclass(frozen=True)
class Schema:
    """Columns of a frame, in order."""

    name: str  # Name of the constant that the schema is
    columns: Mapping[str, Column]
    # Columns that a table shows unless others are requested, the most important first, separated by
    # spaces; empty for all
    first: str = ""
    # The same where an option of the question gives other rows, by its value
    first_by: Mapping[str, str] = field(default_factory=dict)

    def shown(self, given: Iterable[object], by: object = None) -> list[str]:
        """Columns of a frame of this schema that a table shows; capture and rank come first.

        `given`: columns of the frame. `by`: value of the option that decides which rows there are.
        """
        names = [*map(str, given)]
        first = self.first_by.get(str(by), self.first).split() or names
        return [name for name in dict.fromkeys(["capture", "rank", *first]) if name in names]

    def frame(self, data: Mapping[str, object], *, copy: bool = True) -> pd.DataFrame:
        """DataFrame of this schema; every column must be given.

        Without a copy, columns of the right type become the frame's own.
        """
        if set(data) != set(self.columns):
            raise GraphError(
                f"{self.name}: columns {sorted(set(data) ^ set(self.columns))} differ from the "
                "schema."
            )
        # Typed column by column: what pandas infers from text would be converted twice. Columns are
        # not stacked by type, which would copy them again.
        return pd.DataFrame(
            {
                name: pd.Series(data[name], dtype=column.dtype, copy=None if copy else False)
                for name, column in self.columns.items()
            },
            copy=False,
        )

    def empty(self) -> pd.DataFrame:
        """DataFrame of this schema without rows."""
        return pd.DataFrame(
            {name: pd.Series([], dtype=column.dtype) for name, column in self.columns.items()}
        )


def schema(
    name: str,
    first: str = "",
    first_by: Mapping[str, str] | None = None,
    /,
    **columns: Column | str,
) -> Schema:
    """Schema whose columns are given by their meaning alone where the name says the quantity.

    `first`, `first_by`: columns that a table shows, as in `Schema`.
    """
    described = {
        key: _by_name(key, column) if isinstance(column, str) else column
        for key, column in columns.items()
    }
    return Schema(name, described, first, first_by or {})


def _by_name(name: str, meaning: str) -> Column:
    """Column whose name says what it holds, by its first or last part."""
    if name in ("start_ns", "end_ns", "ts_ns"):
        return instant(meaning)
    first, last = name.partition("_")[0], name.rpartition("_")[2]
    return (_BY_FIRST.get(first) or _BY_LAST[last])(meaning)


def number(unit: str, meaning: str, *, dtype: str = "float64") -> Column:
    """Column of measured values and differences, of any unit and sign."""
    return Column(meaning, dtype, unit, Quantity.NUMBER)


instant = partial(Column, dtype="int64", unit="ns", quantity=Quantity.INSTANT)
duration = partial(Column, dtype="int64", unit="ns", quantity=Quantity.DURATION)
count = partial(Column, dtype="int64", unit="count", quantity=Quantity.COUNT)
share = partial(Column, dtype="float64", unit="share", quantity=Quantity.SHARE)
# Ids, ranks, and positions in a table or in time
identifier = partial(Column, dtype="int64", unit="id", quantity=Quantity.IDENTIFIER)
flag = partial(Column, dtype="bool", unit="flag", quantity=Quantity.FLAG)
label = partial(Column, dtype="category", unit="name", quantity=Quantity.LABEL)
name = partial(Column, dtype="object", unit="name", quantity=Quantity.NAME)
text = partial(Column, dtype="object", unit="text", quantity=Quantity.TEXT)
"""Column of a quantity, by its meaning."""

_BY_FIRST: dict[str, Callable[[str], Column]] = {"n": count, "is": flag}
_BY_LAST: dict[str, Callable[[str], Column]] = {"ns": duration, "share": share}

EVENT = identifier("row of the event table", unit="event")
STEP: dict[str, Column | str] = {
    "step": identifier("position in time"),
    "name": name("name of the step"),
    "start_ns": "start of the host range",
    "dur_ns": "length of the host range",
}
TRACK = name("thread id of host work, `stream n` of device work", unit="id")
