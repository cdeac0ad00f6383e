"""What a verdict and a prediction say, as plain values: times with their unit, names as data."""

from __future__ import annotations

from typing import Any

import pandas as pd

from htagraph.agents.budget import Part, plain, rows_part
from htagraph.agents.target import Target
from htagraph.findings.verdict import Finding, Verdict
from htagraph.model.units import human_duration
from htagraph.replay.candidates import TWICE_AS_FAST
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.summary import Summary

__all__ = ["helpful_changes", "job_parts", "notes_part", "trace_parts", "window_head"]

_CHANGES = ("change", "saves_ns", "low_ns", "high_ns", "saves_share", "then_bound")
_N_CHANGES = 8
"""Changes of a verdict, chosen: `what_if` has all. Pinned by `tests/agents/test_desk.py`."""

_RAISE = "raise max_tokens."


def window_head(name: str, start_ns: int, dur_ns: int) -> dict[str, Any]:
    """A window: its name, its start on the clock of the answers, its length."""
    return {
        "name": plain(name),
        "start_ns": int(start_ns),
        "dur_ns": int(dur_ns),
        "dur": human_duration(dur_ns),
    }


def notes_part(notes: list[str]) -> Part:
    """What one has to know to read an answer."""
    items = [plain(note, longest=None) for note in notes if note]
    return Part("notes", items, len(items), _RAISE)


def _finding(finding: Finding) -> dict[str, Any]:
    """A finding as plain values, without what is empty, nor its evidence."""
    said = {
        "title": finding.title,
        "share": finding.share,
        "dur_ns": finding.dur_ns,
        "dur": human_duration(finding.dur_ns),
        "saves_ns": finding.potential_saving_ns,
        "saves_low_ns": finding.saving_low_ns,
        "saves_high_ns": finding.saving_high_ns,
        "predicted": finding.prediction,
        "longest_start_ns": finding.longest_start_ns,
        "longest_ns": finding.longest_ns,
        "when": finding.when,
        "where": finding.where,
        "detail": finding.detail,
        "try": finding.to_try,
    }
    return {key: plain(value, longest=None) for key, value in said.items() if value != ""}


def _findings_part(verdict: Verdict) -> Part:
    """What bounds a window, the largest saving first; what is below half a percent is not told."""
    items = [_finding(one) for one in verdict.top_findings]
    return Part("findings", items, len(items), _RAISE)


def _evidence_part(verdict: Verdict) -> Part:
    """What contributes most to each finding."""
    rows = [
        plain([number, item.name, item.op, item.frame, item.dur_ns])
        for number, finding in enumerate(verdict.top_findings, start=1)
        for item in finding.evidence
    ]
    return Part("evidence", rows, len(rows), _RAISE, ("finding", "name", "op", "frame", "dur_ns"))


def helpful_changes(opportunities: pd.DataFrame) -> pd.DataFrame:
    """Changes that would help, each once; kernels at twice their speed.

    Parameters
    ----------
    opportunities : DataFrame, schema `answers.OPPORTUNITIES`

    Returns
    -------
    DataFrame
        Columns ``change``, ``saves_ns``, ``low_ns``, ``high_ns``, ``saves_share``, ``then_bound``.
    """
    is_told = (opportunities["kind"] != "kernel") | (opportunities["left_share"] == TWICE_AS_FAST)
    found = opportunities[is_told & (opportunities["saves_ns"] > 0)]
    return found.drop_duplicates("change")[list(_CHANGES)]


def _changes_part(summary: Summary | JobSummary) -> Part:
    """What would help, for `what_if`; nothing where the verdict is withheld."""
    found = helpful_changes(summary.opportunities)
    shown = found.head(0) if summary.verdict.withheld else found
    return rows_part("opportunities", shown, "what_if without changes has them.", limit=_N_CHANGES)


def _weak_part(weak: pd.DataFrame, first: tuple[str, ...]) -> Part:
    """Checks of quality that are not good."""
    columns = [*first, "check", "share", "verdict", "consequence"]
    return rows_part("weak_checks", weak[columns], "ask 'quality' has them.", longest=None)


def _bounds_part(frame: pd.DataFrame, key: str) -> Part:
    """The critical path by group; it adds up to the window."""
    rows = frame.rename_axis(key).reset_index()[[key, "dur_ns", "share"]]
    return rows_part(f"path_by_{key}", rows, f"path by={key!r} has them.")


def trace_parts(target: Target) -> tuple[dict[str, Any], list[Part]]:
    """What bounds a trace: the head of the answer, and its parts."""
    summary = target.summary
    verdict, window = summary.verdict, summary.graph.interval
    head = {
        "file": plain(target.file),
        "about": plain(summary.facts),
        "window": window_head(window.name, window.start_ns, window.dur_ns),
        **({"withheld": plain(verdict.withheld, longest=400)} if verdict.withheld else {}),
        "unexplained_share": plain(summary.path.unexplained_share),
        "inferred_share": plain(summary.path.inferred_share),
    }
    return head, [
        _findings_part(verdict),
        _evidence_part(verdict),
        notes_part([*target.notes, *summary.caveats, verdict.replays, verdict.notes]),
        _bounds_part(summary.by_bound, "bound"),
        _weak_part(summary.weak_checks, ()),
        _changes_part(summary),
    ]


def job_parts(target: Target) -> tuple[dict[str, Any], list[Part]]:
    """What bounds a job: the head of the answer, and its parts."""
    summary = target.job_summary
    verdict, path = summary.verdict, summary.path
    head = {
        "folder": plain(target.name),
        "about": plain(summary.facts),
        "window": window_head(path.name, path.start_ns, path.dur_ns),
        **({"withheld": plain(verdict.withheld, longest=400)} if verdict.withheld else {}),
    }
    late = summary.stragglers
    failures = [
        [plain(target.session.root.shown(path)), plain(error, longest=300)]
        for path, error in summary.failures.itertuples(index=False)
    ]
    return head, [
        _findings_part(verdict),
        _evidence_part(verdict),
        notes_part([*target.notes, *summary.caveats, verdict.replays, verdict.notes]),
        Part("failures", failures, len(failures), _RAISE, ("path", "error")),
        _bounds_part(summary.by_rank, "rank"),
        _bounds_part(summary.by_bound, "bound"),
        rows_part("stragglers", late, "ask 'stragglers' has them."),
        _weak_part(summary.weak_by_check, ("n_ranks",)),
        _changes_part(summary),
    ]
