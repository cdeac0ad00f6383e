"""Verdicts and their parts as plain values: times with their unit, names as data."""

from __future__ import annotations

import shlex
from typing import Any

import pandas as pd

from htagraph.agents.budget import Part, plain, rows_part
from htagraph.agents.target import Target
from htagraph.findings.verdict import Finding
from htagraph.job.damage import damage_of_ranks, job_damage_in_words
from htagraph.model.units import human_duration
from htagraph.replay.candidates import TWICE_AS_FAST
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.report_folder import ReportOrigin
from htagraph.reports.summary import Summary

__all__ = ["helpful_changes", "notes_part", "verdict_parts", "window_head"]

_CHANGES = ("change", "saves_ns", "low_ns", "high_ns", "saves_share", "then_bound")
_N_CHANGES = 8
"""Changes of a verdict, chosen: `what_if` has all. Pinned by `tests/agents/test_desk.py`."""

_RAISE = "raise max_tokens."


def window_head(name: str, start_ns: int, dur_ns: int) -> dict[str, Any]:
    """Name, start and length of a window."""
    return {
        "name": plain(name),
        "start_ns": int(start_ns),
        "dur_ns": int(dur_ns),
        "dur": human_duration(dur_ns),
    }


def notes_part(notes: list[str]) -> Part:
    """Notes on how to read an answer."""
    items = [plain(note, longest=None) for note in dict.fromkeys(notes) if note]
    return Part("notes", items, len(items), _RAISE)


def _finding(finding: Finding) -> dict[str, Any]:
    """A finding as plain values, without its evidence and without empty ones."""
    values = {
        "title": finding.title,
        "share": finding.share,
        "dur_ns": finding.dur_ns,
        "dur": human_duration(finding.dur_ns),
        "cost_ns": finding.cost_ns,
        "cost": finding.cost,
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
    known = {key: value for key, value in values.items() if value not in ("", None)}
    if not finding.repaired_by:
        known = {key: value for key, value in known.items() if not key.startswith("saves")}
    return {key: plain(value, longest=None) for key, value in known.items()}


def helpful_changes(opportunities: pd.DataFrame) -> pd.DataFrame:
    """Opportunities that save time, each once; of kernels, at twice their speed."""
    is_shown = (opportunities["kind"] != "kernel") | (opportunities["left_share"] == TWICE_AS_FAST)
    found = opportunities[is_shown & (opportunities["saves_ns"] > 0)]
    return found.drop_duplicates("change")[list(_CHANGES)]


def _changes_part(summary: Summary | JobSummary) -> Part:
    """Changes for `what_if`; none if the verdict is withheld."""
    found = helpful_changes(summary.opportunities)
    shown = found.head(0) if summary.verdict.withheld else found
    return rows_part("opportunities", shown, "what_if without changes has them.", limit=_N_CHANGES)


def _weak_part(weak: pd.DataFrame, first: tuple[str, ...]) -> Part:
    """Quality checks that failed."""
    columns = [*first, "check", "share", "verdict", "consequence"]
    return rows_part("weak_checks", weak[columns], "ask 'quality' has them.", longest=None)


def _bounds_part(frame: pd.DataFrame, key: str) -> Part:
    """The critical path by group, which adds up to the window."""
    rows = frame.rename_axis(key).reset_index()[[key, "dur_ns", "share"]]
    return rows_part(f"path_by_{key}", rows, f"path by={key!r} has them.")


def verdict_parts(target: Target) -> tuple[dict[str, Any], list[Part]]:
    """The verdict on a trace or a job: head and parts of the answer."""
    return _job_parts(target) if target.is_job else _trace_parts(target)


def _trace_parts(target: Target) -> tuple[dict[str, Any], list[Part]]:
    summary = target.summary
    window = summary.graph.interval
    head = {
        "file": plain(target.file),
        **_head(summary, window_head(window.name, window.start_ns, window.dur_ns)),
        "unknown_share": plain(summary.path.unknown_share),
        "inferred_share": plain(summary.path.inferred_share),
    }
    return head, [
        *_first_parts(target, summary),
        _bounds_part(summary.by_bound, "bound"),
        _weak_part(summary.weak_checks, ()),
        _changes_part(summary),
        _report_part(target, summary.name),
    ]


def _job_parts(target: Target) -> tuple[dict[str, Any], list[Part]]:
    summary = target.job_summary
    path = summary.path
    window = window_head(path.name, path.start_ns, path.dur_ns)
    failures = [
        [plain(target.session.root.shown(path)), plain(error, longest=300)]
        for path, error in summary.failures.itertuples(index=False)
    ]
    return {"folder": plain(target.name), **_head(summary, window)}, [
        *_first_parts(target, summary),
        Part("failures", failures, len(failures), _RAISE, ("path", "error")),
        _bounds_part(summary.by_rank, "rank"),
        _bounds_part(summary.by_bound, "bound"),
        rows_part("stragglers", summary.stragglers, "ask 'stragglers' has them."),
        _weak_part(summary.weak_by_check, ("n_ranks",)),
        _changes_part(summary),
        _report_part(target, summary.name),
    ]


def _report_part(target: Target, name: str) -> Part:
    """Files of a report on it that lie there, for people; or the command that writes them."""
    root = target.session.root
    origin = ReportOrigin.of(target.path, target.window, target.capture or "latest")
    files = [plain(root.shown(path), longest=None) for path in origin.files(name, root.folder)]
    window = f" -w {shlex.quote(target.window)}" if target.window else ""
    how = f"htagraph report {shlex.quote(target.name)}{window} writes the page."
    items = files or [plain(how, longest=None)]
    return Part("report", items, len(items), _RAISE)


def _head(summary: Summary | JobSummary, window: dict[str, Any]) -> dict[str, Any]:
    """What was recorded, in which window, and why a verdict is withheld."""
    withheld = summary.verdict.withheld
    head = {"about": plain(summary.facts), "window": window}
    return {**head, "withheld": plain(withheld, longest=400)} if withheld else head


def _first_parts(target: Target, summary: Summary | JobSummary) -> list[Part]:
    """What is damaged, findings, their evidence, and notes."""
    verdict = summary.verdict
    damage = [plain(said, longest=None) for said in verdict.damage]
    findings = [_finding(one) for one in verdict.top_findings]  # those of half a percent and more
    evidence = [
        plain([number, item.name, item.op, item.frame, item.dur_ns])
        for number, finding in enumerate(verdict.top_findings, start=1)
        for item in finding.evidence
    ]
    columns = ("finding", "name", "op", "frame", "dur_ns")
    first = [Part("damage", damage, len(damage), "ask 'damage' has all.")] if damage else []
    return [
        *first,
        Part("findings", findings, len(findings), _RAISE),
        Part("evidence", evidence, len(evidence), _RAISE, columns),
        notes_part([*_notes(target), *summary.caveats, verdict.replays, verdict.notes]),
    ]


def _notes(target: Target) -> list[str]:
    """Notes on files and window, without what loading the job said of its damage."""
    if not target.is_job:
        return target.notes
    told = job_damage_in_words(damage_of_ranks(target.job.summaries))
    return [note for note in target.notes if note not in told]
