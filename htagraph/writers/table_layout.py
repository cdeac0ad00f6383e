"""Layout of a table as text: no figure is ever cut.

Names are shortened, if there is no room, to what distinguishes them. Sentences fold. If that is not
enough, the last columns are left out and listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy.typing as npt
import pandas as pd
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from htagraph.model.columns import heading, quantity
from htagraph.model.labels import distinct_names
from htagraph.model.schema import Quantity
from htagraph.writers.cells import Columns, full_names, human_columns

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

    Parameters
    ----------
    width : int
        Of the terminal, in characters.
    keeps_all : bool, default=False
        Leave no column out, even if the table is wider than the terminal.
    in_code : bool, default=False
        Columns and labels are named as in code, not in words.
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
