"""What pages share: their head, marks in the colors of labels, commands to paste, and tables.

Commands name the trace and the folder of the page by their whole paths. Tables are rounded for
people, with the exact value in each cell for programs.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import count
from pathlib import Path
from shlex import quote
from string import Template
from typing import Any, NamedTuple

import pandas as pd

from htagraph.model.colors import IDLE
from htagraph.model.columns import heading, quantity
from htagraph.model.kinds import bound_in_words
from htagraph.model.labels import distinct_names, name_label, printable
from htagraph.model.schema import Quantity, Schema
from htagraph.readers.storage import is_remote, url_of
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.plots.drawing import BOUND_COLORS, CAUSE_COLORS
from htagraph.reports.summary import Summary
from htagraph.writers.cells import cell_text
from htagraph.writers.output_file import write_text

_MARKED = CAUSE_COLORS | BOUND_COLORS | {"idle": IDLE}

Texts = defaultdict[str, int]
"""Numbers of texts that a page stores once: names of kernels are long. A new text gets the next."""


def new_texts() -> Texts:
    """No text yet."""
    return defaultdict(count().__next__)


def mark(label: str) -> str:
    """Attribute of an element that shows the color of a bound or a cause before its text."""
    return f' data-key="{escape(label)}"' if label in _MARKED else ""


def legend(names: Iterable[str]) -> str:
    """List of bounds with their colors; empty if any name is no bound."""
    labels = {bound_in_words(name): name for name in BOUND_COLORS}
    told = list(dict.fromkeys(map(bound_in_words, names)))
    if not told or not labels.keys() >= set(told):
        return ""
    items = "".join(f"<li{mark(labels[name])}>{escape(name)}</li>" for name in told)
    return f'<ul class="legend" aria-label="Colors">{items}</ul>'


def resource(name: str) -> str:
    """Text of a file next to this module."""
    return files("htagraph.reports.page").joinpath(name).read_text(encoding="utf-8")


def write_html(out: str | Path, body: str, *, title: str, style: str, **parts: str) -> Path:
    """Write a page, whole or not at all; `parts` fill the placeholders of the file `body`."""
    colors = "\n".join(
        f'[data-key="{name}"] {{ --key: {color.css}; --fill: {color.fill}; --ink: {color.ink}; }}'
        for name, color in _MARKED.items()
    )
    style = f"{resource('page.css')}\n{colors}\n{style}"
    page = Template(resource("head.html") + resource(body))
    text = page.substitute(title=escape(title), style=style, **parts)
    write_text(out, "\n".join(map(printable, text.split("\n"))))
    return Path(out)


@dataclass(frozen=True)
class Commands:
    """What to type to see more of what the page shows."""

    source: str  # The trace, or the folder of a job, as a shell takes it
    window: str = ""  # Option for the window of the page; empty for the default

    @classmethod
    def on(cls, summary: Summary | JobSummary) -> Commands:
        """Commands on the trace or the job of a report."""
        if isinstance(summary, JobSummary):
            asked = summary.job.asked_window
            option = f" -w {quote(asked)}" if isinstance(asked, str) else ""
            return cls(_folder([rank.path for rank in summary.job.summaries.values()]), option)
        trace, window = summary.trace, summary.path.window
        source = shell_path(trace.path) if trace.path else "FILE"
        span = summary.graph.dag.span
        if summary.graph.asked is None:
            return cls(source)
        is_name = window == span or window.name in set(trace.steps["name"])
        times = f"{window.start_ns - span.start_ns}:{window.end_ns - span.start_ns}"
        return cls(source, f" -w {quote(window.name) if is_name else times}")

    def of(self, verb: str) -> str:
        """Command of a verb, in the window of the page."""
        return f"htagraph {verb} {self.source}{self.window}"


def shell_path(path: Path) -> str:
    """A path that is valid in every folder, or a URL, as a shell takes it."""
    whole = url_of(path) if is_remote(path) else str(path.absolute())
    return quote(whole.encode("utf-8", "replace").decode())  # a page is UTF-8


def _folder(files: Sequence[Path]) -> str:
    """The folder that holds all files of a job; a placeholder if none does."""
    if len(files) == 1:
        return shell_path(files[0])
    try:
        return shell_path(Path(os.path.commonpath(files)))
    except ValueError:  # on several drives
        return "FOLDER"


def command_html(command: str, *, file: str = "") -> str:
    """A command with a button that copies it; a `file` next to the page moves with it."""
    beside = f' data-beside="{escape(file)}"' if file else ""
    return (
        f'<span class="command"><code{beside}>{escape(command)}</code> '
        '<button type="button" class="copy">copy</button></span>'
    )


_OPEN_ROWS, KEPT_ROWS = 8, 100
"""Rows shown at first, and rows kept: chosen, so that a page of all tables stays a few MB. Pinned
by test_page.
"""

_NAME_WIDTH = 64
"""Characters of a name in a cell: chosen."""
_PATTERN_WIDTH = 36
"""Characters of each name in a pattern: chosen."""
_NEXT = " → "
_OPENED_BY = "name"


class _Cell(NamedTuple):
    """Text of a cell, its exact value, the bound or cause that marks it, and a share as a bar."""

    text: str
    exact: str = ""
    key: str = ""
    part: float = 0.0


def _cells(name: str, column: pd.Series[Any], origin_ns: int) -> list[_Cell]:
    kind, values = quantity(name, column), column.tolist()
    if kind is Quantity.NAME:
        return _names(values)
    has_key, is_part = kind is Quantity.LABEL, kind is Quantity.SHARE
    return [
        _Cell(
            cell_text(kind, value, origin_ns),
            _exact(value),
            str(value) if has_key else "",
            value if is_part and 0 < value <= 1 else 0.0,
        )
        for value in values
    ]


def _names(values: Sequence[Any]) -> list[_Cell]:
    """Cells of names: short, but distinct; a pattern is several names."""
    short = distinct_names([str(name) for name in values], width=_NAME_WIDTH)
    return [
        _Cell(_NEXT.join(name_label(one, width=_PATTERN_WIDTH) for one in name), _NEXT.join(name))
        if isinstance(name, tuple)
        else _Cell(short[str(name)], str(name))
        for name in values
    ]


def _exact(value: object) -> str:
    """A value in full; empty for a number that is none."""
    return "" if value is None or value != value else str(value)  # noqa: PLR0124  NaN


def short_rule() -> str:
    """CSS that hides the rows of a long table until its button is pressed."""
    return f"table.short:not(.found) tbody tr:nth-child(n + {_OPEN_ROWS + 1}) {{ display: none; }}"


def html_table(
    frame: pd.DataFrame,
    *,
    schema: Schema | None = None,
    origin_ns: int = 0,
    segments: Sequence[int] = (),
    n_rows: int = 0,
    whole: str = "",
    texts: Texts | None = None,
) -> str:
    """Frame as an HTML table that can be sorted; headings tell the meanings of a `schema`.

    `segments`: segment of the path that each name opens. `n_rows`: rows of the whole table if the
    frame has only the first; else 0. `whole`: command that prints all rows.
    """
    meanings = {name: column.meaning for name, column in schema.columns.items()} if schema else {}
    n_rows, shown = n_rows or len(frame), frame.head(KEPT_ROWS)
    heads, cells = [], []
    for name, column in shown.items():
        is_number = column.dtype.kind in "iuf"
        heads.append(_head(str(name), meanings.get(str(name), ""), is_number=is_number))
        of_column = _cells(str(name), column, origin_ns)
        if name == _OPENED_BY and len(segments):
            pairs = zip(of_column, segments, strict=False)
            cells.append([_opening(cell, segment, texts) for cell, segment in pairs])
        else:
            cells.append([_cell(cell, texts, is_number=is_number) for cell in of_column])
    rows = "\n".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    short = " short" if len(shown) > _OPEN_ROWS else ""
    return (
        f'<div class="scroll" tabindex="0"><table class="data{short}">\n'
        f"<thead><tr>{''.join(heads)}</tr></thead>\n<tbody>{rows}</tbody>\n</table></div>"
        f"{_more(len(shown), n_rows, whole)}"
    )


def _more(kept: int, n_rows: int, whole: str) -> str:
    """Button that shows the rest of the table, and a note on rows that the page does not keep."""
    every = f"all {n_rows:,}" if kept == n_rows else f"{kept:,} of {n_rows:,}"
    button = (
        f'<button type="button" class="all" aria-expanded="false">Show {every}</button>'
        if kept > _OPEN_ROWS
        else ""
    )
    cut = f"<span>All rows: {command_html(whole)}</span>" if kept < n_rows and whole else ""
    return f'<p class="note more">{button} {cut}</p>' if button or cut else ""


def _head(name: str, meaning: str, *, is_number: bool) -> str:
    """Heading of a column; hovering shows its meaning."""
    tip = f' title="{escape(meaning)}"' if meaning else ""
    align = ' class="n"' if is_number else ""
    return f"<th{align}{tip}>{escape(heading(name))}</th>"


def _cell(cell: _Cell, texts: Texts | None, *, is_number: bool) -> str:
    """A cell; a number carries its exact value, a shortened name the full one."""
    if is_number:
        part = f' style="--part:{100 * cell.part:.1f}%"' if cell.part else ""
        return f'<td class="n"{part} data-value="{escape(cell.exact)}">{escape(cell.text)}</td>'
    return f"<td{mark(cell.key)}{_tip(cell, texts)}>{escape(cell.text)}</td>"


def _opening(cell: _Cell, segment: int, texts: Texts | None) -> str:
    """A cell with a name that opens a segment of the path."""
    button = f'<button type="button" class="opens" data-segment="{segment}">'
    return f"<td{_tip(cell, texts)}>{button}{escape(cell.text)}</button></td>"


def _tip(cell: _Cell, texts: Texts | None) -> str:
    """Attribute with the full text of a shortened cell, or the numbers of its parts."""
    if cell.text == cell.exact or len(cell.exact) <= len(cell.text):
        return ""
    if texts is None:
        return f' title="{escape(cell.exact)}"'
    # Of a sequence, names are stored one by one: many sequences have the same.
    numbers = " ".join(str(texts[part]) for part in cell.exact.split(_NEXT))
    return f' data-whole="{numbers}"'
