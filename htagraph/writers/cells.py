"""Tables for people: durations with units, shares in percent, short names.

No figure is ever cut. Names are shortened, if there is no room, to what distinguishes them, and
sentences fold. If that is not enough, the last columns are left out and listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import isnan
from typing import Any, NamedTuple

import numpy.typing as npt
import pandas as pd
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from htagraph.model.columns import heading, quantity
from htagraph.model.kinds import bound_in_words, in_words
from htagraph.model.labels import distinct_names, name_label, printable
from htagraph.model.schema import Quantity
from htagraph.model.units import human_duration, human_number

Columns = Mapping[str, "pd.Series | npt.NDArray[Any]"]
"""Columns of a table, where no frame is needed."""

_FORMATS: dict[Quantity, Callable[[Any], str]] = {
    Quantity.INSTANT: lambda value: f"+{human_duration(value)}",
    Quantity.DURATION: human_duration,
    Quantity.SHARE: "{:.1%}".format,
    Quantity.COUNT: lambda value: human_number(value) if value >= 0 else "",
    Quantity.NUMBER: human_number,
    Quantity.IDENTIFIER: lambda value: printable(str(value)) if value != -1 else "",
    Quantity.FLAG: lambda value: "yes" if value else "",
    Quantity.LABEL: lambda value: printable(in_words(value)),
    Quantity.NAME: lambda value: printable(str(value)),
    Quantity.TEXT: lambda value: printable(str(value)),
}


def human_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Frame of texts under headings; instants count from the first one."""
    out = pd.DataFrame(index=frame.index)
    for name, texts in human_columns(frame).items():
        out[name] = texts
    return out.rename(columns=heading)


def human_columns(
    columns: pd.DataFrame | Columns, *, width: int = 60, in_code: bool = False
) -> dict[str, list[str]]:
    """Columns of a frame, or arrays, as texts; labels are those of code, or in words."""
    kinds = {str(name): quantity(str(name), values) for name, values in columns.items()}
    instants = [columns[name] for name, kind in kinds.items() if kind is Quantity.INSTANT]
    firsts = [times.min() for times in instants if len(times)]
    origin_ns = int(min((one for one in firsts if not _is_unknown(one)), default=0))
    texts = {}
    for name, kind in kinds.items():
        if kind is Quantity.NAME:
            names = full_names(columns[name])
            short = distinct_names(names, width=width)
            texts[name] = [short[one] for one in names]
        elif kind is Quantity.LABEL and in_code:
            texts[name] = [printable(str(value)) for value in columns[name].tolist()]
        else:
            texts[name] = [cell_text(kind, one, origin_ns, name) for one in columns[name].tolist()]
    return texts


def cell_text(kind: Quantity, value: Any, origin_ns: int = 0, name: str = "") -> str:  # noqa: ANN401  of any column
    """A value of a column as people read it; empty for what is not known."""
    if _is_unknown(value):
        return ""
    if kind is Quantity.LABEL and name.endswith("bound"):
        return printable(bound_in_words(value))
    if kind is Quantity.INSTANT:
        value -= origin_ns
    return _FORMATS[kind](value)


def _is_unknown(value: object) -> bool:
    """Whether a value is none, or not known: pandas has a type for that, and is not loaded here."""
    is_nan = isinstance(value, float) and isnan(value)
    return value is None or is_nan or type(value).__name__ == "NAType"


def full_names(column: pd.Series | npt.NDArray[Any]) -> list[str]:
    """Names of a column in full; a pattern is several short ones, one after the other."""
    return [
        " → ".join(map(name_label, name))
        if isinstance(name, tuple)
        else ("" if name is None else printable(str(name)))
        for name in column.tolist()
    ]


_LEAST_NAME, _LEAST_SENTENCE = 16, 24
"""Chosen: fewest characters of a shortened name, and of a folded sentence."""
_GAP = 2
"""Characters between two columns, as rich prints them."""
_MIN_COLUMNS = 2
"""Chosen: columns that even a narrow terminal shows."""


