"""Objects in notebooks: small HTML without scripts, with inline styles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from itertools import zip_longest

import pandas as pd

from htagraph.model.colors import COLORS
from htagraph.model.kinds import bound_in_words
from htagraph.model.labels import printable
from htagraph.model.units import human_duration

_COLORS = {bound.label: color.css for bound, color in COLORS.items()}

_CELL = "text-align:{align};padding:1px 1em 1px 0;border:0;white-space:{space}"
_MARK = "display:inline-block;width:1em;height:0.8em;"


def escaped(text: str) -> str:
    """Text of a trace as HTML: names of events are data, never markup."""
    return escape(printable(text))


def frame_html(
    columns: Mapping[str, Sequence[str]],
    notes: Iterable[str],
    *,
    lefts: Collection[str],
    folded: Collection[str],
) -> str:
    """Columns of texts as a table with notes below it: names to the left, and folded prose."""
    aligns = ["left" if name in lefts else "right" for name in columns]
    spaces = ["normal" if name in folded else "nowrap" for name in columns]
    cells = [(name, *texts) for name, texts in columns.items()]
    head, *body = ("".join(map(_cell, row, aligns, spaces)) for row in zip(*cells, strict=True))
    rows = "".join(f"<tr>{row}</tr>" for row in body)
    said = "".join(f'<div style="opacity:0.7">{escaped(note)}</div>' for note in notes)
    return f'<table><thead style="opacity:0.7">{head}</thead>{rows}</table>{said}'


def table_html(rows: Iterable[Sequence[str]], *, title: str, colors: Sequence[str] = ()) -> str:
    """A small table below a title, of text and numbers; rows may have marks in a color of CSS."""
    body = ""
    for row, color in zip_longest(rows, colors, fillvalue=""):
        cells = (_cell(cell, "right" if place else "left") for place, cell in enumerate(row))
        body += f"<tr>{_mark(color)}{''.join(cells)}</tr>"
    return f"<div><b>{escaped(title)}</b></div><table>{body}</table>"


def _cell(text: str, align: str, space: str = "normal") -> str:
    return f'<td style="{_CELL.format(align=align, space=space)}">{escaped(text)}</td>'


def _mark(color: str) -> str:
    style = _CELL.format(align="left", space="normal")
    mark = f'<span style="{_MARK}background:{color}"></span>'
    return f'<td style="{style}">{mark}</td>' if color else ""


def path_html(title: str, by_bound: pd.DataFrame) -> str:
    """A critical path: one bar, and the time of each bound."""
    columns = (by_bound["dur_ns"].tolist(), by_bound["share"].tolist())
    parts = list(zip(by_bound.index.astype(str), *columns, strict=True))
    told = {bound: f"{bound_in_words(bound)} {share:.1%}" for bound, _, share in parts}
    bar = "".join(
        f'<span title="{told[bound]}" style="display:inline-block;height:12px;'
        f'width:{share:.4%};background:{_COLORS[bound]}"></span>'
        for bound, _, share in parts
    )
    rows = [
        (bound_in_words(name), human_duration(dur_ns), f"{share:.1%}")
        for name, dur_ns, share in parts
    ]
    table = table_html(rows, title=title, colors=[_COLORS[bound] for bound, _, _ in parts])
    look = 'style="line-height:0;max-width:60em"'
    return f'{table}<div role="img" aria-label="{", ".join(told.values())}" {look}>{bar}</div>'
