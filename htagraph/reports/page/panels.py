"""Sections of a page and their panels, each a figure and a table; and what a click on it tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from htagraph.explain.segments import segment_causes
from htagraph.findings.verdict import FunctionCost
from htagraph.model.arrays import I64
from htagraph.model.kinds import Bound, bound_in_words
from htagraph.model.labels import name_label, track_name
from htagraph.model.rules import Evidence, Rule
from htagraph.model.schema import Schema
from htagraph.model.units import human_count, human_duration
from htagraph.reports.page.parts import KEPT_ROWS, Texts
from htagraph.reports.plots.drawing import Drawing
from htagraph.writers.flame import BELOW

_N_STACKS, _LEAST_WIDTH = 20_000, 0.0005
"""Stacks, and the least share of the path of a box, in a flame graph. A limit of the page."""
_REST = "(shorter stacks)"

Flame = list[tuple[int, str, int, str, float]]
"""Boxes: the one above (-1 for none), name, time, bound of most of it, and the share of its time
that is hidden. Callers come first.
"""


def flame_boxes(flame: pd.DataFrame, functions: Iterable[FunctionCost]) -> Flame:
    """Boxes of a flame graph, the widest first, of schema `frames.FLAME`.

    Of a function whose cost is known, what its path time exceeds that by is hidden.
    """
    hidden = {one.frame: max(1 - one.cost_ns / max(one.path_ns, 1), 0.0) for one in functions}
    shown, rest_ns = flame.head(_N_STACKS), int(flame["dur_ns"][_N_STACKS:].sum())
    rows = [*shown.astype(object).itertuples(index=False), (_REST, "", rest_ns)]
    number: dict[tuple[int, str], int] = {}
    times: list[Counter[str]] = []
    for stack, bound, dur_ns in rows:
        at = -1
        for name in stack.split(BELOW):
            at = number.setdefault((at, name), len(times))
            times += [Counter()] * (at == len(times))
            times[at][bound] += dur_ns
    least_ns = max(_LEAST_WIDTH * int(flame["dur_ns"].sum()), 1)
    total = [of.total() for of in times]
    order = sorted((at for at, ns in enumerate(total) if ns >= least_ns), key=lambda at: -total[at])
    place, above = {-1: -1} | {at: row for row, at in enumerate(order)}, list(number)
    return [
        (place[above[at][0]], name, total[at], times[at].most_common(1)[0][0], hidden.get(name, 0))
        for at, name in ((at, above[at][1]) for at in order)
    ]


@dataclass(frozen=True)
class Panel:
    """A figure, a table, or both."""

    name: str  # Identifies the panel in the page
    # Only the columns that a table shows first are kept, and as many rows as a table keeps
    frame: pd.DataFrame
    schema: Schema
    heading: str = ""  # Title of a panel without a figure
    figure: Drawing | None = None
    n_rows: int = 0  # Rows of the whole table if the frame has only the first; else 0
    segments: tuple[int, ...] = ()  # Segment of the path in each row of the frame
    # Verb whose command prints all rows; by default it asks the question of the schema
    verb: str = ""
    is_folded: bool = False  # Whether the table is folded below its figure
    flame: Flame | None = None  # Drawn above the table

    def __post_init__(self) -> None:
        """Keep what the table shows, and count the rest: whole tables are large."""
        plain = pd.DataFrame(self.frame.head(KEPT_ROWS))  # an `Answer` is slow to take apart
        first = plain[self.schema.shown(plain)]
        told = [name for name in first if first[name].dtype != object or (first[name] != "").any()]
        object.__setattr__(self, "n_rows", self.n_rows or len(self.frame))
        object.__setattr__(self, "frame", first[told].copy())

    @property
    def legend(self) -> list[str]:
        """Names of the colors of the figure, if it needs a legend."""
        if self.figure is None or not self.figure.layout.get("showlegend", True):
            return []
        traces = [one for one in self.figure.data if one.get("showlegend", True)]
        named = list(dict.fromkeys(one["name"] for one in traces if "name" in one))
        return named if len(named) > 1 or "showlegend" in self.figure.layout else []

    @property
    def shown_segments(self) -> set[int]:
        """Segments of the path that can be opened from the figure or the table."""
        drawn = () if self.figure is None else self.figure.data
        rows = {row for trace in drawn for row in trace.get("meta", ()) if row >= 0}
        return rows | set(self.segments[: len(self.frame)])


@dataclass(frozen=True)
class Section:
    """A part of the page; `name` is its anchor."""

    name: str
    title: str
    intro: str  # How to read it
    panels: tuple[Panel, ...]  # Those without rows are left out
    # What it says in one line, next to its title while it is folded; by default the title of its
    # first figure
    fact: str = ""
    is_folded: bool = True

    def __post_init__(self) -> None:
        """Leave out what is empty; find the fact."""
        kept = tuple(panel for panel in self.panels if len(panel.frame))
        drawn = (panel.figure.title for panel in kept if panel.figure is not None)
        object.__setattr__(self, "panels", kept)
        object.__setattr__(self, "fact", self.fact or next(drawn, ""))


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
    """Support of each rule that learns from pairs of places, by rank (-1 for one) and rule."""
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

    `attributed`: of the same path. `rows`: segments to describe; `segments` has them and the ones
    before, by their index. `start_ns`: of the window. `support`: from `learnt`. `held`: by edge,
    why its head came only then; of some. ``fields``, their names; ``rows``, by segment: start after
    `start_ns`, length, numbers of the short and the full name, what ``htagraph why`` takes for it,
    and numbers of the text of each field, -1 for none.
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
    numbers = [[texts[str(value)] if value else -1 for value in values] for values in told.values()]
    short = [texts[name_label(str(name), width=_WIDTH)] for name in columns["name"]]
    named = [texts[str(name)] for name in columns["name"]]
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
