"""Sections and panels as HTML."""

from __future__ import annotations

from html import escape, unescape

from htagraph.job.job import JOB_QUESTIONS
from htagraph.model.units import human_count
from htagraph.questions import QUESTIONS
from htagraph.reports.page.commands import Commands
from htagraph.reports.page.html_tables import html_table
from htagraph.reports.page.legend import legend
from htagraph.reports.page.panels import Panel, Section
from htagraph.reports.page.texts import Texts


def section_html(part: Section, origin_ns: int, texts: Texts, commands: Commands) -> str:
    """A section with its panels, folded or open.

    Parameters
    ----------
    origin_ns : int, unit=ns
        Time from which tables count.
    texts : Texts
        Where long names are stored.
    commands : Commands
        What shows more.
    """
    body = "\n".join(_panel(panel, origin_ns, texts, commands) for panel in part.panels)
    if part.intro:
        body = f'<p class="intro">{escape(part.intro)}</p>\n{body}'
    if not part.is_folded:
        return f'<section id="{part.name}"><h2>{escape(part.title)}</h2>\n{body}</section>'
    # Figures escape their titles themselves: plotly takes them as markup, too.
    fact = escape(unescape(part.fact))
    return (
        f'<details class="section" id="{part.name}"><summary><h2>{escape(part.title)}</h2> '
        f'<span class="fact">{fact}</span></summary>\n{body}</details>'
    )


def _panel(panel: Panel, origin_ns: int, texts: Texts, commands: Commands) -> str:
    """A panel: its title, the figure, a note on what is left out, and the table behind it."""
    title, drawn, note = escape(panel.heading), "", ""
    if panel.figure is not None:
        title, note = panel.figure.title, panel.figure.note
        told = f'role="figure" aria-label="{escape(unescape(title))}"'
        height = f"height:{panel.figure.layout['height']}px"
        drawn = f'<div class="figure" data-figure="{panel.name}" {told} style="{height}"></div>'
        drawn = legend(panel.legend) + drawn
    named = f"<h3>{title}</h3>" if title else ""
    said = f'<p class="note">{escape(note)}</p>' if note else ""
    table = html_table(
        panel.frame,
        schema=panel.schema,
        origin_ns=origin_ns,
        segments=panel.segments,
        n_rows=panel.n_rows,
        whole=_command(panel, commands),
        texts=texts,
    )
    if panel.is_folded:
        rows = human_count(panel.n_rows, "row")
        table = f"<details><summary>Table, {rows}</summary>{table}</details>"
    return f'<article class="panel" id="{panel.name}">{named}{drawn}{said}{table}</article>'


def _command(panel: Panel, commands: Commands) -> str:
    """Command that prints all rows: by default, the question of the schema; empty for none."""
    question = panel.schema.name.lower().removeprefix("matched_")
    is_asked = question in QUESTIONS or question in JOB_QUESTIONS
    verb = panel.verb or (f"ask {question}" if is_asked else "")
    return commands.of(verb) if verb else ""
