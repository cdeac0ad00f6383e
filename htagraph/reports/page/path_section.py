"""The section on the critical path, of the page of a rank and of a job."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from htagraph.algorithms.codes import largest
from htagraph.job.path import JobPath
from htagraph.model import frames
from htagraph.path import CriticalPath
from htagraph.reports import plots
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.html_tables import kept_of
from htagraph.reports.page.panels import Panel, Section
from htagraph.reports.page.step_views import StepChoice
from htagraph.reports.plots.drawing import drawing
from htagraph.reports.summary import Summary

__all__ = ["path_section"]

_INTRO = (
    "The chain of waits, followed back from the end of the window. Its segments tile the window, "
    "so only a shorter path makes the window shorter. Click a segment to see what it is; select a "
    "stretch to zoom, double-click to zoom out."
)
_INTRO_OF_JOB = (
    " Where a rank waits in a collective, the path continues on the rank that arrived last."
)
_COLUMNS = frames.SEGMENTS.first.split()


def path_section(
    summary: Summary | JobSummary, steps: StepChoice | None, sampled: Sequence[Panel] = ()
) -> Section:
    """Section on the critical path: by bound, over time, and by what ran on it.

    Parameters
    ----------
    sampled : sequence of Panel
        What was sampled meanwhile, above the timeline.
    """
    path = summary.path
    bounds = summary.by_bound.rename_axis("bound").reset_index()
    drawn = drawing(plots.critical_path, path)
    intro, of_ranks = _INTRO, []
    if isinstance(summary, JobSummary):
        intro += _INTRO_OF_JOB
        of_ranks = [_groups(summary.by_rank, "rank", "Ranks on the path")]
    panels = [
        Panel("critical-path", drawn, bounds, frames.BREAKDOWN, is_whole_window=True),
        *sampled,
        _timeline(path),
        *of_ranks,
        _groups(summary.by_name, "name", "What ran on the path"),
        _groups(summary.by_op, "op", "Operators on the path"),
    ]
    return Section(
        "path",
        "Critical path",
        f"{intro} {summary.inferred}".strip(),
        tuple(panels) if path.dur_ns else (),
        "Nothing was recorded in this window.",
        steps,
    )


def _timeline(path: CriticalPath | JobPath) -> Panel:
    """Panel with the segments, drawn over time and listed longest first."""
    if isinstance(path, JobPath):
        longest = path.segments.sort_values("dur_ns", ascending=False, kind="stable")
        segments = tuple(longest.index.tolist())
        return Panel(
            "job-path",
            drawing(plots.job_path_timeline, path),
            longest[["rank", *_COLUMNS]],
            frames.JOB_SEGMENTS,
            segments=segments,
            verb="path",
        )
    kept = kept_of(path.n_segments, len(_COLUMNS))
    rows = largest(path.durations_ns, kept)
    return Panel(
        "critical-path-timeline",
        drawing(plots.critical_path_timeline, path),
        path.segments_at(rows)[_COLUMNS],
        frames.SEGMENTS,
        n_rows=path.n_segments,
        segments=tuple(rows.tolist()),
        verb="path",
    )


def _groups(frame: pd.DataFrame, by: str, heading: str) -> Panel:
    """Panel on the path by group: a table that is open."""
    named = frame.rename_axis(by).reset_index().replace({"op": {"": "(no operator)"}})
    return Panel(
        f"path-{by}s",
        None,
        named,
        frames.BREAKDOWN,
        heading,
        is_wide=by == "rank",
        is_whole_window=True,
    )
