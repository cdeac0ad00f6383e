"""Frames as HTML tables: rounded for people, with the exact value in each cell for programs.

A table shows its first rows and keeps more, which a button shows; what it does not keep it says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import pandas as pd

from htagraph.model.kinds import in_words
from htagraph.model.schema import Column
from htagraph.model.units import human_duration
from htagraph.reports.headings import heading, is_share
from htagraph.reports.page.legend import mark
from htagraph.reports.page.texts import Texts
from htagraph.writers.labels import distinct_names, name_label

__all__ = ["html_table", "kept_of", "kept_rows", "short_rule"]

_SHORT, _LONG = 60, 100

_MAX_CELLS = 2_000

_NAME_WIDTH = 64
_PATTERN_WIDTH = 36
_NEXT = " → "
_NAMES = {"name", "op", "group", "next_name", "call", "frame", "cause_name", "target"}
_TIMES = {"start_ns", "end_ns", "ts_ns"}
_VOCABULARIES = {
    "bound",
    "next_bound",
    "then_bound",
    "cause",
    "cause_bound",
    "kind",
    "why",
    "class",
    "use",
}
_OPENED_BY = "name"


class _Cell(NamedTuple):
    """Text of a cell, its exact value, and the bound or cause whose color marks it."""

    text: str
    exact: str = ""
    key: str = ""


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
        _NEXT.join(name_label(name, width=_PATTERN_WIDTH) for name in value), _NEXT.join(value)
    )


def _flag(value: Any) -> _Cell:  # noqa: ANN401
    return _Cell("yes" if value else "", str(bool(value)))


def _label(value: Any) -> _Cell:  # noqa: ANN401
    return _Cell(in_words(value), str(value), str(value))


def _text(value: Any) -> _Cell:  # noqa: ANN401
    return _Cell(str(value), str(value))


def _shown_by(
    name: str, column: pd.Series[Any], origin_ns: int
) -> tuple[Callable[[Any], _Cell], bool]:
    """Format of the cells of a column, and whether they are numbers."""
    if name in _TIMES:
        return _time(origin_ns), True
    if name.endswith("_ns") or (is_share(name) and name != "chance"):
        return _duration if name.endswith("_ns") else _share, True
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


def kept_rows(frame: pd.DataFrame | None) -> int:
    """Number of rows of a frame that its table keeps.

    Examples
    --------
    >>> [kept_rows(pd.DataFrame({"n": range(n), "m": range(n)})) for n in (1_000, 10_000)]
    [1000, 100]
    """
    return 0 if frame is None else kept_of(*frame.shape)


def kept_of(n_rows: int, n_columns: int) -> int:
    """The same, of a frame that has so many rows and columns."""
    return n_rows if n_rows * n_columns <= _MAX_CELLS else min(n_rows, _LONG)


def short_rule() -> str:
    """Rule of CSS that hides the rows of a long table until its button is pressed, not on paper."""
    rows = f"table.short tbody tr:nth-child(n + {_SHORT + 1})"
    return f"@media screen {{ {rows} {{ display: none; }} }}"


def html_table(
    frame: pd.DataFrame,
    *,
    columns: Mapping[str, Column] | None = None,
    origin_ns: int = 0,
    segments: Sequence[int] = (),
    n_rows: int = 0,
    whole: str = "",
    texts: Texts | None = None,
) -> str:
    """Frame as an HTML table that can be sorted.

    Parameters
    ----------
    frame : DataFrame
        Columns that end in ``_ns`` are durations, except ``start_ns``, ``end_ns`` and ``ts_ns``,
        which count from `origin_ns`. One of more than 2,000 cells is cut, and says so.
    columns : mapping of str to Column, optional
        Columns of the schema, whose meanings are shown on hovering over a heading.
    origin_ns : int, unit=ns
    segments : sequence of int, default=()
        Segment of the path that each name opens.
    n_rows : int
        Rows of the whole table, where the frame has only the first; else 0.
    whole : str
        Command that prints all rows.
    texts : Texts, optional
        Where names are stored that are too long for their cells.

    Examples
    --------
    >>> print(html_table(pd.DataFrame({"name": ["aten::mm<a>"], "dur_ns": [1500]})))
    <div class="scroll"><table class="data">
    <thead><tr><th>name</th><th class="n">dur</th></tr></thead>
    <tbody><tr><td>aten::mm&lt;a&gt;</td><td class="n" data-value="1500">1.50 us</td></tr></tbody>
    </table></div>
    """
    meanings = {name: column.meaning for name, column in (columns or {}).items()}
    kept = kept_rows(frame)
    heads, cells = [], []
    for name in frame.columns:
        column = frame[name].head(kept)
        show, is_number = _shown_by(str(name), column, origin_ns)
        heads.append(_head(str(name), meanings.get(str(name), ""), is_number=is_number))
        shown = [show(value) for value in column.tolist()]
        if name == _OPENED_BY and len(segments):
            pairs = zip(shown, segments, strict=False)
            cells.append([_opening(cell, segment, texts) for cell, segment in pairs])
        else:
            cells.append([_cell(cell, texts, is_number=is_number) for cell in shown])
    rows = "\n".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    short = " short" if kept > _SHORT else ""
    return (
        f'<div class="scroll"><table class="data{short}">\n<thead><tr>{"".join(heads)}</tr></thead>'
        f"\n<tbody>{rows}</tbody>\n</table></div>{_more(kept, n_rows or len(frame), whole)}"
    )


def _more(kept: int, n_rows: int, whole: str) -> str:
    """Button that shows the rows that a table keeps, and a line on those that it does not."""
    every = f"all {n_rows:,}" if kept == n_rows else f"the first {kept:,}"
    button = (
        f'<button type="button" class="all" aria-expanded="false">Show {every} rows</button>'
        if kept > _SHORT
        else ""
    )
    command = f": <code>{escape(whole)}</code> has all" if whole else ""
    cut = f"<span>The first {kept:,} of {n_rows:,} rows{command}.</span>" if kept < n_rows else ""
    return f'<p class="note more">{button} {cut}</p>' if button or cut else ""


def _head(name: str, meaning: str, *, is_number: bool) -> str:
    """Heading of a column, with its meaning on hovering."""
    tip = f' title="{escape(meaning)}"' if meaning else ""
    align = ' class="n"' if is_number else ""
    return f"<th{align}{tip}>{escape(heading(name))}</th>"


def _cell(cell: _Cell, texts: Texts | None, *, is_number: bool) -> str:
    """A cell; numbers carry their exact value, shortened names the whole one."""
    if is_number:
        return f'<td class="n" data-value="{escape(cell.exact)}">{escape(cell.text)}</td>'
    return f"<td{mark(cell.key)}{_tip(cell, texts)}>{escape(cell.text)}</td>"


def _opening(cell: _Cell, segment: int, texts: Texts | None) -> str:
    """A cell with a name that opens a segment of the path."""
    button = f'<button type="button" class="opens" data-segment="{segment}">'
    return f"<td{_tip(cell, texts)}>{button}{escape(cell.text)}</button></td>"


def _tip(cell: _Cell, texts: Texts | None) -> str:
    """Attribute with the whole of a shortened text, or with the numbers of its parts."""
    if cell.text == cell.exact or len(cell.exact) <= len(cell.text):
        return ""
    if texts is None:
        return f' title="{escape(cell.exact)}"'
    # Of a sequence, names are stored one by one: many sequences have the same.
    numbers = " ".join(str(texts.number(part)) for part in cell.exact.split(_NEXT))
    return f' data-whole="{numbers}"'
