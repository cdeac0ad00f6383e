"""Figures of a job: who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from htagraph.model.units import human_duration
from htagraph.report.plots.style import TimeUnit, new_figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["collective_waits"]

_MAX_COLUMNS = 400
_SCALE = [[0.0, "rgba(134, 148, 168, 0.12)"], [0.5, "#e0a878"], [1.0, "#c0392b"]]


def collective_waits(meetings: pd.DataFrame, *, max_columns: int = _MAX_COLUMNS) -> Figure:
    """Return how long each rank waits in each collective: a straggler is the row that does not wait when all others do.

    Parameters
    ----------
    meetings : DataFrame, schema `frames.MEETINGS`
    max_columns : int, default=400
        Neighboring collectives are joined, and their longest wait is shown, where there are more.

    Returns
    -------
    plotly.graph_objects.Figure
    """
    if meetings.empty:
        return new_figure([], "No collectives were matched across ranks", height=120)
    begin = meetings.groupby("meeting")["start_ns"].min().sort_values(kind="stable").index
    ranks = np.unique(meetings["rank"].to_numpy())
    joined = -(-len(begin) // max_columns)
    column = pd.Index(begin).get_indexer(pd.Index(meetings["meeting"])) // joined
    row = np.searchsorted(ranks, meetings["rank"].to_numpy())
    wait = np.full((len(ranks), int(column.max()) + 1), np.nan)
    np.fmax.at(wait, (row, column), meetings["wait_ns"].to_numpy(np.float64))
    unit = TimeUnit.fitting(float(np.nanmax(wait)))
    late = meetings[meetings["last_rank"] != meetings["rank"]].groupby("last_rank")["wait_ns"].sum()
    total = int(late.sum())
    title = (
        f"{late.max() / total:.0%} of all collective wait ({human_duration(total)}) is for rank {late.idxmax()}"
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
    figure = new_figure([heat], title, rows=max(len(ranks), 3), xaxis=axis)
    if joined > 1:
        figure.layout.meta = {"note": f"Each column is {joined} collectives and shows the longest wait."}
    return figure
