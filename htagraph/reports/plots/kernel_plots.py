"""Figure of the kernels with most device time."""

from __future__ import annotations

from html import escape

import numpy as np
import pandas as pd

from htagraph.model import answers
from htagraph.model.labels import distinct_names
from htagraph.model.units import human_count, human_duration
from htagraph.reports.plots.drawing import Drawing
from htagraph.reports.plots.style import (
    CLASS_COLORS,
    TimeUnit,
    bars,
    color_of,
    label,
    named_rows,
    new_figure,
    no_figure,
    of_frame,
)

_TOP = 15
"""Kernels with a bar: chosen, to fit a screen."""


@of_frame(answers.KERNEL_BREAKDOWN)
def top_kernels(frame: pd.DataFrame, *, top: int = _TOP) -> Drawing:
    """Figure of the kernels with most device time.

    Parameters
    ----------
    frame : DataFrame, schema `answers.KERNEL_BREAKDOWN`
        By name.
    top : int, default=15
    """
    shown = frame.head(top)
    if shown.empty:
        return no_figure("No kernels ran")
    short = distinct_names(shown["group"].tolist(), width=44)
    names = [escape(short[name]) for name in shown["group"]]
    unit = TimeUnit.fitting(float(shown["sum_ns"].max()))
    columns = shown[["group", "sum_ns", "n_kernels"]]
    hover = [
        f"{label(name, width=90)}<br>{human_duration(total)}, {human_count(n, 'kernel')} of "
        f"{human_duration(total / n)} on average"
        for name, total, n in columns.itertuples(index=False)
    ]
    times, of_row = unit.of(shown["sum_ns"]), shown["class"].astype(str).to_numpy()
    rows = {name: np.flatnonzero(of_row == name) for name in dict.fromkeys(of_row)}
    traces = [
        bars(name, mine, times[mine], color_of(CLASS_COLORS, name), [hover[row] for row in mine])
        for name, mine in rows.items()
    ]
    share = frame["share"]
    title = f"{names[0]} takes {share.iloc[0]:.0%} of device time"
    if len(frame) > 1:
        title += f", the first {len(shown)} of {len(frame):,} kernels {shown['share'].sum():.0%}"
    x_axis = {"title": {"text": f"device time, {unit.name}"}}
    return new_figure(
        traces, title, rows=len(shown), barmode="stack", yaxis=named_rows(names), xaxis=x_axis
    )
