"""The HTML document: verdict, sections, styles and scripts in one file that needs no network."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape, unescape
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from isal import igzip

from htagraph.arrays.memory import returns_memory
from htagraph.explain.waited_for import started_by
from htagraph.findings.path import CriticalPath
from htagraph.job.job import JOB_QUESTIONS
from htagraph.model.progress import report_progress
from htagraph.model.units import human_count
from htagraph.queries.quality import inferences_of
from htagraph.queries.questions import QUESTIONS
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.headline import first_screen
from htagraph.reports.page.html_tables import html_table, short_rule
from htagraph.reports.page.panels import Panel, Section, learnt, segment_details
from htagraph.reports.page.parts import (
    Commands,
    Texts,
    legend,
    new_texts,
    resource,
    shell_path,
    write_html,
)
from htagraph.reports.page.run_sections import job_sections, rank_sections
from htagraph.reports.page.sections import RankAnswers
from htagraph.reports.plots.drawing import Drawing, as_json
from htagraph.reports.summary import Summary


def section_html(part: Section, origin_ns: int, texts: Texts, commands: Commands) -> str:
    """A section with its panels, folded or open."""
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
    # The command that prints all rows: by default, it asks the question of the schema.
    question = panel.schema.name.lower().removeprefix("matched_")
    is_asked = question in QUESTIONS or question in JOB_QUESTIONS
    verb = panel.verb or (f"ask {question}" if is_asked else "")
    table = html_table(
        panel.frame,
        schema=panel.schema,
        origin_ns=origin_ns,
        segments=panel.segments,
        n_rows=panel.n_rows,
        whole=commands.of(verb) if verb else "",
        texts=texts,
    )
    if panel.is_folded:
        rows = human_count(panel.n_rows, "row")
        table = f"<details><summary>Table, {rows}</summary>{table}</details>"
    return f'<article class="panel" id="{panel.name}">{named}{drawn}{said}{table}</article>'


def write_page(out: str | Path, summary: Summary | JobSummary, *, perfetto_file: str = "") -> Path:
    """Write the report on a rank or a job as one HTML file that loads nothing else.

    Parameters
    ----------
    out : str or Path
    summary : Summary or JobSummary
    perfetto_file : str
        Name of the Perfetto trace in the same folder; the page says how to open it.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    returns_memory()
    if isinstance(summary, JobSummary):
        asked = RankAnswers.of(summary)
        start_ns, devices = summary.path.start_ns, summary.devices
        inferences, made = asked.by_rank["inferences"], job_sections(summary, asked)
    else:
        graph = summary.graph
        start_ns, devices = graph.interval.start_ns, graph.temporal_breakdown()
        inferences = inferences_of(graph.dag, graph.interval, summary.path.coded)
        made = rank_sections(summary, devices)
    parts = [part for part in _reported(made) if part.panels or not part.is_folded]
    panels = [panel for part in parts for panel in part.panels]
    texts, commands = new_texts(), Commands.on(summary)
    beside = Path(out).absolute().parent / perfetto_file
    body = "\n".join(section_html(part, start_ns, texts, commands) for part in parts)
    segments = _segments(summary, parts, inferences, start_ns, texts) | {
        "file": shell_path(beside) if perfetto_file else "",
        "beside": perfetto_file,
        "why": f"htagraph why {commands.source}",
        "offset": start_ns - summary.path.origin_ns,
    }
    plotly = files("htagraph.reports.page").joinpath("plotly-cartesian.min.js").read_bytes()
    return write_html(
        out,
        "page.html",
        title=summary.name,
        style=short_rule(),
        first=first_screen(summary, devices, commands, beside if perfetto_file else None),
        sections=body,
        figures=_json({one.name: _figure(one, one.figure) for one in panels if one.figure}),
        segments=_json(segments),
        texts=_json(list(texts)),
        plotly=b64encode(igzip.compress(plotly, 3, mtime=0)).decode(),
        script="\n".join(map(resource, ("tables.js", "page.js", "segments.js"))),
    )


def _segments(
    summary: Summary | JobSummary,
    parts: Sequence[Section],
    inferences: pd.DataFrame,
    start_ns: int,
    texts: Texts,
) -> dict[str, Any]:
    """Details of each segment that can be opened; `inferences` say what inferred waits rest on."""
    rows = {row for part in parts for panel in part.panels for row in panel.shown_segments}
    path, shown = summary.path, np.array(sorted(rows), dtype=np.int64)
    segments, held = path.segments_at(np.union1d(shown, np.maximum(shown - 1, 0))), {}
    if isinstance(path, CriticalPath):
        edges = segments.loc[shown, "edge"].tolist()
        held = started_by(path.dag, [edge for edge in edges if edge >= 0])
    return segment_details(
        segments,
        path.attributed_labels if isinstance(path, CriticalPath) else path.attributed_time,
        rows,
        start_ns=start_ns,
        support=learnt(inferences),
        texts=texts,
        held=held,
    )


def _reported(sections: Iterator[Section]) -> Iterator[Section]:
    """Sections as they are made, with progress."""
    for number in count(1):
        report_progress(f"section {number}")
        returns_memory()
        section = next(sections, None)
        if section is None:
            return
        yield section


def _json(value: object) -> str:
    """JSON that can stand in a script element."""
    return as_json(value).replace("<", "\\u003c")


def _figure(panel: Panel, figure: Drawing) -> dict[str, Any]:
    """Figure without its title, which is a heading of the page; and the legend, if that is told."""
    layout = dict(figure.layout)
    del layout["title"], layout["template"]
    layout["showlegend"] = bool(panel.legend) and not legend(panel.legend)
    layout["margin"] = layout["margin"] | {"t": 30 if layout["showlegend"] else 10}
    return {"data": figure.data, "layout": layout}
