"""Figures of paths over time and by step, of two runs, and of a job: late ranks, its pipeline."""

from __future__ import annotations

from html import escape
from typing import Any, Literal

import numpy as np
import pandas as pd

from htagraph.errors import QueryError, one_of
from htagraph.findings.path import CriticalPath
from htagraph.job.lateness import against_median_rank
from htagraph.job.path import JobPath
from htagraph.lookup.steps import find_steps
from htagraph.model import answers, frames, job_answers
from htagraph.model.arrays import I64, Bools
from htagraph.model.colors import COLORS, SERIES, Color
from htagraph.model.job_answers import PIPELINE_SCHEDULE
from htagraph.model.kinds import Bound, bound_in_words
from htagraph.model.labels import distinct_names
from htagraph.model.units import human_count, human_duration
from htagraph.reports.plots.drawing import (
    BOUND_COLORS,
    LEGIBLE_PX,
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
    series_style,
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


_MAX_COLUMNS = 400
"""Columns of a heat map: chosen, each a few pixels wide."""
_MAX_ROWS = 24
"""Ranks from which rows of a heat map get thinner: chosen."""
_MOST_ROWS = 64
"""Ranks of a heat map, those that keep others waiting longest: chosen, each a few pixels high."""
_MAX_RANKS_APART = 16
"""Ranks with a color and symbol of their own."""
_TOP_ACROSS_RANKS = 12
"""Kernels compared across ranks: chosen, to fit a screen."""
_SAME = 0.1
"""Part of the median rank's time by which a rank has to differ to be named: chosen, less is a
trifle."""
_SCALE = [[0.0, "rgba(134, 148, 168, 0.12)"], [1.0, BOUND_COLORS["communication"].fill]]


@of_frame(job_answers.MATCHED_COLLECTIVES, "rank")
def collective_waits(collectives: pd.DataFrame, *, max_columns: int = _MAX_COLUMNS) -> Drawing:
    """Figure of how long each rank waits in each collective.

    A straggler is the row that does not wait while all others do.

    Parameters
    ----------
    collectives : DataFrame, schema `job_answers.MATCHED_COLLECTIVES`
    max_columns : int, default=400
        Where there are more, neighboring collectives are joined and their longest wait is shown.
    """
    if collectives.empty:
        return no_figure("No collectives were matched across ranks")
    waits = collectives[collectives["last_rank"] != collectives["rank"]]
    late = waits.groupby("last_rank")["wait_ns"].sum()
    total = int(late.sum())
    begin = collectives.groupby("match")["start_ns"].min().sort_values(kind="stable").index
    every = np.unique(collectives["rank"].to_numpy())
    caused_ns = late.reindex(every, fill_value=0).to_numpy()
    ranks = np.sort(every[np.argsort(-caused_ns, kind="stable")[:_MOST_ROWS]])
    drawn = collectives[collectives["rank"].isin(ranks)]
    joined = -(-len(begin) // max_columns)
    column = pd.Index(begin).get_indexer(pd.Index(drawn["match"])) // joined
    row = np.searchsorted(ranks, drawn["rank"].to_numpy())
    wait = np.full((len(ranks), int(column.max()) + 1), np.nan)
    np.fmax.at(wait, (row, column), drawn["wait_ns"].to_numpy(np.float64))
    unit = TimeUnit.fitting(float(np.nanmax(wait)))
    title = (
        f"{late.max() / total:.0%} of all collective wait ({human_duration(total)}) is for rank "
        f"{late.idxmax()}"
        if total
        else "No rank waits for another"
    )
    heat = {
        "type": "heatmap",
        "z": wait / unit.size_ns,
        "x": np.arange(wait.shape[1]) * joined,
        "y": [f"rank {rank}" for rank in ranks.tolist()],
        "colorscale": _SCALE,
        "colorbar": {"title": {"text": f"wait, {unit.name}"}, "thickness": 12},
        "hovertemplate": f"%{{y}}, collective %{{x}}: waits %{{z:.4~g}} {unit.name}<extra></extra>",
    }
    axis = {"title": {"text": "collective, in order of time"}, "showgrid": False}
    some = f"The {len(ranks)} of {len(every):,} ranks that keep others waiting longest."
    many = f"Each column is {joined} collectives and shows the longest wait."
    notes = [some] * (len(ranks) < len(every)) + [many] * (joined > 1)
    rows = min(max(len(ranks), 3), _MAX_ROWS)
    return new_figure([heat], title, rows=rows, xaxis=axis, note=" ".join(notes))


@of_frame(answers.KERNEL_BREAKDOWN, "rank")
def kernels_across_ranks(frame: pd.DataFrame, *, top: int = _TOP_ACROSS_RANKS) -> Drawing:
    """Figure of how long kernels take on each rank, relative to the median rank.

    A slow device is to the right in every row.

    Parameters
    ----------
    frame : DataFrame, schema `answers.KERNEL_BREAKDOWN` and ``rank``
        By name, of a job. Communication is left out: it takes as long as a rank waits.
    top : int, default=12
    """
    own = against_median_rank(frame)
    if own.empty:
        return no_figure("No kernel runs on two ranks: nothing to compare with")
    sums = own.groupby("group")["sum_ns"].sum().sort_values(ascending=False, kind="stable")
    largest = sums.index[:top].tolist()
    own = own[own["group"].isin(largest)]
    own = own.assign(row=own["group"].map({name: row for row, name in enumerate(largest)}))
    slowest = own.iloc[int(own["ratio"].to_numpy().argmax())]
    short = distinct_names(largest, width=44)
    title = (
        f"Rank {slowest['rank']} runs {escape(short[slowest['group']])} {slowest['ratio']:.2f} "
        "times as long as the median rank"
        if slowest["ratio"] > 1 + _SAME
        else "The largest kernels take equally long on all ranks, within "
        f"{float((own['ratio'] - 1).abs().max()):.1%}"
    )
    ranks = own["rank"].unique().tolist()
    parts: list[tuple[object, pd.DataFrame]] = (
        list(own.groupby("rank", sort=True)) if len(ranks) <= _MAX_RANKS_APART else [("ranks", own)]
    )
    dots = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"rank {rank}" if rank != "ranks" else "ranks",
            "x": part["ratio"],
            "y": part["row"],
            "marker": {"size": 9, "opacity": 0.9, **series_style(place, "symbol")},
            "customdata": [
                f"rank {one}: {human_duration(mean)} on average"
                for one, mean in zip(part["rank"].tolist(), part["mean_ns"].tolist(), strict=True)
            ],
            "hovertemplate": "%{customdata}, %{x:.3~f} of the median<extra></extra>",
        }
        for place, (rank, part) in enumerate(parts)
    ]
    axis = {"title": {"text": "mean duration on a rank / that on the median rank"}}
    rows = named_rows([label(short[name]) for name in largest])
    return new_figure(
        dots, title, rows=len(largest), xaxis=axis, yaxis=rows | {"showgrid": True}, showlegend=True
    )


