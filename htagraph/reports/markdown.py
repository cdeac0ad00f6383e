"""Tables and the summary as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pandas as pd

from htagraph.model.answers import TEMPORAL_BREAKDOWN, UTILIZATION
from htagraph.model.job_answers import STRAGGLERS
from htagraph.model.labels import printable
from htagraph.model.units import human_count, human_duration
from htagraph.reports.device_use import losses_in_words, lost_slots, use_in_words
from htagraph.reports.what_helps import ALONE
from htagraph.writers.cells import human_frame

if TYPE_CHECKING:  # the answer to one question needs no summary
    from htagraph.reports.job_summary import JobSummary
    from htagraph.reports.summary import Summary

_TOP = 10
"""Rows of a table of groups: chosen, as the page has all."""
_MAX_STEPS = 20
"""Steps listed: chosen."""
_MAX_ROWS = 64
"""Rows of a table of a job, which has one per rank: chosen."""
_ESCAPED = re.compile(r"([\\`*\[\]<>|~$&!]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
"""Characters that Markdown, or HTML in it, would read; ``_`` within a word is only a character."""


def markdown_table(frame: pd.DataFrame) -> str:
    r"""Frame as a Markdown table; cells are taken as texts.

    Examples
    --------
    >>> print(markdown_table(pd.DataFrame({"name": ["a|b"], "dur": ["2 us"]})))
    | name | dur |
    | --- | --- |
    | a\|b | 2 us |
    """
    rows = [
        list(frame.columns),
        ["---"] * len(frame.columns),
        *frame.astype(str).to_numpy().tolist(),
    ]
    cells = [[escaped(str(cell)) for cell in row] for row in (rows[0], *rows[2:])]
    cells.insert(1, rows[1])
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def escaped(text: str) -> str:
    r"""Text that a Markdown reader shows as it is, on one line.

    Examples
    --------
    >>> print(escaped("aten::add_ <b> __init__"))
    aten::add\_ \<b\> \_\_init\_\_
    """
    return _ESCAPED.sub(r"\\\1", printable(" ".join(text.split("\n"))))


def _head(summary: Summary | JobSummary) -> list[str]:
    """First paragraphs of a report: facts, caveats and the verdict."""
    verdict = summary.verdict
    head = [
        f"# {escaped(summary.name)}",
        escaped(summary.facts),
        *map(escaped, summary.window_caveats),
        *(f"- {escaped(said)}" for said in verdict.top_damage),
        f"**{escaped(verdict.headline)}**",
    ]
    for number, card in enumerate(verdict.cards, start=1):
        lines = [f"{number}. **{escaped(card.title)}**: {escaped(card.said)}"]
        for one in card.findings:
            why = f" {one.fix.why}" if one.fix.why else ""
            lines += [f"   {escaped(one.evidence_sentence)}"] if one.evidence_sentence else []
            lines += [f"   *{escaped(one.advice)}*{escaped(why)}"] if one.fix.do else []
        head.append("  \n".join(lines))
    notes = verdict.document()["notes"]
    return [*head, *map(escaped, filter(None, [verdict.also, *notes, *summary.notes]))]


def _help(summary: Summary | JobSummary) -> list[str]:
    """Paragraphs on what would help; none if nothing would or nothing is known."""
    helpful = summary.first_changes
    if helpful.empty:
        return []
    table = markdown_table(human_frame(helpful))
    return ["## What would help", escaped(f"{ALONE} {summary.verdict.rests_on}".strip()), table]


def _groups(frame: pd.DataFrame, name: str) -> str:
    """First groups of a breakdown as a table."""
    return markdown_table(human_frame(frame.head(_TOP).rename_axis(name).reset_index()))


def _utilization(summary: Summary) -> list[str]:
    """Paragraphs on how full devices are; none without device work."""
    if summary.used.empty:
        return []
    said = f"{use_in_words(summary.used)} {losses_in_words(summary.losses)}".strip()
    lost = lost_slots(summary.losses).head(_TOP)
    table = [markdown_table(human_frame(lost))] if len(lost) else []
    return ["## Utilization", escaped(said), *table]


def markdown_summary(summary: Summary) -> str:
    """Summary as a Markdown page."""
    parts = [*_head(summary), *_help(summary)]
    if len(summary.by_step):
        parts += ["## By step", markdown_table(human_frame(summary.by_step.head(_MAX_STEPS)))]
        if len(summary.by_step) > _MAX_STEPS:
            parts.append(f"The first {_MAX_STEPS} of {len(summary.by_step):,}.")
    segments = human_count(summary.path.n_segments, "segment")
    parts += [
        "## Critical path",
        f"{human_duration(summary.path.dur_ns)} in {segments} that tile the window. "
        f"{escaped(summary.inferred)}".strip(),
        _groups(summary.by_bound, "bound"),
        "## Operators on the path",
        _groups(summary.by_op, "op"),
        "## What ran on the path",
        _groups(summary.by_name, "name"),
    ]
    parts += _utilization(summary)
    weak = summary.weak_checks
    parts += [
        "## Quality",
        markdown_table(human_frame(weak)) if len(weak) else "All checks are good.",
    ]
    if len(summary.harmless_repairs):
        shown = human_frame(summary.harmless_repairs.drop(columns="damage"))
        parts += ["## Repairs of the file", markdown_table(shown)]
    return "\n\n".join(parts) + "\n"


def job_tables(summary: JobSummary) -> list[tuple[str, pd.DataFrame]]:
    """Tables of a job's report with their titles; empty ones are left out."""
    tables = [
        ("Critical path by rank", summary.by_rank.reset_index(names="rank")),
        ("Critical path by bound", summary.by_bound.reset_index(names="bound")),
        ("Late ranks", summary.stragglers[STRAGGLERS.shown(summary.stragglers)]),
        ("Devices", summary.devices[TEMPORAL_BREAKDOWN.shown(summary.devices)]),
        ("Utilization", summary.used[UTILIZATION.shown(summary.used)]),
        ("What the traces do not show", summary.weak_by_check),
        ("Left out", summary.failures),
    ]
    return [(title, frame) for title, frame in tables if len(frame)]


def markdown_job_summary(summary: JobSummary) -> str:
    """Summary of a job as a Markdown page."""
    parts = _head(summary)
    if summary.inferred:
        parts.append(escaped(summary.inferred))
    parts += _help(summary)
    for title, frame in job_tables(summary):
        parts += [f"## {title}", markdown_table(human_frame(frame.head(_MAX_ROWS)))]
        if len(frame) > _MAX_ROWS:
            parts.append(f"The first {_MAX_ROWS} of {len(frame):,}.")
    return "\n\n".join(parts) + "\n"
