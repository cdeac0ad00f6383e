"""Verdicts as plain values: what one screen shows of the document of a report."""

from __future__ import annotations

import shlex
from typing import Any

import pandas as pd

from htagraph.agents.budget import Part, plain
from htagraph.agents.target import Target
from htagraph.findings.verdict import Card
from htagraph.job.damage import damage_of_ranks, job_damage_in_words
from htagraph.job.path import JobPath
from htagraph.model.units import human_duration
from htagraph.path import CriticalPath
from htagraph.replay.candidates import TWICE_AS_FAST
from htagraph.reports.report_folder import ReportOrigin

_CHANGES = ("change", "saves_ns", "low_ns", "high_ns", "saves_share")

_N_EVIDENCE = 2
"""Contributors of a cause, chosen: `path` has all. Pinned by `tests/agents/test_desk.py`."""

_N_RANKS = 3
"""Ranks of a cause, chosen: `path` has all. Pinned by `tests/agents/test_desk.py`."""

_LONGEST_HEADLINE = 400
"""Characters of a headline, chosen: it is in every answer, also in the shortest."""

_RAISE = "raise max_tokens."


def window_head(name: str, start_ns: int, dur_ns: int) -> dict[str, Any]:
    """Name, start and length of a window."""
    return {
        "name": plain(name),
        "start_ns": int(start_ns),
        "dur_ns": int(dur_ns),
        "dur": human_duration(dur_ns),
    }


def path_window(path: CriticalPath | JobPath) -> dict[str, Any]:
    """The window of a path."""
    interval = path.window if isinstance(path, CriticalPath) else path
    return window_head(interval.name, interval.start_ns, path.dur_ns)


def notes_part(notes: list[str]) -> Part:
    """Notes on how to read an answer."""
    return _said("notes", notes, _RAISE)


def _said(name: str, sentences: list[str], how: str) -> Part:
    """Sentences, without empty ones."""
    items = [plain(said, longest=None) for said in dict.fromkeys(sentences) if said]
    return Part(name, items, len(items), how)


def helpful_changes(opportunities: pd.DataFrame) -> pd.DataFrame:
    """Opportunities that save time, each once; of kernels, at twice their speed."""
    is_shown = (opportunities["kind"] != "kernel") | (opportunities["left_share"] == TWICE_AS_FAST)
    found = opportunities[is_shown & (opportunities["saves_ns"] > 0)]
    return found.drop_duplicates("change")[list(_CHANGES)]


def verdict_parts(target: Target) -> tuple[dict[str, Any], list[Part]]:
    """The verdict on a trace or a job: head and parts of the answer."""
    summary = target.job_summary if target.is_job else target.summary
    verdict = summary.verdict
    document = verdict.document()
    items = [one for one in document["items"] if one["is_card"]]
    cards = [_card(card, item) for card, item in zip(verdict.cards, items, strict=True)]
    head = {
        **plain({"folder": target.name} if target.is_job else {"file": target.file}),
        "about": plain(summary.facts),
        "window": path_window(summary.path),
        **({"step_ns": round(verdict.step_ns)} if verdict.n_steps else {}),
        "headline": plain(document["headline"], longest=_LONGEST_HEADLINE),
        "state": document["state"],
    }
    return head, [
        _said("damage", document["damage"], "ask 'damage' has all."),
        Part("cards", cards, len(cards), _RAISE),
        _said("also", [document["also"]], _RAISE),
        notes_part([*_notes(target), *summary.caveats, *document["notes"]]),
        _failures_part(target),
        _report_part(target, summary.name),
    ]


def _card(card: Card, item: dict[str, Any]) -> dict[str, Any]:
    """A card as the document has it, with its largest contributors."""
    fixes, evidence = [], []
    for one, fix in zip(card.findings, item["fix"], strict=True):
        # The second number of a cause only if it adds a fact.
        saves = {"saves_ns": fix["saves_ns"]} if one.advice != one.fix.do else {}
        told = {name: fix[name] for name in ("do", "why", "change", "options")} | saves
        fixes.append(_known(told))
        evidence += [
            _known(
                {
                    "cause": one.label if len(card.findings) > 1 else "",
                    "label": part.label,
                    "name": "" if part.name in part.label else plain(part.name),
                    "dur_ns": part.dur_ns,
                }
            )
            for part in one.evidence[:_N_EVIDENCE]
        ]
    return _known(
        {
            "title": item["title"],
            "cost_ns": item["cost_ns"],
            "share": None if card.cost_ns is None else card.share,
            "path_ns": item["path_ns"],
            "alone_ns": item["alone_ns"] if len(card.findings) > 1 else {},
            "detail": item["detail"],
            "ranks": dict(list(item["ranks"].items())[:_N_RANKS]),
            "fix": [fix for fix in fixes if fix],
            "evidence": evidence,
            "longest_start_ns": item["longest_start_ns"],
            "longest_ns": item["longest_ns"],
        }
    )


def _known(values: dict[str, Any]) -> dict[str, Any]:
    """Plain values, without those that say nothing."""
    known = {key: value for key, value in values.items() if value not in ("", None, {}, [])}
    return {key: plain(value, longest=None) for key, value in known.items()}


def _failures_part(target: Target) -> Part:
    """Files of a job that could not be read."""
    if not target.is_job:
        return _said("failures", [], _RAISE)
    shown, failures = target.session.root.shown, target.job_summary.failures
    rows = failures.itertuples(index=False)
    return _said("failures", [f"{shown(path)}: {error}" for path, error in rows], _RAISE)


def _report_part(target: Target, name: str) -> Part:
    """Files of a report on it that lie there, for people; or the command that writes them."""
    root = target.session.root
    origin = ReportOrigin.of(target.path, target.window, target.capture or "latest")
    files = [str(root.shown(path)) for path in origin.files(name, root.folder)]
    window = f" -w {shlex.quote(target.window)}" if target.window else ""
    how = f"htagraph report {shlex.quote(target.name)}{window} writes the page."
    return _said("report", files or [how], _RAISE)


def _notes(target: Target) -> list[str]:
    """Notes on files and window, without what loading the job said of its damage."""
    if not target.is_job:
        return target.notes
    told = job_damage_in_words(damage_of_ranks(target.job.summaries))
    return [note for note in target.notes if note not in told]