@of_frame(answers.STEP_TIMES, "rank")
def step_spread(frame: pd.DataFrame) -> Drawing:
    """Figure of how long each step takes: the median rank, and from the fastest to the slowest.

    Parameters
    ----------
    frame : DataFrame, schema `answers.STEP_TIMES` and ``rank``
    """
    each = frame.drop_duplicates(["rank", "step"])
    spread = each.groupby("name", sort=False)["dur_ns"].agg(["min", "median", "max"])
    if spread.empty:
        return no_figure("No rank has steps")
    unit = TimeUnit.fitting(float(spread["max"].max()))
    middle = unit.of(spread["median"])
    bars = {
        "type": "bar",
        "name": "step on the median rank",
        "x": [label(name, width=28) for name in spread.index],
        "y": middle,
        "marker": {"color": SERIES[0]},
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": unit.of(spread["max"]) - middle,
            "arrayminus": middle - unit.of(spread["min"]),
            "color": "#8694a8",
        },
        "customdata": [
            f"{human_duration(low)} to {human_duration(high)}"
            for low, high in zip(spread["min"].tolist(), spread["max"].tolist(), strict=True)
        ],
        "hovertemplate": f"%{{y:.4~g}} {unit.name}, from %{{customdata}}<extra></extra>",
    }
    differ = (spread["max"] - spread["min"]).to_numpy(np.int64)
    widest = spread.index[int(differ.argmax())]
    by = human_duration(int(differ.max()))
    is_same = int(differ.max()) < _SAME * int(spread["median"].median())
    title = (
        f"Every rank takes as long as the others for each step, within {by}"
        if is_same
        else f"Ranks differ most in {label(widest, width=28)}, by {by}"
    )
    if (each["rank"] == each["rank"].iloc[0]).all():
        ends = [human_duration(int(end)) for end in (spread["min"].min(), spread["max"].max())]
        title = f"{human_count(len(spread), 'step')} take {ends[0]} to {ends[1]}"
    axis = {"title": {"text": f"length of the step, {unit.name}"}, "rangemode": "tozero"}
    return new_figure([bars], title, yaxis=axis, xaxis={"type": "category"})


