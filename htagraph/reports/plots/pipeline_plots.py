"""Figures of a pipeline: which micro-batch was where, when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from htagraph.model.colors import COLORS
from htagraph.model.job_answers import PIPELINE_SCHEDULE
from htagraph.model.kinds import Bound
from htagraph.model.units import human_duration
from htagraph.reports.plots.drawing import Drawing
from htagraph.reports.plots.style import (
    LEGIBLE_PX,
    TimeUnit,
    hatched,
    named_rows,
    new_figure,
    no_figure,
    of_frame,
    percent,
    time_axis,
)

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
        replica=("replica", "first"), stage=("stage", "min"), own=("stage", _listed)
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


def _listed(stages: pd.Series[int]) -> str:
    """Stages in words."""
    return ", ".join(map(str, sorted(set(stages.tolist()))))
