"""The head of the page: the headline, the first findings as cards, and what to type next."""

from __future__ import annotations

from html import escape
from pathlib import Path
from shlex import quote

from htagraph.findings.verdict import Finding
from htagraph.model.kinds import bound_in_words
from htagraph.model.units import human_duration
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.commands import command_html, shell_path
from htagraph.reports.page.legend import mark
from htagraph.reports.summary import Summary

__all__ = ["next_commands", "quality_line", "verdict_html"]


def verdict_html(summary: Summary | JobSummary) -> str:
    """Verdict: a sentence, what to know to read it, the first findings as cards, or why none."""
    verdict, where = summary.verdict, escape(summary.window_name)
    about = f"{summary.facts} · on this page: {summary.window_name}, "
    about = f'<p class="facts">{escape(about + human_duration(summary.path.dur_ns))}</p>\n'
    caveats = (*verdict.top_damage, *summary.caveats)
    about += "\n".join(f'<p class="caveat">{escape(said)}</p>' for said in caveats)
    replays = f"<p>{escape(verdict.replays)}</p>" if verdict.replays else ""
    if verdict.withheld:
        checks = summary.weak_checks.drop_duplicates("check")
        rows = zip(checks["check"].tolist(), checks["consequence"].tolist(), strict=True)
        missing = "".join(
            f"<li><b>{escape(check)}</b>: {escape(consequence)}</li>" for check, consequence in rows
        )
        return (
            f'<h2 class="lead">What limits {where} is not known.</h2>\n{about}'
            f"<p>{_withheld(summary)}</p>{replays}<ul>{missing}</ul>"
        )
    if not verdict.top_findings:
        return f'<h2 class="lead">Nothing stands out.</h2>\n{about}'
    first = verdict.top_findings[0]
    lead = (
        f'<h2 class="lead">{escape(first.title)} <span class="muted">—</span> '
        f"<strong>{first.share:.0%}</strong> of {where} "
        f"({human_duration(summary.path.dur_ns)}).</h2>"
        if not verdict.balance
        else f'<h2 class="lead">{escape(verdict.balance)}</h2>'
    )
    cards = "\n".join(
        _card(number, finding) for number, finding in enumerate(verdict.top_findings, start=1)
    )
    ranking = f'<p class="note">{escape(verdict.notes)}</p>' if verdict.notes else ""
    return f'{lead}\n{about}<ol class="findings">{cards}</ol>{replays}{ranking}'


def _withheld(summary: Summary | JobSummary) -> str:
    """Why nothing is said; the command that this ends with has the whole path of its file."""
    why, verb, arguments = summary.verdict.withheld.partition("htagraph ")
    files = (
        [rank.path for rank in summary.job.summaries.values()]
        if isinstance(summary, JobSummary)
        else [summary.trace.path]
    )
    command = f"{verb}{arguments} "
    for file in filter(None, files):
        command = command.replace(f" {quote(str(file))} ", f" {shell_path(file)} ")
    return escape(why[:1].upper() + why[1:]) + (command_html(command.strip()) if verb else "")


def _card(number: int, finding: Finding) -> str:
    """A finding: its attributed time, a bar of the bounds of that, evidence, and what to try."""
    parts = "".join(
        f'<i{mark(bound)} style="width:{100 * dur / max(finding.dur_ns, 1) * finding.share:.2f}%" '
        f'title="{escape(bound_in_words(bound))}: {human_duration(dur)}"></i>'
        for bound, dur in finding.parts
    )
    bounds = ", ".join(
        f"{bound_in_words(bound)} {human_duration(dur)}" for bound, dur in finding.parts
    )
    evidence = "".join(
        f"<li><b>{human_duration(item.dur_ns)}</b> {escape(item.label)}</li>"
        for item in finding.evidence
    )
    facts = "; ".join(filter(None, [finding.cost, finding.detail, finding.when, finding.where]))
    more = f'<p class="note">{escape(facts[0].upper() + facts[1:])}</p>' if facts else ""
    predicted = f" Predicted: {finding.prediction}." if finding.prediction else ""
    tried = (
        f'<p class="try"><b>Try</b> {escape(finding.to_try + predicted)}</p>'
        if finding.to_try
        else ""
    )
    return (
        f'<li class="card" data-cause="{escape(finding.cause)}" data-value="{finding.dur_ns}">'
        f'<h3><span class="rank">{number}</span>{escape(finding.title)}</h3>'
        f'<p class="attributed"><strong>{finding.share:.1%}</strong> '
        f'{human_duration(finding.dur_ns)}</p><div class="meter" role="img" '
        f'aria-label="{bounds}">{parts}</div><ul>{evidence}</ul>'
        f"{more}{tried}</li>"
    )


def quality_line(summary: Summary | JobSummary) -> str:
    """How many quality checks are good."""
    n_all, n_weak = len(summary.quality), len(summary.weak_checks)
    state = "good" if not n_weak else "weak"
    said = f"{n_all - n_weak} of {n_all} quality checks good"
    return f'<a class="chip {state}" href="#quality">{said}</a>'


def next_commands(summary: Summary | JobSummary, perfetto_file: Path | None) -> str:
    """Commands that open the trace, and that report on the rank with most of a job's path."""
    said = []
    if perfetto_file is not None:
        view = command_html(f"htagraph view {shell_path(perfetto_file)}", file=perfetto_file.name)
        said.append(f"Every event, in Perfetto: {view}")
    if isinstance(summary, JobSummary):
        rank = summary.main_rank
        report = f"htagraph report {shell_path(summary.job.summaries[rank].path)}"
        said.append(f"Rank {rank}, which has most of the path: {command_html(report)}")
    return "\n".join(f'<span class="chip">{one}</span>' for one in said)
