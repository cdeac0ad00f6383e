"""The sections on the critical path and on what helps, of the page of a rank and of a job."""

from __future__ import annotations

import pandas as pd

from htagraph.algorithms.codes import largest
from htagraph.job.path import JobPath
from htagraph.model import frames
from htagraph.model.kinds import bound_in_words
from htagraph.path import CriticalPath
from htagraph.reports import plots
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.html_tables import KEPT_ROWS
from htagraph.reports.page.panels import Panel, Section
from htagraph.reports.plots.drawing import drawing
from htagraph.reports.summary import Summary
from htagraph.reports.what_helps import ALONE, NOT_MATCHED, NOT_REPLAYED, UNCHANGED

_INTRO = (
    "The chain of waits that decides how long this takes; only a shorter path makes it shorter. "
    "Click a segment to see what it is; select a stretch to zoom, double-click to zoom out."
)
_INTRO_OF_JOB = (
    " Where a rank waits in a collective, the path continues on the rank that arrived last."
)
_COLUMNS = frames.SEGMENTS.first.split()


def path_section(summary: Summary | JobSummary) -> Section:
    """Section on the critical path over time."""
    path = summary.path
    intro = _INTRO + (_INTRO_OF_JOB if isinstance(path, JobPath) else "")
    panel = _of_job(path) if isinstance(path, JobPath) else _of_rank(path)
    return Section("path", "Critical path", intro, (panel,), is_folded=False)


def _of_job(path: JobPath) -> Panel:
    """Panel with the segments of a job, drawn over time and listed longest first."""
    longest = path.segments.sort_values("dur_ns", ascending=False, kind="stable")
    return Panel(
        "job-path",
        drawing(plots.job_path_timeline, path),
        longest[["rank", *_COLUMNS]],
        frames.JOB_SEGMENTS,
        segments=tuple(longest.index[:KEPT_ROWS].tolist()),
        verb="path",
        is_folded=True,
    )


def _of_rank(path: CriticalPath) -> Panel:
    """The same of a rank."""
    rows = largest(path.durations_ns, min(path.n_segments, KEPT_ROWS))
    return Panel(
        "critical-path-timeline",
        drawing(plots.critical_path_timeline, path),
        path.segments_at(rows)[_COLUMNS],
        frames.SEGMENTS,
        n_rows=path.n_segments,
        segments=tuple(rows.tolist()),
        verb="path",
        is_folded=True,
    )


def help_section(summary: Summary | JobSummary) -> Section:
    """Section on what would help: each change alone, or why none is listed."""
    helpful, verdict = summary.first_changes, summary.verdict
    panel = Panel("what-helps", None, helpful, frames.FIRST_CHANGES)
    is_replayed = isinstance(summary, Summary) or summary.is_replayed
    said = f"{ALONE} {verdict.rests_on}".strip() if len(helpful) else UNCHANGED
    why_not = NOT_MATCHED if isinstance(summary, JobSummary) and summary.job.alone else NOT_REPLAYED
    intro = said if is_replayed else why_not
    return Section("help", "What would help", intro, (panel,), is_folded=False)


def numbers_section(summary: Summary | JobSummary) -> Section:
    """Section on the time of the path by bound, name and operator; of a job also by rank."""
    by = {"bound": summary.by_bound, "name": summary.by_name, "op": summary.by_op}
    if isinstance(summary, JobSummary):
        by = {"rank": summary.by_rank, **by}
    headings = {"rank": "Ranks", "bound": "Bounds", "name": "What ran", "op": "Operators"}
    panels = [_groups(frame, name, f"{headings[name]} on the path") for name, frame in by.items()]
    intro = f"Each table adds up to the path. {summary.inferred}".strip()
    first = summary.by_bound["share"].head(2)
    fact = " and ".join(f"{share:.0%} {bound_in_words(str(name))}" for name, share in first.items())
    return Section("numbers", "Critical path in numbers", intro, tuple(panels), fact)


def _groups(frame: pd.DataFrame, by: str, heading: str) -> Panel:
    """Panel on the path by group."""
    named = frame.rename_axis(by).reset_index().replace({"op": {"": "(no operator)"}})
    return Panel(f"path-{by}s", None, named, frames.BREAKDOWN, heading)
