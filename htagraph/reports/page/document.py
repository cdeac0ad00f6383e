"""The HTML document: verdict, sections, styles and scripts in one file that needs no network."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from pathlib import Path
from shlex import quote
from string import Template
from typing import Any

from htagraph.findings.verdict import Finding
from htagraph.model.kinds import in_words
from htagraph.model.units import human_count, human_duration
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.job_sections import job_sections
from htagraph.reports.page.panels import Panel, Section
from htagraph.reports.page.rank_sections import rank_sections
from htagraph.reports.page.tables import html_table
from htagraph.reports.plots.style import BOUND_COLORS, color_of
from htagraph.reports.summary import Summary
from htagraph.writers.atomic import output_file
from htagraph.writers.labels import name_label

__all__ = ["write_page"]


def write_page(out: str | Path, summary: Summary | JobSummary, *, perfetto_file: str = "") -> Path:
    """Write the report on a rank or a job as one HTML file that loads nothing else.

    Parameters
    ----------
    out : str or Path
    summary : Summary or JobSummary
    perfetto_file : str
        Name of the Perfetto trace beside the page; the page says how to open it.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    QueryError
        If plotly is not installed.
    OutputError
        If the file cannot be written.
    """
    if isinstance(summary, JobSummary):
        parts, origin = list(job_sections(summary)), summary.path.start_ns
    else:
        parts, origin = list(rank_sections(summary)), summary.graph.interval.start_ns
    figures = {
        panel.name: _figure(panel.figure)
        for part in parts
        for panel in part.panels
        if panel.figure is not None
    }
    text = Template(_resource("page.html")).substitute(
        title=escape(summary.name),
        facts=escape(summary.facts),
        caveats="\n".join(f'<p class="caveat">{escape(text)}</p>' for text in summary.caveats),
        verdict=_verdict(summary),
        quality=_quality_line(summary),
        commands=_commands(summary, perfetto_file),
        links="\n".join(f'<a href="#{part.name}">{escape(part.title)}</a>' for part in parts),
        sections="\n".join(_section(part, origin) for part in parts),
        style=_resource("page.css"),
        figures=_json(figures),
        plotly=_plotly_script(),
        script=_resource("page.js"),
    )
    with output_file(out) as file:
        file.write(text.encode())
    return Path(out)


def _resource(name: str) -> str:
    """Text of a file beside this module."""
    return files("htagraph.reports.page").joinpath(name).read_text(encoding="utf-8")


def _plotly_script() -> str:
    """Code of plotly, which must not close the script element around it."""
    # Deferred: an optional extra, and slow to import.
    from plotly.offline import get_plotlyjs  # noqa: PLC0415

    return str(get_plotlyjs()).replace("</script", "<\\/script")


def _json(value: Any) -> str:  # noqa: ANN401  whatever JSON can say
    """JSON that can stand in a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _figure(figure: Any) -> dict[str, Any]:  # noqa: ANN401  plotly is not typed
    """Figure as JSON, without its title: that is a heading of the page, which wraps it."""
    content: dict[str, Any] = json.loads(figure.to_json(engine="json"))
    content["layout"].pop("title", None)
    content["layout"].pop("template", None)
    content["layout"]["margin"]["t"] = (
        30 if content["layout"].get("showlegend", len(content["data"]) > 1) else 10
    )
    return content


def _verdict(summary: Summary | JobSummary) -> str:
    """Verdict: a sentence and the first findings as cards, or why there is none."""
    verdict, where = summary.verdict, escape(summary.window_name)
    replays = f"<p>{escape(verdict.replays)}</p>" if verdict.replays else ""
    if verdict.withheld:
        checks = summary.weak_checks.drop_duplicates("check")
        rows = zip(checks["check"].tolist(), checks["consequence"].tolist(), strict=True)
        missing = "".join(
            f"<li><b>{escape(check)}</b>: {escape(consequence)}</li>" for check, consequence in rows
        )
        return (
            f'<p class="lead">It is not known what bounds {where}.</p>\n'
            f"<p>{escape(verdict.withheld)}</p>{replays}<ul>{missing}</ul>"
        )
    if not verdict.top_findings:
        return '<p class="lead">Nothing stands out.</p>'
    first = verdict.top_findings[0]
    lead = (
        f'<p class="lead">{escape(first.title)} <span class="muted">—</span> '
        f"<strong>{first.share:.0%}</strong> of {where} "
        f"({human_duration(summary.path.dur_ns)}).</p>"
    )
    cards = "\n".join(
        _card(number, finding) for number, finding in enumerate(verdict.top_findings, start=1)
    )
    ranking = f'<p class="note">{escape(verdict.notes)}</p>' if verdict.notes else ""
    return f'{lead}\n<ol class="findings">{cards}</ol>{replays}{ranking}'


