"""The HTML document: verdict, sections, styles and scripts in one file that needs no network.

The first screen has the headline, cards, three figures, and what to type next.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape, unescape
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from isal import igzip

from htagraph.arrays.memory import returns_memory
from htagraph.explain.waited_for import started_by
from htagraph.findings.path import CriticalPath
from htagraph.findings.verdict import Card, Paragraph, Verdict, percent
from htagraph.job.job import JOB_QUESTIONS
from htagraph.model.progress import report_progress
from htagraph.model.units import human_count, human_duration
from htagraph.queries.quality import inferences as inferences_of
from htagraph.queries.questions import QUESTIONS
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.markdown import next_question, share_of_all
from htagraph.reports.page.panels import (
    Commands,
    Panel,
    Section,
    Texts,
    command_html,
    html_table,
    learnt,
    legend,
    mark,
    new_texts,
    resource,
    segment_details,
    shell_path,
    short_rule,
    write_html,
)
from htagraph.reports.page.sections import job_sections, rank_answers, rank_sections
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
    if panel.flame:
        told = f'role="figure" aria-label="{title}"'
        drawn = f'<p class="note"></p><div class="flame" data-flame="{panel.name}" {told}></div>'
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
        answered = rank_answers(summary)
        start_ns, devices = summary.path.start_ns, summary.devices
        inferences, made = answered[1]["inferences"], job_sections(summary, answered)
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
        flames=_json({one.name: one.flame for one in panels if one.flame}),
        segments=_json(segments),
        texts=_json(list(texts)),
        plotly=b64encode(igzip.compress(plotly, 3, mtime=0)).decode(),
        script="\n".join(map(resource, ("tables.js", "page.js", "segments.js", "flame.js"))),
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


_COST = re.compile(r"(?:&lt;)?\d{1,3}%")


class Tile(NamedTuple):
    """One number of the run, with its name and what it is of; `section` has the answer."""

    name: str
    text: str
    about: str
    section: str
    value: float  # The exact number: nanoseconds or a share


def tiles(verdict: Verdict, devices: pd.DataFrame) -> Iterator[Tile]:
    """Yield step time, or the length of the run; and with device work two of devices."""
    whole_ns, step_ns = verdict.dur_ns, verdict.step_ns
    if verdict.n_steps:
        of = f"{human_count(verdict.n_steps, 'step')} in {human_duration(whole_ns)}"
        yield Tile("step time", human_duration(step_ns), of, "steps", step_ns)
    else:
        yield Tile("length", human_duration(whole_ns), f"of this {verdict.thing}", "path", whole_ns)
    if devices.empty:
        return
    busy, exposed = 1 - devices["idle_share"], devices["communication_share"]
    idle, communicating = (share_of_all(devices, part) for part in ("idle", "communication"))
    yield _of_devices("GPU busy", 1 - idle, "least", devices, busy, section="devices")
    section = "communication" if communicating else "devices"
    yield _of_devices(
        "exposed communication", communicating, "most", devices, exposed, section=section
    )


def _of_devices(
    name: str,
    mean: float,
    extreme: str,
    devices: pd.DataFrame,
    share: pd.Series[float],
    *,
    section: str,
) -> Tile:
    """The mean of all devices; of several, the extreme one is named."""
    window_ns = int(devices["window_ns"].iloc[0])
    about = f"{human_duration(mean * window_ns)} of {human_duration(window_ns)}" if mean else "none"
    if len(devices) > 1:
        at = int(share.to_numpy().argmin() if extreme == "least" else share.to_numpy().argmax())
        by = "rank" if "rank" in devices.columns else "device"
        where = f"{by} {devices[by].iloc[at]}: {percent(share.iloc[at], 1)}"
        about = f"mean of {human_count(len(devices), 'device')}; {extreme} on {where}"
    return Tile(name, percent(mean, 1), about, section, mean)


def first_screen(
    summary: Summary | JobSummary,
    devices: pd.DataFrame,
    commands: Commands,
    perfetto_file: Path | None,
) -> str:
    """Headline, caveats, cards and smaller costs; next to them figures and commands."""
    verdict = summary.verdict
    caveats = (*summary.window_caveats, *verdict.top_damage)
    notes = [one.text for one in verdict.paragraphs if one.role == "note"] + summary.notes
    cards = "\n".join(_cards(verdict))
    said = [
        f'<h2 class="lead">{escape(verdict.headline)}</h2>',
        f'<p class="facts">{escape(summary.facts)}</p>',
        *(f'<p class="caveat">{escape(text)}</p>' for text in caveats),
    ]
    if cards:
        said.append(f'<ol class="cards">{cards}</ol>')
    if any(finding.hidden for finding in verdict.top_findings):
        key = "Hatched: on the critical path, but other work takes nearly as long meanwhile."
        said.append(f'<p class="note key"><i class="hidden"></i>{key}</p>')
    also = filter(None, (verdict.by_function, verdict.also))
    said += [f'<p class="also">{escape(text)}</p>' for text in also]
    said += [f'<p class="note">{escape(text)}</p>' for text in notes]
    items = "".join(
        f'<li><a href="#{one.section}" data-value="{one.value!r}"><span>{escape(one.name)}</span>'
        f"<strong>{escape(one.text)}</strong><small>{escape(one.about)}</small></a></li>"
        for one in tiles(verdict, devices)
    )
    figures = f'<ul class="tiles" aria-label="Figures">{items}</ul>'
    aside = figures + _next(summary, commands, perfetto_file)
    return f'<div class="first"><div>{"".join(said)}</div><aside>{aside}</aside></div>'


def _cards(verdict: Verdict) -> Iterator[str]:
    """Yield the cards, in the words of the terminal."""
    lines: list[list[Paragraph]] = []
    for one in verdict.paragraphs:
        if one.role == "card":
            lines.append([])
        if one.role in ("card", "evidence", "fix"):
            lines[-1].append(one)
    for card, (title, *rest) in zip(verdict.cards, lines, strict=True):
        why = {one.advice: one.fix.why for one in card.findings}
        said = "".join(_line(one, why.get(one.text, "")) for one in rest)
        yield _card(card, title, said)


def _card(card: Card, title: Paragraph, said: str) -> str:
    """A card: what it costs as a number and as a bar, and what is known of it."""
    whole_ns, path_ns = card.findings[0].window_ns, sum(one.path_ns for one in card.findings)
    is_hidden = card.cost_ns is None or any(one.hidden for one in card.findings)
    cost = 0.0 if card.cost_ns is None else card.share
    hidden = max(path_ns / max(whole_ns, 1) - cost, 0.0) if is_hidden else 0.0
    number = _COST.sub(lambda found: f"<strong>{found[0]}</strong>", escape(card.said))
    causes = escape(", ".join(one.label for one in card.findings))
    return (
        f'<li class="card" data-causes="{causes}" data-value="{card.cost_ns}"{mark(title.bound)}>'
        f'<p class="cost">{number}</p><div><h3>{escape(title.text)}</h3>'
        f'<div class="meter" role="img" aria-label="{escape(card.said)}">'
        f'<i class="part" style="width:{100 * cost:.2f}%"></i>'
        f'<i class="hidden" style="width:{100 * hidden:.2f}%"></i></div>{said}</div></li>'
    )


def _line(one: Paragraph, why: str) -> str:
    """What contributes to a finding; or what to do about it, and why."""
    if one.role == "evidence":
        return f'<p class="evidence">{escape(one.text)}</p>'
    reason = f" <small>{escape(why)}</small>" if why else ""
    return f'<p class="fix"><b>→ {escape(one.text)}</b>{reason}</p>'


def _next(summary: Summary | JobSummary, commands: Commands, perfetto_file: Path | None) -> str:
    """What to ask next, as on the terminal; and the command that opens the trace."""
    verb, more = next_question(summary)
    asked = f"{commands.of(verb)} {more}".rstrip()
    said = [f"<p>Next: {command_html(asked)}</p>"]
    if perfetto_file is not None:
        view = command_html(f"htagraph view {shell_path(perfetto_file)}", file=perfetto_file.name)
        said.append(f"<p>Every event, in Perfetto: {view}</p>")
    return "".join(said)
