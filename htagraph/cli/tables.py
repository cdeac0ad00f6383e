"""Frames as text: a table for people, or CSV, JSON and Markdown for what comes next."""

from __future__ import annotations

import json
from enum import StrEnum

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from htagraph.model.units import human_duration
from htagraph.report.job_summary import JobSummary
from htagraph.report.json_document import records
from htagraph.report.markdown import human_frame, markdown_table
from htagraph.report.summary import Summary

__all__ = ["Format", "bar", "print_frame", "print_head", "print_titled", "rich_table"]

_BAR_WIDTH = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Format(StrEnum):
    """Formats of a table."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MD = "md"


def bar(share: float) -> str:
    """Bar whose length is a share of 1.

    Examples
    --------
    >>> bar(0.5), bar(0.01)
    ('████████████', '▎')
    """
    eighths = round(max(0.0, min(share, 1.0)) * _BAR_WIDTH * 8)
    full, rest = divmod(eighths or (share > 0), 8)
    return "█" * full + _EIGHTHS[rest].strip()


def rich_table(frame: pd.DataFrame, *, header: bool = True) -> Table:
    """Frame as a table for people: units, short names, numbers on the right."""
    table = Table(box=None, pad_edge=False, show_header=header, header_style="dim")
    texts = human_frame(frame)
    for name, title in zip(frame.columns, texts.columns, strict=True):
        is_text = name in (
            "name",
            "op",
            "check",
            "consequence",
            "detail",
            "found_by",
            "kind",
            "meaning",
            "options",
            "track",
            "rule",
            "step",
        ) or (name.endswith("bound"))
        folds = name in ("consequence", "detail", "check", "meaning", "options")
        table.add_column(
            title,
            justify="left" if is_text else "right",
            overflow="fold" if folds else "ellipsis",
            no_wrap=not folds,
        )
    for row in texts.astype(str).to_numpy().tolist():
        table.add_row(*(Text(cell) for cell in row))
    return table


def print_titled(console: Console, title: str, table: Table) -> None:
    """Print a table under its title, after an empty line."""
    console.print()
    console.print(title, style="bold", markup=False)
    console.print(table)


def print_head(console: Console, summary: Summary | JobSummary) -> None:
    """Print the head of a report: facts, caveats, first findings with evidence and advice."""
    verdict = summary.verdict
    console.print(summary.name, style="bold", markup=False)
    console.print(summary.facts, markup=False)
    for caveat in summary.caveats:
        console.print(caveat, style="yellow", markup=False)
    console.print()
    console.print(
        f"[bold]What bounds {escape(summary.window_name)}[/] "
        f"({human_duration(summary.path.dur_ns)})"
    )
    if verdict.withheld:
        console.print(
            Padding(
                Text(f"No verdict: {verdict.withheld}", style="yellow"), (0, 0, 0, 2), expand=False
            )
        )
    for number, finding in enumerate(verdict.top_findings, start=1):
        console.print(f"  {number}. [bold]{escape(finding.sentence)}[/]")
        console.print(
            Padding(Text(f"largest: {finding.evidence_sentence}"), (0, 0, 0, 5), expand=False)
        )
        console.print(
            Padding(Text(f"try: {finding.to_try}", style="italic"), (0, 0, 0, 5), expand=False)
        )
    if verdict.ranking:
        console.print(Padding(Text(verdict.ranking, style="dim"), (0, 0, 0, 2), expand=False))


def print_frame(console: Console, frame: pd.DataFrame, form: Format) -> None:
    """Print a frame; tables and Markdown are for people: they round and abbreviate."""
    match form:
        case Format.TABLE:
            console.print(rich_table(frame))
        case Format.CSV:
            console.file.write(frame.to_csv(index=False))
        case Format.JSON:
            console.file.write(json.dumps(records(frame), indent=2, default=str) + "\n")
        case Format.MD:
            console.file.write(markdown_table(human_frame(frame)) + "\n")