class _Column(NamedTuple):
    """A column, the width that it needs at least, and the one at which nothing is shortened."""

    name: str
    heading: str
    cells: list[str]
    least: int
    whole: int
    is_name: bool
    folds: bool
    is_left: bool

    @classmethod
    def of(
        cls,
        named: tuple[str, str],
        values: pd.Series | npt.NDArray[Any],
        cells: list[str],
        *,
        header: bool,
    ) -> _Column:
        """Column of a name and title, with its cells as texts; of names, they stay in full."""
        name, title = named
        kind = quantity(name, values)
        is_name, folds = kind is Quantity.NAME, kind is Quantity.TEXT
        cells = full_names(values) if is_name else cells
        head = cell_len(title) if header else 0
        whole = max([head, *map(cell_len, cells)])
        least = max(
            head, min(whole, _LEAST_NAME if is_name else _LEAST_SENTENCE if folds else whole)
        )
        is_left = is_name or folds or values.dtype.kind not in "biuf"
        return cls(name, title, cells, least, whole, is_name, folds, is_left)


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Widths of columns: what is left beyond the least goes to those that lack least."""
    given = [column.least for column in columns]
    room = max(0, width - sum(given) - _GAP * (len(columns) - 1))
    lacking = sorted(range(len(columns)), key=lambda at: columns[at].whole - columns[at].least)
    for n_done, at in enumerate(lacking):
        more = min(columns[at].whole - columns[at].least, room // (len(lacking) - n_done))
        given[at], room = given[at] + more, room - more
    return given


def fitted(
    frame: pd.DataFrame | Columns,
    width: int,
    *,
    header: bool = True,
    keeps_all: bool = False,
    in_code: bool = False,
) -> tuple[Table, list[str]]:
    """Frame as a table that fits the terminal, and the columns for which there is no room.

    `keeps_all`: leave no column out, even if the table is wider than the terminal.
    """
    columns = [
        _Column.of((name, name if in_code else heading(name)), frame[name], texts, header=header)
        for name, texts in human_columns(frame, in_code=in_code).items()
    ]
    ends = list(accumulate((column.least + _GAP for column in columns), initial=-_GAP))[1:]
    n_fit = sum(end <= width for end in ends)
    shown = columns if keeps_all else columns[: max(_MIN_COLUMNS, n_fit)]
    widths, cells = _filled(shown, width)
    table = Table(box=None, pad_edge=False, show_header=header, header_style="dim")
    for column, given in zip(shown, widths, strict=True):
        table.add_column(
            Text(column.heading),
            justify="left" if column.is_left else "right",
            min_width=given,
            max_width=given,
            overflow="fold" if column.folds else "ellipsis",
            no_wrap=not column.folds,
        )
    for row in zip(*cells, strict=True):
        table.add_row(*map(Text, row))
    # A fixed width: rich would shrink figures, too, where the terminal is narrower.
    table.width = sum(widths) + _GAP * (len(shown) - 1)
    return table, [column.name for column in columns[len(shown) :]]


def _filled(columns: Sequence[_Column], width: int) -> tuple[list[int], list[list[str]]]:
    """Widths and cells of columns; what a short name leaves free goes to the others."""
    columns = list(columns)
    while True:
        widths = _widths(columns, width)
        cells = [_shortened(column, given) for column, given in zip(columns, widths, strict=True)]
        used = [
            max([column.least, *map(cell_len, texts)]) if column.is_name else given
            for column, texts, given in zip(columns, cells, widths, strict=True)
        ]
        # Wide characters may need more than was given: then rich cuts them.
        if all(need >= given for need, given in zip(used, widths, strict=True)):
            return widths, cells
        columns = [
            column._replace(whole=need) if need < given else column
            for column, need, given in zip(columns, used, widths, strict=True)
        ]


def _shortened(column: _Column, width: int) -> list[str]:
    """Cells of a column; names for which there is no room are short, and stay distinct."""
    if not column.is_name or all(cell_len(cell) <= width for cell in column.cells):
        return column.cells
    short = distinct_names(column.cells, width=width)
    return [cell if cell_len(cell) <= width else short[cell] for cell in column.cells]