_PHASES = {
    "F": ("forward", COLORS[Bound.HOST]),
    "B": ("backward", COLORS[Bound.COMPUTE]),
    "I": ("gradient of input", COLORS[Bound.DATA_LOADING]),
    "W": ("gradient of weights", COLORS[Bound.MEMORY]),
}
"""Name and color of each phase."""

_BAR = 0.8
_OUTLINE, _OUTLINE_PX = "#c0392b", 2
"""Color and width of the outline of actions that the step waits for."""


@of_frame(PIPELINE_SCHEDULE)
def pipeline_schedule(schedule: pd.DataFrame, *, step: int = -1) -> Drawing:
    """Figure of a pipeline: a row per rank, a box per micro-batch and phase.

    The step waits for the boxes with an outline: were one longer, it would be, too. Of several
    stages on a rank, the later ones have hatched boxes. Where a box has no room for its number, a
    part of the time drawn larger has.

    Parameters
    ----------
    schedule : DataFrame, schema `job_answers.PIPELINE_SCHEDULE`
    step : int, default=-1
        Number of the step; -1 for the one of median length.
    """
    if schedule.empty:
        return no_figure("The ranks are no pipeline")
    steps = schedule.groupby("step")
    length = (steps["end_ns"].max() - steps["begin_ns"].min()).sort_values(kind="stable")
    number = length.index.tolist()[(len(length) - 1) // 2] if step < 0 else step
    acts = schedule[schedule["step"] == number]
    if acts.empty:
        return no_figure(f"There is no step {number}")
    start_ns, dur_ns = int(acts["begin_ns"].min()), int(length[number])
    unit = TimeUnit.fitting(dur_ns)
    ranks = acts.groupby("rank").agg(
        replica=("replica", "first"),
        stage=("stage", "min"),
        own=("stage", lambda one: ", ".join(map(str, sorted(set(one.tolist()))))),
    )
    ranks = ranks.sort_values(["replica", "stage"])
    row = pd.Series(np.arange(len(ranks)), index=ranks.index)
    names = [f"stage {own} (rank {rank})" for rank, own in ranks["own"].items()]

    def boxes(of: pd.DataFrame) -> dict[str, Any]:
        """A box for each action."""
        return {
            "type": "bar",
            "orientation": "h",
            "y": of["rank"].map(row).to_numpy(),
            "base": unit.of(of["begin_ns"] - start_ns),
            "x": unit.of(of["end_ns"] - of["begin_ns"]),
            "width": _BAR,
        }

    is_later = acts["stage"] > acts["rank"].map(ranks["stage"])
    traces = []
    for (phase, later), own in acts.groupby(["phase", is_later], sort=True, observed=True):
        (name, color), is_later_stage = _PHASES[str(phase)], bool(later)
        name += ", later stage" if is_later_stage else ""
        traces.append(
            boxes(own)
            | {
                "name": name,
                "text": own["micro_batch"].astype(str).tolist(),
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "customdata": own[["stage", "micro_batch", "rank"]].to_numpy(),
                "hovertemplate": (
                    f"{name} of micro-batch %{{customdata[1]}}, stage %{{customdata[0]}}, "
                    f"rank %{{customdata[2]}}: %{{x:.4~g}} {unit.name}<extra></extra>"
                ),
                "insidetextfont": {"color": color.ink},
                "marker": hatched(color._replace(hatch="/" if is_later_stage else "")),
            }
        )
    line = {"color": _OUTLINE, "width": _OUTLINE_PX}
    traces.append(
        boxes(acts[acts["is_critical"]])
        | {
            "name": "the step waits for it",
            "hoverinfo": "skip",
            "marker": {"color": "rgba(0, 0, 0, 0)", "line": line},
        }
    )
    work = acts["end_ns"] - acts["begin_ns"]
    idle = 1 - float(work.sum()) / (len(ranks) * max(dur_ns, 1))
    return new_figure(
        traces,
        f"Stages do nothing for micro-batches in {percent(idle)} of a pipeline of "
        f"{human_duration(dur_ns)}",
        rows=len(names),
        barmode="overlay",
        uniformtext={"minsize": LEGIBLE_PX, "mode": "hide"},
        yaxis=named_rows(names) | {"fixedrange": True},
        xaxis=time_axis(unit, dur_ns, "common time"),
        dragmode="zoom",
    )
