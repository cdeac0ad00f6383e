"""Figure of what speed-ups save: a curve for each kernel or operator, bent where others bind."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import pandas as pd

from htagraph.model.frames import SPEED_UPS
from htagraph.model.labels import distinct_names
from htagraph.replay.candidates import TWICE_AS_FAST
from htagraph.reports.plots.drawing import Drawing
from htagraph.reports.plots.style import (
    label,
    new_figure,
    no_figure,
    of_frame,
    series_line,
    translucent,
)

__all__ = ["speed_ups"]

_N_BANDED = 3
"""Curves with a band: chosen, more bands overlap."""
_NOTE = (
    "A curve that flattens shows where something else bounds the run. Bands of the first three: "
    "what the trace leaves open."
)


@of_frame(SPEED_UPS)
def speed_ups(frame: pd.DataFrame) -> Drawing:
    """Figure of what is saved by how much faster a kernel or operator is.

    Parameters
    ----------
    frame : DataFrame, schema `frames.SPEED_UPS`
        As `Summary.speed_ups`.
    """
    if frame.empty:
        return no_figure("No kernel or operator on the path saves time")
    short = distinct_names(frame["target"].drop_duplicates().tolist(), width=36)
    traces: list[dict[str, Any]] = []
    curves = list(frame.groupby("target", sort=False))
    for place, (target, points) in enumerate(curves):
        line = series_line(place)
        if place < _N_BANDED and (points["low_ns"] < points["high_ns"]).any():
            traces.append(_band(points, str(target), line["color"]))
        traces.append(_curve(points, escape(short[str(target)]), str(target), line))
    first, points = curves[0]
    gain = points.loc[points["less_share"] == 1 - TWICE_AS_FAST, "saves_share"].iloc[0]
    title = f"{escape(short[str(first)])} twice as fast saves {gain:.1%} of the run"
    if len(curves) > 1:
        title += ", more than any other"
    return new_figure(
        traces,
        title,
        height=420,
        xaxis={"title": {"text": "less time for each, %"}, "range": [0, 100]},
        yaxis={"title": {"text": "saved, % of the run"}},
        legend={"orientation": "v", "x": 1.02, "y": 1, "yanchor": "top"},
        meta={"note": _NOTE},
    )


def _curve(points: pd.DataFrame, name: str, target: str, line: dict[str, Any]) -> dict[str, Any]:
    """Line of one target."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "legendgroup": target,
        "x": (100 * points["less_share"]).tolist(),
        "y": (100 * points["saves_share"]).tolist(),
        "line": {**line, "width": 2},
        "marker": {"size": 5},
        "hovertemplate": f"{label(target, width=90)}<br>%{{x}}% less: saves %{{y:.1f}}%"
        "<extra></extra>",
    }


def _band(points: pd.DataFrame, target: str, color: str) -> dict[str, Any]:
    """Band between what is saved at least and at most."""
    columns = ("less_share", "low_share", "high_share")
    x, low, high = (100 * points[column].to_numpy(np.float64) for column in columns)
    return {
        "type": "scatter",
        "mode": "lines",
        "showlegend": False,
        "legendgroup": target,
        "x": [*x, *x[::-1]],
        "y": [*high, *low[::-1]],
        "fill": "toself",
        "fillcolor": translucent(color, 0.14),
        "line": {"width": 0},
        "hoverinfo": "skip",
    }
