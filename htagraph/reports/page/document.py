"""The HTML document: verdict, sections, styles and scripts in one file that needs no network."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from isal import igzip

from htagraph.model.progress import report_progress
from htagraph.native.memory import returns_memory
from htagraph.path import CriticalPath
from htagraph.queries.inferences import inferences_of
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.commands import Commands, shell_path
from htagraph.reports.page.headline import next_commands, quality_line, verdict_html
from htagraph.reports.page.html_file import resource, write_html
from htagraph.reports.page.html_tables import short_rule
from htagraph.reports.page.job_sections import job_sections
from htagraph.reports.page.key_figures import KeyFigure, html_figures, key_figures
from htagraph.reports.page.legend import legend
from htagraph.reports.page.markup import has_own_legend, section_html
from htagraph.reports.page.panels import Panel, Section
from htagraph.reports.page.rank_answers import RankAnswers
from htagraph.reports.page.rank_sections import rank_sections
from htagraph.reports.page.segment_details import learnt, segment_details
from htagraph.reports.page.texts import Texts
from htagraph.reports.plots.drawing import Drawing, as_json
from htagraph.reports.plots.style import TimeUnit
from htagraph.reports.summary import Summary

__all__ = ["write_page"]


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
    page = _content(summary)
    start_ns = page.start_ns
    panels = [panel for part in page.parts for panel in part.panels]
    figures = _json(
        {panel.name: _figure(panel, panel.figure) for panel in panels if panel.figure is not None}
    )
    texts = Texts()
    commands, beside = Commands.on(summary), Path(out).absolute().parent / perfetto_file
    head = verdict_html(summary)
    body = "\n".join(section_html(part, start_ns, texts, commands) for part in page.parts)
    segments = _segments(summary, page, texts) | {
        "file": shell_path(beside) if perfetto_file else "",
        "beside": perfetto_file,
        "offset": start_ns - summary.path.origin_ns,
        "unit": TimeUnit.fitting(summary.path.dur_ns).size_ns,
    }
    return write_html(
        out,
        "page.html",
        title=summary.name,
        links={part.name: part.title for part in page.parts},
        style=short_rule(),
        legend=legend(figures + head),
        key_figures=html_figures(page.figures),
        verdict=head,
        quality=quality_line(summary),
        commands=next_commands(summary, beside if perfetto_file else None),
        sections=body,
        figures=figures,
        segments=_json(segments),
        texts=_json(list(texts)),
        plotly=_packed_plotly(),
        script=resource("page.js") + resource("segments.js"),
    )


@dataclass(frozen=True)
class _Content:
    """What a page shows: figures, sections, and what inferred waits rest on."""

    start_ns: int
    figures: list[KeyFigure]
    parts: list[Section]
    support: dict[tuple[int, str], str]


def _content(summary: Summary | JobSummary) -> _Content:
    """Everything that the page shows."""
    if isinstance(summary, JobSummary):
        asked = RankAnswers.of(summary)
        found = asked.by_rank
        return _Content(
            summary.path.start_ns,
            key_figures(summary, summary.devices),
            list(_reported(job_sections(summary, asked))),
            learnt(found["inferences"]),
        )
    graph = summary.graph
    returns_memory()
    steady, temporal = graph.steady_state(), graph.temporal_breakdown()
    return _Content(
        graph.interval.start_ns,
        key_figures(summary, temporal),
        list(_reported(rank_sections(summary, steady, temporal))),
        learnt(inferences_of(graph.dag, graph.interval, summary.path.coded)),
    )


def _segments(summary: Summary | JobSummary, page: _Content, texts: Texts) -> dict[str, Any]:
    """Details of each segment that can be opened."""
    rows: set[int] = set()
    for part in page.parts:
        rows = rows.union(*(panel.shown_segments for panel in part.panels))
        if part.steps is not None:
            rows = rows.union(*(view.segments for view in part.steps.views))
    path, shown = summary.path, np.array(sorted(rows), dtype=np.int64)
    return segment_details(
        path.segments_at(np.union1d(shown, np.maximum(shown - 1, 0))),
        path.attributed_labels if isinstance(path, CriticalPath) else path.attributed_time,
        rows,
        start_ns=page.start_ns,
        support=page.support,
        texts=texts,
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


def _packed_plotly() -> str:
    """Code of plotly, compressed, as text."""
    code = files("htagraph.reports.page").joinpath("plotly-cartesian.min.js").read_bytes()
    return b64encode(igzip.compress(code, 3, mtime=0)).decode()


def _json(value: object) -> str:
    """JSON that can stand in a script element."""
    return as_json(value).replace("<", "\\u003c")


def _figure(panel: Panel, figure: Drawing) -> dict[str, Any]:
    """Figure without its title, which is a heading of the page."""
    layout, has_legend = dict(figure.layout), has_own_legend(panel)
    del layout["title"], layout["template"]
    layout["showlegend"] = has_legend
    layout["margin"] = layout["margin"] | {"t": 30 if has_legend else 10}
    return {"data": figure.data, "layout": layout}
