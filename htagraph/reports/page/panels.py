"""What pages are made of: sections and panels, tables, marks, commands to paste, and their head.

A panel is a figure and a table; a click on it tells what is known of a segment. Commands name the
trace and the folder of the page by their whole paths. Tables are rounded for people, with the exact
value in each cell for programs.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import count
from pathlib import Path
from shlex import quote
from string import Template
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from htagraph.explain.segments import segment_causes
from htagraph.findings.verdict import FunctionCost
from htagraph.model.arrays import I64
from htagraph.model.colors import IDLE
from htagraph.model.columns import heading, quantity
from htagraph.model.kinds import Bound, bound_in_words
from htagraph.model.labels import distinct_names, name_label, printable, track_name
from htagraph.model.rules import Evidence, Rule
from htagraph.model.schema import Quantity, Schema
from htagraph.model.units import human_count, human_duration
from htagraph.readers.storage import is_remote, url_of
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.plots.drawing import BOUND_COLORS, CAUSE_COLORS, Drawing
from htagraph.reports.summary import Summary
from htagraph.writers.cells import cell_text
from htagraph.writers.flame import BELOW
from htagraph.writers.output_file import write_text

_MARKED = CAUSE_COLORS | BOUND_COLORS | {"idle": IDLE}

Texts = defaultdict[str, int]
"""Numbers of texts that a page stores once: names of kernels are long. A new text gets the next."""


def new_texts() -> Texts:
    """No text yet."""
    return defaultdict(count().__next__)


def mark(label: str) -> str:
    """Attribute of an element that shows the color of a bound or a cause before its text."""
    return f' data-key="{escape(label)}"' if label in _MARKED else ""


def legend(names: Iterable[str]) -> str:
    """List of bounds with their colors; empty if any name is no bound."""
    labels = {bound_in_words(name): name for name in BOUND_COLORS}
    told = list(dict.fromkeys(map(bound_in_words, names)))
    if not told or not labels.keys() >= set(told):
        return ""
    items = "".join(f"<li{mark(labels[name])}>{escape(name)}</li>" for name in told)
    return f'<ul class="legend" aria-label="Colors">{items}</ul>'


def resource(name: str) -> str:
    """Text of a file next to this module."""
    return files("htagraph.reports.page").joinpath(name).read_text(encoding="utf-8")


def write_html(out: str | Path, body: str, *, title: str, style: str, **parts: str) -> Path:
    """Write a page, whole or not at all; `parts` fill the placeholders of the file `body`."""
    colors = "\n".join(
        f'[data-key="{name}"] {{ --key: {color.css}; --fill: {color.fill}; --ink: {color.ink}; }}'
        for name, color in _MARKED.items()
    )
    style = f"{resource('page.css')}\n{colors}\n{style}"
    page = Template(resource("head.html") + resource(body))
    text = page.substitute(title=escape(title), style=style, **parts)
    write_text(out, "\n".join(map(printable, text.split("\n"))))
    return Path(out)


@dataclass(frozen=True)
class Commands:
    """What to type to see more of what the page shows."""

    source: str  # The trace, or the folder of a job, as a shell takes it
    window: str = ""  # Option for the window of the page; empty for the default

    @classmethod
    def on(cls, summary: Summary | JobSummary) -> Commands:
        """Commands on the trace or the job of a report."""
        if isinstance(summary, JobSummary):
            asked = summary.job.asked_window
            option = f" -w {quote(asked)}" if isinstance(asked, str) else ""
            return cls(_folder([rank.path for rank in summary.job.summaries.values()]), option)
        trace, window = summary.trace, summary.path.window
        source = shell_path(trace.path) if trace.path else "FILE"
        span = summary.graph.dag.span
        if summary.graph.asked is None:
            return cls(source)
        is_name = window == span or window.name in set(trace.steps["name"])
        times = f"{window.start_ns - span.start_ns}:{window.end_ns - span.start_ns}"
        return cls(source, f" -w {quote(window.name) if is_name else times}")

    def of(self, verb: str) -> str:
        """Command of a verb, in the window of the page."""
        return f"htagraph {verb} {self.source}{self.window}"


def shell_path(path: Path) -> str:
    """A path that is valid in every folder, or a URL, as a shell takes it."""
    whole = url_of(path) if is_remote(path) else str(path.absolute())
    return quote(whole.encode("utf-8", "replace").decode())  # a page is UTF-8


def _folder(files: Sequence[Path]) -> str:
    """The folder that holds all files of a job; a placeholder if none does."""
    if len(files) == 1:
        return shell_path(files[0])
    try:
        return shell_path(Path(os.path.commonpath(files)))
    except ValueError:  # on several drives
        return "FOLDER"


def command_html(command: str, *, file: str = "") -> str:
    """A command with a button that copies it; a `file` next to the page moves with it."""
    beside = f' data-beside="{escape(file)}"' if file else ""
    return (
        f'<span class="command"><code{beside}>{escape(command)}</code> '
        '<button type="button" class="copy">copy</button></span>'
    )


_OPEN_ROWS, KEPT_ROWS = 8, 100
"""Rows shown at first, and rows kept: chosen, so that a page of all tables stays a few MB. Pinned
by test_page.
"""

_NAME_WIDTH = 64
"""Characters of a name in a cell: chosen."""
_PATTERN_WIDTH = 36
"""Characters of each name in a pattern: chosen."""
_NEXT = " → "
_OPENED_BY = "name"


class _Cell(NamedTuple):
    """Text of a cell, its exact value, the bound or cause that marks it, and a share as a bar."""

    text: str
    exact: str = ""
    key: str = ""
    part: float = 0.0


def _cells(name: str, column: pd.Series[Any], origin_ns: int) -> list[_Cell]:
    kind, values = quantity(name, column), column.tolist()
    if kind is Quantity.NAME:
        return _names(values)
    has_key, is_part = kind is Quantity.LABEL, kind is Quantity.SHARE
    return [
        _Cell(
            cell_text(kind, value, origin_ns),
            _exact(value),
            str(value) if has_key else "",
            value if is_part and 0 < value <= 1 else 0.0,
        )
        for value in values
    ]


def _names(values: Sequence[Any]) -> list[_Cell]:
    """Cells of names: short, but distinct; a pattern is several names."""
    short = distinct_names([str(name) for name in values], width=_NAME_WIDTH)
    return [
        _Cell(_NEXT.join(name_label(one, width=_PATTERN_WIDTH) for one in name), _NEXT.join(name))
        if isinstance(name, tuple)
        else _Cell(short[str(name)], str(name))
        for name in values
    ]


def _exact(value: object) -> str:
    """A value in full; empty for a number that is none."""
    return "" if value is None or value != value else str(value)  # noqa: PLR0124  NaN


def short_rule() -> str:
    """CSS that hides the rows of a long table until its button is pressed."""
    return f"table.short:not(.found) tbody tr:nth-child(n + {_OPEN_ROWS + 1}) {{ display: none; }}"


def html_table(
    frame: pd.DataFrame,
    *,
    schema: Schema | None = None,
    origin_ns: int = 0,
    segments: Sequence[int] = (),
    n_rows: int = 0,
    whole: str = "",
    texts: Texts | None = None,
) -> str:
    """Frame as an HTML table that can be sorted; headings tell the meanings of a `schema`.

    `segments`: segment of the path that each name opens. `n_rows`: rows of the whole table if the
    frame has only the first; else 0. `whole`: command that prints all rows.
    """
    meanings = {name: column.meaning for name, column in schema.columns.items()} if schema else {}
    n_rows, shown = n_rows or len(frame), frame.head(KEPT_ROWS)
    heads, cells = [], []
    for name, column in shown.items():
        is_number = column.dtype.kind in "iuf"
        heads.append(_head(str(name), meanings.get(str(name), ""), is_number=is_number))
        of_column = _cells(str(name), column, origin_ns)
        if name == _OPENED_BY and len(segments):
            pairs = zip(of_column, segments, strict=False)
            cells.append([_opening(cell, segment, texts) for cell, segment in pairs])
        else:
            cells.append([_cell(cell, texts, is_number=is_number) for cell in of_column])
    rows = "\n".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    short = " short" if len(shown) > _OPEN_ROWS else ""
    return (
        f'<div class="scroll" tabindex="0"><table class="data{short}">\n'
        f"<thead><tr>{''.join(heads)}</tr></thead>\n<tbody>{rows}</tbody>\n</table></div>"
        f"{_more(len(shown), n_rows, whole)}"
    )


def _more(kept: int, n_rows: int, whole: str) -> str:
    """Button that shows the rest of the table, and a note on rows that the page does not keep."""
    every = f"all {n_rows:,}" if kept == n_rows else f"{kept:,} of {n_rows:,}"
    button = (
        f'<button type="button" class="all" aria-expanded="false">Show {every}</button>'
        if kept > _OPEN_ROWS
        else ""
    )
    cut = f"<span>All rows: {command_html(whole)}</span>" if kept < n_rows and whole else ""
    return f'<p class="note more">{button} {cut}</p>' if button or cut else ""


def _head(name: str, meaning: str, *, is_number: bool) -> str:
    """Heading of a column; hovering shows its meaning."""
    tip = f' title="{escape(meaning)}"' if meaning else ""
    align = ' class="n"' if is_number else ""
    return f"<th{align}{tip}>{escape(heading(name))}</th>"


def _cell(cell: _Cell, texts: Texts | None, *, is_number: bool) -> str:
    """A cell; a number carries its exact value, a shortened name the full one."""
    if is_number:
        part = f' style="--part:{100 * cell.part:.1f}%"' if cell.part else ""
        return f'<td class="n"{part} data-value="{escape(cell.exact)}">{escape(cell.text)}</td>'
    return f"<td{mark(cell.key)}{_tip(cell, texts)}>{escape(cell.text)}</td>"


def _opening(cell: _Cell, segment: int, texts: Texts | None) -> str:
    """A cell with a name that opens a segment of the path."""
    button = f'<button type="button" class="opens" data-segment="{segment}">'
    return f"<td{_tip(cell, texts)}>{button}{escape(cell.text)}</button></td>"


def _tip(cell: _Cell, texts: Texts | None) -> str:
    """Attribute with the full text of a shortened cell, or the numbers of its parts."""
    if cell.text == cell.exact or len(cell.exact) <= len(cell.text):
        return ""
    if texts is None:
        return f' title="{escape(cell.exact)}"'
    # Of a sequence, names are stored one by one: many sequences have the same.
    numbers = " ".join(str(texts[part]) for part in cell.exact.split(_NEXT))
    return f' data-whole="{numbers}"'


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
