"""Answers: frames that Python shows short and with units, as the command line does."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Self

import pandas as pd

from htagraph.model.columns import quantity
from htagraph.model.schema import Quantity, Schema
from htagraph.writers.cells import human_columns
from htagraph.writers.notebook_cell import frame_html

_MAX_ROWS = 10
"""Rows that are shown: chosen, `plain` shows more."""
_WIDTH = 100
"""Characters of a line where there is no terminal: chosen, the lines of this package."""
_NAME_WIDTH = 40
"""Characters of a name in a notebook, whose tables do not know their width: chosen."""
_SELECTING = ("__getitem__", "head", "tail", "nlargest", "nsmallest", "query", "sort_values")
"""Methods that select or order: the values still are what their column says."""
_LEFT = {Quantity.NAME, Quantity.LABEL, Quantity.TEXT}


class _AnyFrame(type):
    """Every DataFrame passes for an answer: `assert_frame_equal` asks for the same class."""

    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, pd.DataFrame)


class Answer(pd.DataFrame, metaclass=_AnyFrame):
    """A DataFrame that Python shows short: values with units, ten rows, the main columns first.

    So are rows and columns that are selected of it. What is computed from it is a plain frame: a
    ratio of times is no time, whatever the name of its column.

    Examples
    --------
    >>> answer = Answer(pd.DataFrame({"name": ["aten::mm"], "dur_ns": [1500], "share": [0.25]}))
    >>> answer
    name       dur_ns  share
    aten::mm  1.50 us  25.0%
    >>> answer.plain
           name  dur_ns  share
    0  aten::mm    1500   0.25
    """

    _metadata = ["main_columns", "other_columns"]  # noqa: RUF012  as pandas declares it
    main_columns: tuple[str, ...] = ()
    other_columns: tuple[str, ...] = ()
    """Columns that are shown first, and those that are not shown."""

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    @classmethod
    def of(cls, frame: pd.DataFrame, schema: Schema, by: object = None) -> Self:
        """Frame of a schema, which says what to show first."""
        answer = cls(frame)
        answer.attrs = frame.attrs
        answer.main_columns = tuple(schema.shown(frame, by))
        answer.other_columns = tuple(frame.columns.difference([*answer.main_columns]))
        return answer

    @property
    def plain(self) -> pd.DataFrame:
        """The same as pandas shows it: all columns, bare numbers."""
        frame = pd.DataFrame(self)
        frame.attrs = self.attrs
        return frame

    def _shown(self) -> pd.DataFrame:
        """Rows and columns that are shown; a named index is a column."""
        rows = self.plain.head(_MAX_ROWS)
        named = [name for name in rows.index.names if name is not None]
        first = [name for name in self.main_columns if name in rows.columns]
        more = [name for name in rows.columns if name not in {*first, *self.other_columns}]
        return rows.reset_index(named)[[*named, *first, *more]]

    def _notes(self, hidden: Iterator[str]) -> list[str]:
        """What one has to know of the answer, and what is not shown."""
        n_more = len(self) - _MAX_ROWS
        columns = ", ".join(hidden)
        parts = [
            f"… {n_more:,} more" if n_more > 0 else "",
            f"not shown: {columns}" if columns else "",
        ]
        said = "; ".join(filter(None, parts))
        hint = f"{said} (.plain has all)" if said else ""
        none = "No rows." if self.empty else ""
        return [*filter(None, [none, hint]), *self.attrs.get("notes", ())]

    @property
    def _is_told(self) -> bool:
        """Whether columns have names that say what they hold."""
        names = [*self.columns, *filter(None, self.index.names)]
        return len({*names}) == len(names) and all(isinstance(name, str) for name in names)

    def __repr__(self) -> str:
        """A table as wide as the terminal."""
        if not self._is_told or not len(self.columns):
            return repr(self.plain)
        from rich.console import Console  # noqa: PLC0415  deferred: few print

        from htagraph.writers.cells import fitted  # noqa: PLC0415

        is_asked = sys.stdout.isatty() or "COLUMNS" in os.environ
        width = shutil.get_terminal_size().columns if is_asked else _WIDTH
        shown = self._shown()
        table, left_out = fitted(shown, width, in_code=True)
        text = io.StringIO()
        console = Console(file=text, width=width, force_jupyter=False, color_system=None)
        console.print(table, crop=False)
        hidden = {*self.columns} - {*shown} | {*left_out}
        notes = self._notes(name for name in self.columns if name in hidden)
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        return "\n".join([*lines, *notes])

    def _repr_html_(self) -> str:
        """The table for a notebook."""
        if not self._is_told:
            return self.plain.to_html(max_rows=_MAX_ROWS)
        shown = self._shown()
        kinds = {name: quantity(name, shown[name]) for name in map(str, shown)}
        lefts = [name for name, kind in kinds.items() if kind in _LEFT]
        folded = [name for name, kind in kinds.items() if kind is Quantity.TEXT]
        notes = self._notes(name for name in self.columns if name not in shown)
        texts = human_columns(shown, width=_NAME_WIDTH, in_code=True)
        return frame_html(texts, notes, lefts=lefts, folded=folded)


def _selecting(name: str) -> Callable[..., Any]:
    """A method of DataFrame whose result is shown as the answer that it is part of."""
    method = getattr(pd.DataFrame, name)

    @wraps(method)
    def select(self: Answer, *args: Any, **options: Any) -> Any:  # noqa: ANN401  as pandas' own
        if name == "query":  # which looks for @names where it is called
            options["level"] = options.get("level", 0) + 1
        found = method(self, *args, **options)
        if not isinstance(found, pd.DataFrame):
            return found
        part = Answer(found)
        part.attrs = found.attrs
        if [*part.columns] == [*self.columns]:
            part.main_columns, part.other_columns = self.main_columns, self.other_columns
        return part

    return select


for _name in _SELECTING:
    setattr(Answer, _name, _selecting(_name))
