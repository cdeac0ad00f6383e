"""Answers of bounded length, which name what does not fit; and the verdict as such an answer."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from htagraph.agents.target import Target
from htagraph.findings.path import CriticalPath
from htagraph.findings.verdict import Card
from htagraph.job.damage import damage_of_ranks, job_damage_in_words
from htagraph.job.path import JobPath
from htagraph.model.labels import printable
from htagraph.model.units import human_duration
from htagraph.replay.predictions import TWICE_AS_FAST
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.report_folder import ReportOrigin

CHARACTERS_PER_TOKEN = 4
"""Estimate for English and JSON, chosen. Pinned by `test_desk.py`, which measures answers."""

LEAST_TOKENS = 300
"""Shortest answer, chosen: the head and the names of what is left out fit into it."""

MOST_TOKENS = 50_000
"""Longest answer, chosen: longer ones belong into a report."""

LONGEST_NAME = 120
"""Characters of a name that `full_names` does not ask for, chosen. `docs/agents.md` states it."""

_DIGITS = 6
"""Significant digits of a float, chosen: shares and durations need no more. `docs/agents.md`
states it."""

_SPARE = 12
"""Characters of an entry of ``left_out`` besides its texts: six of JSON, and digits that an offset
may gain."""


@dataclass(frozen=True)
class Part:
    """A list in an answer, cut where the answer is full."""

    name: str  # Its key
    items: Iterable[Any]  # Plain values, the most important first
    n_all: int  # Number of items, with those that `offset` skips and a limit leaves out
    how: str = ""  # How to get the rest
    columns: tuple[str, ...] = ()  # Of a table, whose items are rows
    offset: int = 0  # Items skipped at the start

    def of(self, items: list[Any]) -> Any:  # noqa: ANN401  a list, or a table
        """The part with some items."""
        return {"columns": list(self.columns), "rows": items} if self.columns else items

    def rest(self, n_items: int) -> str:
        """The entry of ``left_out`` after so many items, empty if nothing is missing."""
        n_left = self.n_all - self.offset - n_items
        if n_left <= 0:
            return ""
        how = self.how.replace("{next}", str(self.offset + n_items))
        return f"{n_left:,} of {self.n_all:,} left out: {how}"


def as_json(document: Any) -> str:  # noqa: ANN401  plain values
    """JSON without spaces; NaN and infinity are errors."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def fitted(head: Mapping[str, Any], parts: Iterable[Part], max_tokens: int) -> dict[str, Any]:
    """An answer of at most so many tokens.

    The head is always included. The first parts take what they need, later ones the rest.
    ``left_out`` names for each part what is missing, and how to get it.
    """
    parts = [part for part in parts if part.rest(0)]
    # Reserved for the entries of left_out; a part that fits frees its own.
    reserved = {part.name: len(part.rest(0)) + len(part.name) + _SPARE for part in parts}
    room = max_tokens * CHARACTERS_PER_TOKEN - len(as_json(head)) - len('"left_out":{},')
    room -= sum(reserved.values())
    shown: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for part in parts:
        items, n_characters = _fitting(part, room)
        room -= n_characters
        if items:
            shown[part.name] = part.of(items)
        if rest := part.rest(len(items)):
            left_out[part.name] = rest
        else:
            room += reserved[part.name]
    return {**head, **shown, **({"left_out": left_out} if left_out else {})}


def _fitting(part: Part, room: int) -> tuple[list[Any], int]:
    """The first items of a part that fit into some characters, and how many those take."""
    taken = len(as_json({part.name: part.of([])}))
    items: list[Any] = []
    for item in part.items:
        n_characters = len(as_json(item)) + 1
        if taken + n_characters > room:
            break
        taken += n_characters
        items.append(item)
    return (items, taken) if items else ([], 0)


def plain(value: Any, *, longest: int | None = LONGEST_NAME) -> Any:  # noqa: ANN401  any value
    r"""A value for JSON: no NaN or infinity, and texts without control characters.

    `longest`: characters, beyond which a text loses its middle; None for no limit.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(one, longest=longest) for key, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(one, longest=longest) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, bool | int):
        return value
    return _shortened(printable(str(value)), longest)


def _shortened(text: str, longest: int | None) -> str:
    """A text, without its middle if it is too long."""
    if longest is None or len(text) <= longest:
        return text
    n_first = longest * 2 // 3
    return f"{text[:n_first]}…{text[n_first + 1 - longest :]}"


def rows_part(
    name: str,
    frame: pd.DataFrame,
    how: str,
    *,
    offset: int = 0,
    limit: int | None = None,
    longest: int | None = LONGEST_NAME,
) -> Part:
    """A table, cut where the answer is full."""
    most = min(limit or MOST_TOKENS, MOST_TOKENS)  # a row takes a token at least
    shown = frame.iloc[offset : offset + most]
    # By column: a row of a frame would have one type, and integers next to shares become floats.
    columns = [shown.iloc[:, at].astype(object).tolist() for at in range(shown.shape[1])]
    rows = ([plain(one, longest=longest) for one in row] for row in zip(*columns, strict=True))
    return Part(name, rows, len(frame), how, tuple(map(str, frame.columns)), offset)


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
    summary = target.summary
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
    origin = ReportOrigin.of(target.path, target.window, target.capture or "latest")
    root, shown = target.session.root, target.session.root.shown
    failed = summary.failures.itertuples(index=False) if isinstance(summary, JobSummary) else ()
    # Of a report on it, the files that lie there, for people; or the command that writes them.
    files = [shown(path) for path in origin.files(summary.name, root.folder)]
    window = f" -w {shlex.quote(target.window)}" if target.window else ""
    how = f"htagraph report {shlex.quote(target.name)}{window} writes the page."
    return head, [
        _said("damage", document["damage"], "ask 'damage' has all."),
        Part("cards", cards, len(cards), _RAISE),
        _said("also", [document["also"]], _RAISE),
        notes_part([*_notes(target), *summary.caveats, *document["notes"]]),
        _said("failures", [f"{shown(path)}: {error}" for path, error in failed], _RAISE),
        _said("report", files or [how], _RAISE),
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


def _notes(target: Target) -> list[str]:
    """Notes on files and window, without what loading the job said of its damage."""
    if not target.is_job:
        return target.notes
    told = job_damage_in_words(damage_of_ranks(target.job.summaries))
    return [note for note in target.notes if note not in told]
