"""What is known of a segment of the path, shown when it is clicked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from htagraph.explain.segment_causes import segment_causes
from htagraph.model.arrays import I64
from htagraph.model.kinds import Bound, bound_in_words
from htagraph.model.labels import name_label, track_name
from htagraph.model.rules import Evidence, Rule
from htagraph.model.units import human_count, human_duration
from htagraph.reports.page.texts import Texts

_WIDTH = 96
"""Characters of a short name in the details of a segment: chosen."""
_EVIDENCE = {
    Evidence.RECORDED: "recorded by the profiler",
    Evidence.DEFINITION: "by definition of a thread, a stream or a call",
    Evidence.INFERRED: "inferred from the order and times of events",
}
_NO_EVIDENCE = "none: no record says what this time was spent on"
"""Of unknown waits, whatever its edge rests on: what is recorded is the edge, not its length."""
_RULES = {rule.label: rule for rule in Rule}


def learnt(inferences: pd.DataFrame) -> dict[tuple[int, str], str]:
    """Support of each rule that learns from pairs of places, in words, by rank and rule.

    The rank is -1 if there is only one.

    Parameters
    ----------
    inferences : DataFrame, schema `answers.INFERENCES`
        By rule, of a rank, or of a job with a column ``rank``.
    """
    found = inferences[inferences["n_pairs"] > 0]
    rank = found["rank"] if "rank" in found.columns else np.full(len(found), -1)
    columns = found[["rule", "n_pairs", "n_matched", "n_all", "chance"]].itertuples(index=False)
    return {
        (int(one), str(rule)): (
            f"learned from {human_count(n_pairs, 'pair')} of places: "
            f"{n_matched:,} of {n_all:,} waits match, at most {chance:.1%} by chance"
        )
        for one, (rule, n_pairs, n_matched, n_all, chance) in zip(rank, columns, strict=True)
    }


def segment_details(
    segments: pd.DataFrame,
    attributed: pd.DataFrame,
    rows: Collection[int],
    *,
    start_ns: int,
    support: Mapping[tuple[int, str], str],
    texts: Texts,
    held: Mapping[int, str],
) -> dict[str, Any]:
    """What is known of some segments, as numbers of texts, for JSON.

    Parameters
    ----------
    attributed : DataFrame, schema `frames.ATTRIBUTED_TIME` or `frames.JOB_ATTRIBUTED_TIME`
        Of the same path.
    rows : collection of int
        Segments to describe; `segments` has them and the ones before, by their index.
    start_ns : int, unit=ns
        Of the window.
    support : mapping of (int, str) to str
        From `learnt`.
    held : mapping of int to str
        By edge, why its head came only then; of some.

    Returns
    -------
    dict
        ``fields``, their names; ``rows``, by segment: start after `start_ns`, length, numbers of
        the short and the full name, what ``htagraph why`` takes for it, and numbers of the text of
        each field, -1 for none.
    """
    shown = np.array(sorted(rows), dtype=np.int64)
    of = segments.loc[shown]
    columns = {name: of[name].astype(object).tolist() for name in ("name", "bound", "op", "track")}
    rules = of["rule"].astype(object).tolist()
    ranks = of["rank"].tolist() if "rank" in of.columns else [-1] * len(of)
    n_segments = int(attributed["segment"].to_numpy().max(initial=-1)) + 1
    causes = pd.Series(segment_causes(attributed, n_segments)[shown]).astype(object)
    starts, durs = ((of[name]).tolist() for name in ("start_ns", "dur_ns"))
    fields = {
        "bound": [bound_in_words(bound) for bound in columns["bound"]],
        "cause": causes.fillna("").tolist(),
        "operator": columns["op"],
        "Python": _code(attributed, shown),
        "start": [f"+{human_duration(start - start_ns)}" for start in starts],
        "duration": [human_duration(dur) for dur in durs],
        "rank": ["" if rank < 0 else str(rank) for rank in ranks],
        "on": [track_name(str(track)) for track in columns["track"]],
        "waited for": _waited_for(segments, shown),
        "why": [held.get(edge, "") for edge in of["edge"].tolist()],
        "rule": rules,
        "evidence": [
            _evidence(rule, bound, support.get((rank, rule), ""))
            for rank, rule, bound in zip(ranks, rules, columns["bound"], strict=True)
        ],
    }
    told = {name: values for name, values in fields.items() if any(values)}
    numbers = [
        [texts.number(str(value)) if value else -1 for value in values] for values in told.values()
    ]
    short = [texts.number(name_label(str(name), width=_WIDTH)) for name in columns["name"]]
    named = [texts.number(str(name)) for name in columns["name"]]
    since = [start - start_ns for start in starts]
    events = of["event"].tolist()
    asked = [
        "" if event < 0 else f"{event}" if rank < 0 else f"{event} --rank {rank}"
        for event, rank in zip(events, ranks, strict=True)
    ]
    records = zip(shown.tolist(), since, durs, short, named, asked, *numbers, strict=True)
    return {"fields": list(told), "rows": {row: record for row, *record in records}}


def _code(attributed: pd.DataFrame, rows: I64) -> list[str]:
    """The line of Python code that ran longest in each segment, empty for none."""
    of = attributed[attributed["segment"].isin(rows) & (attributed["frame"] != "")]
    longest = of.sort_values("dur_ns", ascending=False, kind="stable").drop_duplicates("segment")
    found: list[str] = longest.set_index("segment")["frame"].reindex(rows).fillna("").tolist()
    return found


def _waited_for(segments: pd.DataFrame, rows: I64) -> list[str]:
    """The segment before each one, which it had to wait for."""
    before = segments.loc[np.maximum(rows - 1, 0)]
    names, bounds = before["name"].tolist(), before["bound"].astype(object).tolist()
    known = [bound != Bound.UNKNOWN_WAITS.label for bound in bounds]
    durs = before["dur_ns"].tolist()
    is_job = "rank" in segments.columns
    ranks = before["rank"].tolist() if is_job else [0] * len(rows)
    own = segments.loc[rows, "rank"].tolist() if is_job else ranks
    where = [
        "" if rank == mine else f", rank {rank}" for rank, mine in zip(ranks, own, strict=True)
    ]
    return [
        "the start of the run"
        if not row
        else f"{name_label(str(name), width=_WIDTH)} ({bound_in_words(bound)}{elsewhere})"
        if is_known
        else f"unknown: the {human_duration(dur_ns)} before are an unknown wait"
        for row, name, bound, elsewhere, is_known, dur_ns in zip(
            rows.tolist(), names, bounds, where, known, durs, strict=True
        )
    ]


def _evidence(rule: str, bound: str, support: str) -> str:
    """What a segment rests on: its edge, unless the time of it is unknown waits."""
    if bound == Bound.UNKNOWN_WAITS.label:
        return _NO_EVIDENCE
    evidence = _EVIDENCE[_RULES[rule].evidence]
    return f"{evidence}; {support}" if support else evidence
