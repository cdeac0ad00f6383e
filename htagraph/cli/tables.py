"""Frames as text: a table for people, or CSV, JSON and Markdown for what comes next."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from htagraph.errors import QueryError, one_of
from htagraph.model.colors import COLORS
from htagraph.model.columns import heading
from htagraph.model.labels import printable
from htagraph.writers.cells import Columns, fitted, human_frame
from htagraph.writers.output_file import write_text

if TYPE_CHECKING:  # the answer to one question needs no summary
    from htagraph.findings.verdict import Paragraph
    from htagraph.reports.job_summary import JobSummary
    from htagraph.reports.summary import Summary

BAR_WIDTH = 24
"""Characters of the bar for 100%: chosen, to leave room for names at 80 columns."""
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a spreadsheet takes for the beginning of a formula, also in full width."""
_STYLES = {"headline": "bold", "damage": "yellow", "card": "bold", "note": "dim"}
"""How the parts of a verdict look on a terminal."""
_COLORS = {bound.label: color.fill for bound, color in COLORS.items()}
SCREEN_WIDTH = 88
"""Columns of the screen of a report: chosen, longer lines are hard to read."""
_GAP = 2
"""Columns between a title, a bar and a cost."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Format(StrEnum):
    """Formats of a table."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MD = "md"


def bar(share: float) -> str:
    """Bar whose length is a share of 1."""
    eighths = round(max(0.0, min(share, 1.0)) * BAR_WIDTH * 8)
    full, rest = divmod(eighths or (share > 0), 8)
    return "█" * full + _EIGHTHS[rest].strip()


def _print_table(
    console: Console, frame: pd.DataFrame | Columns, *, header: bool = True, keeps_all: bool = False
) -> list[str]:
    """Print a frame as a table; the result names the columns for which there was no room."""
    table, left_out = fitted(frame, console.width, header=header, keeps_all=keeps_all)
    console.print(table, crop=False)
    return left_out


def print_titled(
    console: Console, title: str, shown: pd.DataFrame | Table, *, header: bool = True
) -> None:
    """Print a table under its title, after an empty line; of a frame, as many columns as fit."""
    console.print()
    console.print(title, style="bold")
    if isinstance(shown, pd.DataFrame):
        _print_table(console, shown, header=header)
    else:
        console.print(shown)


def print_facts(console: Console, summary: Summary | JobSummary, caveats: Sequence[str]) -> None:
    """Print what the trace is, and what one has to know to read what follows."""
    from htagraph.findings.verdict import Paragraph, wrapped  # noqa: PLC0415 - only for reports

    width = min(console.width, SCREEN_WIDTH)
    said = [(f"{summary.name} · {summary.facts}", ""), *((caveat, "yellow") for caveat in caveats)]
    for text, style in said:
        for line in wrapped(Paragraph("note", text), width):
            console.print(Text(line, style=style), soft_wrap=True)
    console.print()


def print_verdict(console: Console, summary: Summary | JobSummary) -> None:
    """Print the screen of a report: facts, caveats, and the verdict."""
    from htagraph.findings.verdict import Paragraph  # noqa: PLC0415 - only for reports

    print_facts(console, summary, summary.window_caveats)
    paragraphs = [*summary.verdict.paragraphs, *(Paragraph("note", one) for one in summary.notes)]
    print_paragraphs(console, paragraphs)


def print_paragraphs(console: Console, paragraphs: Iterable[Paragraph]) -> None:
    """Print the paragraphs of a verdict; next to the title of a card is its cost as a bar."""
    from htagraph.findings.verdict import wrapped  # noqa: PLC0415 - only for reports

    width = min(console.width, SCREEN_WIDTH)
    for one in paragraphs:
        if one.opens:
            console.print()
        first, *rest = wrapped(one, width)
        said = Text(first, style=_STYLES.get(one.role, ""))
        if one.cost:
            title = first[: width - len(one.cost)].rstrip()
            drawn = Text(f"{bar(one.share):<{BAR_WIDTH}}", style=_COLORS.get(one.bound, ""))
            room = width - len(title) - len(one.cost) - BAR_WIDTH - 2 * _GAP
            if room >= 0:
                said = Text(title, style="bold") + Text(" " * (room + _GAP)) + drawn
                said += Text(" " * _GAP + one.cost, style="bold")
        console.print(said, soft_wrap=True)
        for line in rest:
            console.print(Text(line, style=_STYLES.get(one.role, "")), soft_wrap=True)


def print_frame(
    console: Console,
    frame: pd.DataFrame | Columns,
    form: Format,
    *,
    columns: str = "",
    first: Sequence[str] = (),
    aside: Console | None = None,
) -> None:
    """Print a frame; tables and Markdown are for people: they round and abbreviate.

    `columns`: those that the user asked for. `first`: those of a table by default; all if there are
    none. `aside`: where the others are named.
    """
    names = _picked([*map(str, frame)], columns)
    if form is Format.TABLE:
        default = names if columns else [name for name in first if name in names] or names
        shown = {name: frame[name] for name in default}
        left_out = {*_print_table(console, shown, keeps_all=bool(columns))}
        hidden = [name for name in map(str, frame) if name not in shown or name in left_out]
        if hidden and aside is not None and not columns:
            aside.print(
                f"Not shown: {', '.join(hidden)}. --columns NAME,… shows them, --columns all all.",
                style="dim",
            )
        return
    picked = (frame if isinstance(frame, pd.DataFrame) else pd.DataFrame(frame))[names]
    match form:
        case Format.CSV:
            console.file.write(csv_text(picked))
        case Format.JSON:
            from htagraph.reports.json_document import records  # noqa: PLC0415 - only for JSON

            console.file.write(json.dumps(records(picked), indent=2, default=str) + "\n")
        case Format.MD:
            from htagraph.reports.markdown import markdown_table  # noqa: PLC0415  deferred

            console.file.write(markdown_table(human_frame(picked)) + "\n")


def write_document(document: dict[str, Any], json_file: str) -> Path | None:
    """Write a document as JSON, or print it for `-`; the file, None if printed."""
    text = json.dumps(document, indent=2, default=str) + "\n"
    if json_file == "-":
        typer.echo(text, nl=False)
        return None
    write_text(json_file, text)
    return Path(json_file)


def csv_text(frame: pd.DataFrame) -> str:
    r"""Frame as CSV; no name in it is a formula for a spreadsheet, or controls a terminal."""
    shown = frame.copy(deep=False)
    for name in frame.columns:
        if not pd.api.types.is_numeric_dtype(frame[name].dtype):
            cells = [_csv_cell(value) for value in frame[name].tolist()]
            shown[name] = pd.Series(cells, index=frame.index, dtype=object)
    return shown.to_csv(index=False, lineterminator="\n")


def _csv_cell(value: object) -> object:
    """Text of a cell: with an apostrophe where it would be a formula."""
    if not isinstance(value, str):
        return value
    shown = printable(value)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown


def _picked(names: Sequence[str], columns: str) -> Sequence[str]:
    """Columns that a user asked for, by name or by heading."""
    if columns in ("", "all"):
        return names
    known = {heading(name): name for name in names} | {name: name for name in names}
    asked = [name.strip() for name in columns.split(",")]
    if unknown := [name for name in asked if name not in known]:
        raise QueryError(f"there is no column {unknown[0]!r}.", hint=one_of(unknown[0], names))
    return [known[name] for name in asked]
