"""Frames as HTML tables: rounded for people, with the exact value in each cell for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any, NamedTuple

import pandas as pd

from htagraph.model.kinds import in_words
from htagraph.model.schema import Column
from htagraph.model.units import human_duration
from htagraph.reports.headings import heading
from htagraph.writers.labels import distinct_names, name_label

__all__ = ["html_table"]

_NAME_WIDTH = 64
_PATTERN_WIDTH = 36
_NAMES = {"name", "op", "group", "next_name", "call", "frame", "cause_name", "target"}
_TIMES = {"start_ns", "end_ns", "ts_ns"}
_VOCABULARIES = {"bound", "next_bound", "then_bound", "cause", "cause_bound", "kind", "why"}


class _Cell(NamedTuple):
    """Text of a cell, and its exact value."""

    text: str
    exact: str = ""


def _time(origin_ns: int) -> Callable[[Any], _Cell]:
    """Format of points in time: from the start of the window."""
    return lambda value: _Cell(f"+{human_duration(value - origin_ns)}", str(value))


def _duration(value: Any) -> _Cell:  # noqa: ANN401  cells are of any type
    return _Cell("", "") if pd.isna(value) else _Cell(human_duration(value), str(value))


def _share(value: Any) -> _Cell:  # noqa: ANN401
    return _Cell("", "") if pd.isna(value) else _Cell(f"{value:.1%}", repr(float(value)))


def _number(value: Any) -> _Cell:  # noqa: ANN401
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return _Cell(text, repr(value))


def _id(value: Any) -> _Cell:  # noqa: ANN401
    return _Cell("" if value == -1 else str(value), str(value))


def _names(values: pd.Series[Any]) -> Callable[[Any], _Cell]:
    """Format of names: short, but distinct."""
    short = distinct_names([str(value) for value in values], width=_NAME_WIDTH)
    return lambda value: _Cell(short[str(value)], str(value))


def _pattern(value: Any) -> _Cell:  # noqa: ANN401
    return _Cell(
        " → ".join(name_label(name, width=_PATTERN_WIDTH) for name in value), " → ".join(value)
    )


def _flag(value: Any) -> _Cell:  # noqa: ANN401
    return _Cell("yes" if value else "", str(bool(value)))


def _label(value: Any) -> _Cell:  # noqa: ANN401
    return _Cell(in_words(value), str(value))


def _text(value: Any) -> _Cell:  # noqa: ANN401
    return _Cell(str(value), str(value))


def _shown_by(
    name: str, column: pd.Series[Any], origin_ns: int
) -> tuple[Callable[[Any], _Cell], bool]:
    """Format of the cells of a column, and whether they are numbers."""
    by_ending = {"_ns": _duration, "_share": _share}
    if name in _TIMES:
        return _time(origin_ns), True
    for ending, show in by_ending.items():
        if name.endswith(ending) or name == ending.removeprefix("_"):
            return show, True
    if name == "pattern":
        return _pattern, False
    if column.dtype == bool:
        return _flag, False
    if pd.api.types.is_numeric_dtype(column.dtype):
        return (
            _number
            if name.startswith("n_") or column.dtype.kind == "f" or name == "length"
            else _id
        ), True
    return (_names(column) if name in _NAMES else _label if name in _VOCABULARIES else _text), False


def html_table(
    frame: pd.DataFrame,
    *,
    columns: Mapping[str, Column] | None = None,
    origin_ns: int = 0,
    max_rows: int = 60,
) -> str:
    """Frame as an HTML table that can be sorted.

    Parameters
    ----------
    frame : DataFrame
        Columns that end in ``_ns`` are durations, except ``start_ns``, ``end_ns`` and ``ts_ns``,
        which count from `origin_ns`.
    columns : mapping of str to Column, optional
        Columns of the schema, whose meanings are shown on hovering over a heading.
    origin_ns : int, unit=ns
    max_rows : int, default=60
        The table has the first rows of longer frames, and says so.

    Returns
    -------
    str

    Examples
    --------
    >>> print(html_table(pd.DataFrame({"name": ["aten::mm<a>"], "dur_ns": [1500]})))
    <div class="scroll"><table class="data">
    <thead><tr><th>name</th><th class="n">dur</th></tr></thead>
    <tbody><tr><td>aten::mm&lt;a&gt;</td><td class="n" data-value="1500">1.50 us</td></tr></tbody>
    </table></div>
    """
    meanings = {name: column.meaning for name, column in (columns or {}).items()}
    heads, cells = [], []
    for name in frame.columns:
        show, is_number = _shown_by(str(name), frame[name].head(max_rows), origin_ns)
        heads.append(_head(str(name), meanings.get(str(name), ""), is_number=is_number))
        values = frame[name].head(max_rows).tolist()
        cells.append([_cell(show(value), is_number=is_number) for value in values])
    rows = "\n".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    more = (
        f'<p class="note">The first {max_rows} of {len(frame):,} rows.</p>'
        if len(frame) > max_rows
        else ""
    )
    return (
        f'<div class="scroll"><table class="data">\n<thead><tr>{"".join(heads)}</tr></thead>\n'
        f"<tbody>{rows}</tbody>\n</table></div>{more}"
    )


def _head(name: str, meaning: str, *, is_number: bool) -> str:
    """Heading of a column, with its meaning on hovering."""
    tip = f' title="{escape(meaning)}"' if meaning else ""
    align = ' class="n"' if is_number else ""
    return f"<th{align}{tip}>{escape(heading(name))}</th>"


def _cell(cell: _Cell, *, is_number: bool) -> str:
    """A cell; numbers carry their exact value, shortened names the whole one."""
    if is_number:
        return f'<td class="n" data-value="{escape(cell.exact)}">{escape(cell.text)}</td>'
    tip = (
        f' title="{escape(cell.exact)}"'
        if cell.text != cell.exact and len(cell.exact) > len(cell.text)
        else ""
    )
    return f"<td{tip}>{escape(cell.text)}</td>"
