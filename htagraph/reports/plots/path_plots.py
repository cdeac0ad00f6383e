"""Figures of the critical path over time and by step, and of what differs most between two runs."""

from __future__ import annotations

from html import escape
from typing import Any, Literal

import numpy as np
import pandas as pd

from htagraph.errors import QueryError, one_of
from htagraph.findings.path import CriticalPath
from htagraph.job.path import JobPath
from htagraph.lookup.steps import find_steps
from htagraph.model import frames
from htagraph.model.arrays import I64, Bools
from htagraph.model.colors import SERIES, Color
from htagraph.model.kinds import Bound, bound_in_words
from htagraph.model.labels import distinct_names
from htagraph.model.units import human_count, human_duration
from htagraph.reports.plots.drawing import (
    BOUND_COLORS,
    Blocks,
    Drawing,
    TimeUnit,
    bars,
    block_bars,
    color_of,
    hatched,
    label,
    named_rows,
    new_figure,
    no_figure,
    of_frame,
    of_path,
    percent,
    step_lines,
    thin_path,
    time_axis,
)
from htagraph.reports.summary import time_by_step

_MAX_SINGLE = 600
"""Segments drawn one by one: chosen, to keep a page of any trace a few MB."""
_MAX_STEPS = 24
"""Steps with a bar: chosen, to fit a screen."""
_MAX_BOUNDS, _LEAST = 8, 0.01
"""Most bounds with a row of their own, and their least share of the path; the others share the last
row. Chosen, to fit a screen."""
_MAX_RANKS = 16
"""Ranks with a row of their own: chosen."""


@of_path("CriticalPath")
def critical_path_timeline(path: CriticalPath, *, max_single: int = _MAX_SINGLE) -> Drawing:
    """Figure of the critical path over time, one row per bound; the area of a block is its time.

    Parameters
    ----------
    path : CriticalPath
    max_single : int
        Number of the longest segments that are drawn one by one; the others are joined between
        them, and the note says so (``figure.layout.meta["note"]``).
    """
    origin, codes = path.window.start_ns, {bound.label: int(bound) for bound in Bound}
    coded = path.coded
    blocks = thin_path(coded.start_ns, coded.dur_ns, coded.bound, max_single=max_single)
    segments = path.segments_at(np.unique(blocks.segment[blocks.segment >= 0]))
    totals = path.breakdown(by="bound")
    totals = totals[totals["dur_ns"] > 0]
    unit = TimeUnit.fitting(path.dur_ns)
    n_own = min(int((totals["share"] >= _LEAST).sum()), _MAX_BOUNDS)
    n_own = len(totals) if len(totals) <= n_own + 1 else n_own
    rows = [
        # Rows are named, so no hatch has to tell the bound; it would look like more segments.
        _row(
            segments,
            blocks,
            blocks.code == codes[bound],
            (min(row, n_own), bound, origin, unit),
            color_of(BOUND_COLORS, bound)._replace(hatch=""),
        )
        for row, bound in enumerate(totals.index.astype(str))
    ]
    marks = [
        f"{bound_in_words(name)} {percent(share)}"
        for name, share in zip(totals.index[:n_own], totals["share"], strict=False)
    ]
    if len(totals) > n_own:
        rest = float(totals["share"].iloc[n_own:].sum())
        marks.append(f"{len(totals) - n_own} others {percent(rest)}")
    return new_figure(
        rows,
        _longest(segments, origin),
        rows=len(marks),
        barmode="overlay",
        showlegend=False,
        yaxis=named_rows(marks) | {"fixedrange": True},
        xaxis=time_axis(unit, path.dur_ns),
        shapes=step_lines(find_steps(path.dag.events)["start_ns"], path.window, unit),
        dragmode="zoom",
        note=_note(segments, blocks, path.dur_ns),
    )