def _card(number: int, finding: Finding) -> str:
    """A finding: its attributed time, a bar of the bounds of that, evidence, and what to try."""
    parts = "".join(
        f'<i style="width:{100 * dur / max(finding.dur_ns, 1) * finding.share:.2f}%;'
        f'background:{color_of(BOUND_COLORS, bound)}" '
        f'title="{escape(in_words(bound))}: {human_duration(dur)}"></i>'
        for bound, dur in finding.parts
    )
    evidence = "".join(
        f"<li><b>{human_duration(item.dur_ns)}</b> {escape(item.label)}</li>"
        for item in finding.evidence
    )
    facts = "; ".join(
        filter(None, [finding.prediction, finding.detail, finding.when, finding.where])
    )
    more = f'<p class="note">{escape(facts[0].upper() + facts[1:])}</p>' if facts else ""
    tried = f'<p class="try"><b>Try</b> {escape(finding.to_try)}</p>' if finding.to_try else ""
    return (
        f'<li class="card" data-cause="{escape(finding.cause)}" data-value="{finding.dur_ns}">'
        f'<h3><span class="rank">{number}</span>{escape(finding.title)}</h3>'
        f'<p class="attributed"><strong>{finding.share:.1%}</strong> '
        f'{human_duration(finding.dur_ns)}</p><div class="meter">{parts}</div><ul>{evidence}</ul>'
        f"{more}{tried}</li>"
    )


def _quality_line(summary: Summary | JobSummary) -> str:
    """How many quality checks are good."""
    n_all, n_weak = len(summary.quality), len(summary.weak_checks)
    state = "good" if not n_weak else "weak"
    said = f"{n_all - n_weak} of {n_all} quality checks good"
    return f'<a class="chip {state}" href="#quality">{said}</a>'


def _commands(summary: Summary | JobSummary, perfetto_file: str) -> str:
    """Commands that open the trace, and that report on the rank with most of a job's path."""
    chips = (
        [_command("Every event, in Perfetto:", "htagraph view", Path(perfetto_file))]
        if perfetto_file
        else []
    )
    if isinstance(summary, JobSummary):
        rank = summary.main_rank
        what = f"Rank {rank}, which has most of the path:"
        chips.append(_command(what, "htagraph report", summary.job.summaries[rank].path))
    return "\n".join(chips)


def _command(what: str, verb: str, file: Path) -> str:
    """A command to copy; a file in another folder is shown by its name."""
    shown = file if file.name == str(file) else Path("…") / name_label(file.name)
    return (
        f'<span class="chip">{escape(what)} <code>{verb} {escape(str(shown))}</code>'
        f'<button class="copy" data-text="{verb} {escape(quote(str(file)))}" '
        'aria-label="Copy the command">copy</button></span>'
    )


def _section(part: Section, origin_ns: int) -> str:
    """A section with its panels."""
    panels = "\n".join(_panel(panel, origin_ns) for panel in part.panels)
    body = (
        f'<p class="intro">{escape(part.intro)}</p><div class="panels">{panels}</div>'
        if part.panels
        else f'<p class="absent">{escape(part.absent)}</p>'
    )
    return f'<section id="{part.name}"><h2>{escape(part.title)}</h2>{body}</section>'


def _panel(panel: Panel, origin_ns: int) -> str:
    """A panel: its fact, the figure, a note on what was left out, and the table behind it."""
    title, drawn, note = escape(panel.heading), "", ""
    if panel.figure is not None:
        layout = panel.figure.layout
        # Figures escape their titles themselves: plotly takes them as markup, too.
        title, note = layout.title.text, (layout.meta or {}).get("note", "")
        height = f"height:{layout.height}px"
        drawn = f'<div class="figure" data-figure="{panel.name}" style="{height}"></div>'
    table = ""
    if panel.frame is not None:
        columns = panel.schema.columns if panel.schema else None
        shown = html_table(panel.frame, columns=columns, origin_ns=origin_ns)
        is_open = " open" if panel.is_open else ""
        rows = human_count(len(panel.frame), "row")
        table = f"<details{is_open}><summary>Table, {rows}</summary>{shown}</details>"
    said = f'<p class="note">{escape(note)}</p>' if note else ""
    wide = " wide" if panel.is_wide else ""
    body = f"<h3>{title}</h3>{drawn}{said}{table}"
    return f'<article class="panel{wide}" id="{panel.name}">{body}</article>'
