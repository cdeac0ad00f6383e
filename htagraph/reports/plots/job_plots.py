"""Figures of a job: late ranks, what differs between ranks, and micro-batches of a pipeline."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import pandas as pd

from htagraph.job.lateness import against_median_rank
from htagraph.model import answers, job_answers
from htagraph.model.colors import COLORS, SERIES
from htagraph.model.job_answers import PIPELINE_SCHEDULE
from htagraph.model.kinds import Bound
from htagraph.model.labels import distinct_names
from htagraph.model.units import human_count, human_duration
from htagraph.reports.plots.drawing import (
    BOUND_COLORS,
    LEGIBLE_PX,
    Drawing,
    TimeUnit,
    hatched,
    label,
    named_rows,
    new_figure,
    no_figure,
    of_frame,
    percent,
    series_style,
    time_axis,
)

_MAX_COLUMNS = 400
"""Columns of a heat map: chosen, each a few pixels wide."""
_MAX_ROWS = 24
"""Ranks from which rows of a heat map get thinner: chosen."""
_MOST_ROWS = 64
"""Ranks of a heat map, those that keep others waiting longest: chosen, each a few pixels high."""
_MAX_RANKS = 16
"""Ranks with a color and symbol of their own."""
_TOP = 12
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
def kernels_across_ranks(frame: pd.DataFrame, *, top: int = _TOP) -> Drawing:
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
        list(own.groupby("rank", sort=True)) if len(ranks) <= _MAX_RANKS else [("ranks", own)]
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