@of_path("JobPath")
def job_path_timeline(path: JobPath, *, max_single: int = _MAX_SINGLE) -> Drawing:
    """Figure of a job's critical path over time, one row per rank, colored by bound.

    Parameters
    ----------
    path : JobPath
    max_single : int
        As of `critical_path_timeline`.

    Returns
    -------
    plotly.graph_objects.Figure
        The ranks with most of the path have rows of their own, the others one together.
    """
    segments, unit = path.segments, TimeUnit.fitting(path.dur_ns)
    shares = path.breakdown(by="rank")["share"]
    shown = sorted(int(rank) for rank in shares.index[:_MAX_RANKS])
    names = [f"rank {rank} {percent(float(shares[rank]))}" for rank in shown]
    if len(shares) > len(shown):
        names.append(
            f"{human_count(len(shares) - len(shown), 'other')} "
            f"{percent(float(shares.iloc[len(shown) :].sum()))}"
        )
    rank = segments["rank"].to_numpy(np.int64)
    at = np.minimum(np.searchsorted(shown, rank), len(shown) - 1)
    row = np.where(np.array(shown)[at] == rank, at, len(shown)) if shown else at
    n_bounds = len(segments["bound"].cat.categories)
    code = row * n_bounds + segments["bound"].cat.codes.to_numpy().astype(np.int64)
    start_ns, dur_ns = (segments[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
    blocks = thin_path(start_ns, dur_ns, code, max_single=max_single)
    traces, named = [], set()
    for one in np.unique(blocks.code).tolist():
        bound = str(segments["bound"].cat.categories[one % n_bounds])
        drawn = _row(
            segments,
            blocks,
            blocks.code == one,
            (one // n_bounds, bound, path.start_ns, unit),
            color_of(BOUND_COLORS, bound),
        )
        traces.append(drawn | {"legendgroup": bound, "showlegend": bound not in named})
        named.add(bound)
    hops = int((np.diff(rank) != 0).sum())
    title = (
        f"The path stays on rank {shown[0]}"
        if not hops and shown
        else f"The path hops {'once' if hops == 1 else f'{hops:,} times'} between "
        f"{human_count(len(shares), 'rank')}"
    )
    return new_figure(
        traces,
        title,
        rows=len(names),
        barmode="overlay",
        yaxis=named_rows(names) | {"fixedrange": True},
        xaxis=time_axis(unit, path.dur_ns, "common time"),
        dragmode="zoom",
        note=_note(segments, blocks, path.dur_ns),
    )


def _row(
    segments: pd.DataFrame,
    blocks: Blocks,
    mine: Bools,
    about: tuple[int, str, int, TimeUnit],
    color: Color,
) -> dict[str, Any]:
    """Blocks of one bound as bars of a row; a joined one is as high as its share.

    `segments` has those that are blocks by themselves. ``meta`` has the row of each bar's segment,
    -1 for a joined one.
    """
    row, bound, origin, unit = about
    at = np.flatnonzero(mine)
    place = segments.index.get_indexer(pd.Index(blocks.segment[at]))
    names, ops = segments["name"].to_numpy(), segments["op"].to_numpy()
    # A joined block is no segment, so none is marked for it.
    is_inferred = np.append(segments["is_inferred"].to_numpy(bool), False)
    rules = segments["rule"].astype(object).to_numpy()
    columns = (column[at].tolist() for column in (blocks.n_segments, blocks.dur_ns, blocks.span_ns))
    hover = [
        f"{label(names[one])}{f' in {label(ops[one])}' if ops[one] else ''}, {human_duration(dur)}"
        f"{f'<br>inferred: {label(rules[one])}' if is_inferred[one] else ''}"
        if one >= 0
        else f"{human_count(n, 'short segment')}, {human_duration(dur)} of {human_duration(span)}"
        for one, n, dur, span in zip(place.tolist(), *columns, strict=True)
    ]
    drawn = block_bars(blocks, at, (row, bound_in_words(bound), origin, unit), color, hover)
    marker = hatched(color, is_inferred[place].tolist()) | {"line": {"width": 0}}
    return drawn | {"meta": blocks.segment[at].tolist(), "marker": marker}


def _longest(segments: pd.DataFrame, origin: int) -> str:
    if segments.empty:
        return "The critical path is empty"
    longest = segments.iloc[int(segments["dur_ns"].to_numpy().argmax())]
    bound = bound_in_words(longest["bound"])
    return (
        f"The longest segment is {human_duration(longest['dur_ns'])} of {bound}, "
        f"{label(longest['name'])}, at {human_duration(longest['start_ns'] - origin)}"
    )


def _note(segments: pd.DataFrame, blocks: Blocks, window_ns: int) -> str:
    """Sentences on the segments that were joined, and on those that are cross-hatched."""
    drawn = blocks.segment[blocks.segment >= 0]
    place = segments.index.get_indexer(pd.Index(drawn))
    is_hatched = bool(segments["is_inferred"].to_numpy()[place].any())
    said = (
        _joined_note(blocks, window_ns),
        "Cross-hatched segments are inferred from the order and times of events; no record names "
        "what they waited for."
        if is_hatched
        else "",
    )
    return " ".join(filter(None, said))


def _joined_note(blocks: Blocks, window_ns: int) -> str:
    """Sentence on the segments that were joined; empty if none were."""
    single = blocks.segment >= 0
    if single.all():
        return ""
    alone = int(blocks.dur_ns[single].sum())
    return (
        f"The {int(single.sum()):,} longest segments ({alone / max(window_ns, 1):.0%} of the time) "
        f"are drawn one by one; the {int(blocks.n_segments[~single].sum()):,} others are joined "
        "between them, each block as high as its share. Open the trace in Perfetto to see them all."
    )


@of_path("CriticalPath")
def steps(path: CriticalPath) -> Drawing:
    """Figure of the critical path step by step: how long each step takes, by bound.

    Parameters
    ----------
    path : CriticalPath
        Steps that do not overlap its window are left out.
    """
    found, table = time_by_step(path)
    starts_before = found["start_ns"] < path.window.end_ns
    inside = np.flatnonzero(
        starts_before & (found["start_ns"] + found["dur_ns"] > path.window.start_ns)
    )
    names, table = found["name"].iloc[inside].tolist(), table[inside]
    total, shown = table.sum(axis=1), table[:_MAX_STEPS]
    unit = TimeUnit.fitting(float(total.max(initial=0)))
    labels = Bound.labels()
    traces = [
        bars(
            bound_in_words(labels[bound]),
            np.arange(len(shown)),
            unit.of(shown[:, bound]),
            color_of(BOUND_COLORS, labels[bound]),
            [human_duration(value) for value in shown[:, bound].tolist()],
        )
        for bound in np.argsort(-shown.sum(axis=0), kind="stable").tolist()
        if shown[:, bound].any()
    ]
    rows = named_rows([label(name, width=28) for name in names[:_MAX_STEPS]])
    axis = {"title": {"text": f"time of the critical path, {unit.name}"}}
    title = _steps_title(names, total)
    first = f"The first {_MAX_STEPS} of {len(table):,} steps."
    note, n_rows = first if len(table) > _MAX_STEPS else None, max(len(shown), 1)
    return new_figure(
        traces, title, rows=n_rows, barmode="stack", xaxis=axis, yaxis=rows, note=note
    )


def _steps_title(names: list[str], total: I64) -> str:
    if not names:
        return "No step overlaps the window"
    if len(names) == 1:
        return f"One step, {human_duration(int(total[0]))}"
    slowest = label(names[int(total.argmax())], width=28)
    ends = f"{human_duration(int(total.min()))} to {human_duration(int(total.max()))}"
    return f"{len(names):,} steps take {ends}, {slowest} the longest"


_TOP = 12
"""Names with bars: chosen, to fit a screen."""
_COLUMNS = {"time": ("before_ns", "after_ns"), "count": ("n_before", "n_after")}


@of_frame(frames.DIFF)
def differences(
    frame: pd.DataFrame, *, of: Literal["time", "count"] = "time", top: int = _TOP
) -> Drawing:
    """Figure of the operators or kernels that differ most between two runs.

    Parameters
    ----------
    frame : DataFrame, schema `frames.DIFF`
        ``hg.diff(before, after).kernels()``, or ``.ops()``.
    of : {"time", "count"}
    top : int, default=12
        Names; the note says how many others differ.
    """
    if of not in _COLUMNS:
        raise QueryError(f"differences are not drawn of {of!r}.", hint=one_of(of, _COLUMNS))
    before, after = _COLUMNS[of]
    delta = frame[after] - frame[before]
    order = np.argsort(-np.abs(delta.to_numpy()), kind="stable")
    differing = frame.iloc[order[delta.to_numpy()[order] != 0]]
    if differing.empty:
        return no_figure(f"No {of} differs")
    shown, is_time = differing.head(top), of == "time"
    whole = shown["name"].tolist()
    short = distinct_names(whole, width=44)
    unit = TimeUnit.fitting(float(shown[[before, after]].to_numpy().max()) if is_time else 1)
    said = human_duration if is_time else "{:,}".format
    traces = [
        bars(
            name,
            np.arange(len(shown)),
            unit.of(shown[column]) if is_time else shown[column].to_numpy(),
            Color(color),
            [said(value) for value in shown[column].tolist()],
        )
        for name, column, color in (("before", before, SERIES[2]), ("after", after, SERIES[0]))
    ]
    first = int(shown[after].iloc[0] - shown[before].iloc[0])
    more = "more" if first > 0 else "less"
    name = escape(short[whole[0]])
    title = (
        f"{name} takes {human_duration(abs(first))} {more}"
        if is_time
        else f"{name} has {human_count(abs(first), 'call')} {more}"
    )
    rest = len(differing) - len(shown)
    return new_figure(
        traces,
        f"{title}, the largest of {human_count(len(differing), 'difference')}",
        rows=len(shown),
        barmode="group",
        yaxis=named_rows([escape(short[name]) for name in whole]),
        xaxis={"title": {"text": f"time, {unit.name}" if is_time else "count"}},
        note=f"The table lists {rest:,} more." if rest else "",
    )
