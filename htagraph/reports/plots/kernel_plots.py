"""Figure of the kernels with most device time.

Figures of operators against the roof of their device.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import pandas as pd

from htagraph.model import answers
from htagraph.model.colors import IDLE, SERIES, Color
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
    percent,
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


_ROOFLINE_PLOTS_TOP = 15
"""Operators with a bar: chosen, to fit a screen."""
_LARGEST_PX, _SMALLEST_PX = 44, 6
"""Diameter of the circle of the operator with most time, and of any."""
_NO_ROOF = "No operator has a known roof: shapes were not recorded, or the device is not known"


@of_frame(answers.ROOFLINE)
def time_at_roof(frame: pd.DataFrame, *, top: int = _ROOFLINE_PLOTS_TOP) -> Drawing:
    """Figure of the time of operators, and of the part that the device needs.

    Parameters
    ----------
    frame : DataFrame, schema `answers.ROOFLINE`
    top : int, default=15
    """
    known = frame[frame["roof_ns"].notna()]
    shown = known.head(top)
    if shown.empty:
        return no_figure(_NO_ROOF)
    short = distinct_names(shown["group"].tolist(), width=60)
    names = [escape(short[name]) for name in shown["group"]]
    unit, rows = TimeUnit.fitting(float(shown["device_ns"].max())), np.arange(len(shown))
    columns = ["group", "n_calls", "device_ns", "roof_ns", "roof_share", "limit"]
    hover = [
        f"{label(group, width=90)}<br>{human_count(n, 'call')}, {human_duration(device_ns)}; roof "
        f"{human_duration(round(roof_ns))} ({percent(share)}), by {limit}"
        for group, n, device_ns, roof_ns, share, limit in shown[columns].itertuples(index=False)
    ]
    at_roof, beyond = unit.of(shown["roof_ns"]), unit.of(shown["excess_ns"])
    traces = [
        bars("at the roof", rows, at_roof, Color(SERIES[0]), hover),
        bars("beyond it", rows, beyond, Color(SERIES[1], hatch="/"), hover),
    ]
    first, device_ns = shown.iloc[0], int(frame["device_ns"].sum())
    title = (
        f"{names[0]} takes {human_duration(int(first['excess_ns']))} more than the device needs; "
        f"all operators together {known['excess_ns'].sum() / max(device_ns, 1):.0%} of device time"
    )
    x_axis = {"title": {"text": f"device time, {unit.name}"}}
    return new_figure(
        traces, title, rows=len(shown), barmode="stack", yaxis=named_rows(names), xaxis=x_axis
    )


@of_frame(answers.ROOFLINE)
def roofline(frame: pd.DataFrame) -> Drawing:
    """Figure of operations per second by operations per byte, under the roofs of the device.

    Parameters
    ----------
    frame : DataFrame, schema `answers.ROOFLINE`
        With the peaks of the device in ``attrs["peaks"]``, as `TraceGraph.roofline` returns it.

    Notes
    -----
    Williams, Waterman and Patterson 2009. Only operators of matrix units have operations.
    """
    peaks = frame.attrs.get("peaks")
    shown = frame[(frame["gflop"] > 0) & frame["roof_ns"].notna()]
    if shown.empty or not peaks:
        return no_figure(_NO_ROOF)
    diameter = np.sqrt(shown["device_ns"] / shown["device_ns"].max()) * _LARGEST_PX
    columns = ["group", "device_ns", "tflops_per_s", "flop_per_byte", "roof_share", "limit"]
    hover = [
        f"{label(group, width=90)}<br>{human_duration(device_ns)}; {tflops:.3g} TFLOP/s at "
        f"{intensity:.3g} FLOP/byte; {percent(share)} of the roof, {limit}"
        for group, device_ns, tflops, intensity, share, limit in shown[columns].itertuples(
            index=False
        )
    ]
    circles: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": "operators, by device time",
        "x": shown["flop_per_byte"].tolist(),
        "y": shown["tflops_per_s"].tolist(),
        "marker": {
            "size": np.maximum(diameter, _SMALLEST_PX).tolist(),
            "color": SERIES[0],
            "opacity": 0.6,
        },
        "customdata": hover,
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    intensity = [float(one) for one in (shown["flop_per_byte"].min(), shown["flop_per_byte"].max())]
    roofs = [
        _roof(name, tflops, peaks["memory_tbps"], intensity)
        for name, tflops in peaks["tflops"].items()
    ]
    first = shown.sort_values("device_ns", ascending=False).iloc[0]
    title = (
        f"{label(first['group'])} reaches {first['tflops_per_s']:.3g} TFLOP/s, "
        f"{percent(first['roof_share'])} of its roof on {escape(peaks['device'])}"
    )
    return new_figure(
        [*roofs, circles],
        title,
        height=420,
        xaxis={"type": "log", "title": {"text": "operations per byte, FLOP/byte"}},
        yaxis={"type": "log", "title": {"text": "operations per second, TFLOP/s"}},
    )


def _roof(name: str, tflops: float, memory_tbps: float, around: list[float]) -> dict[str, Any]:
    """The line of memory bandwidth up to a peak."""
    ridge = tflops / memory_tbps
    low, high = min(around[0], ridge) / 2, max(around[1], ridge) * 2
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [low, ridge, high],
        "y": [low * memory_tbps, tflops, tflops],
        "line": {"color": IDLE.fill, "dash": "dash" if name == "fp32" else "solid"},
        "hovertemplate": f"{name}: {tflops:,.4g} TFLOP/s, {memory_tbps:g} TB/s<extra></extra>",
    }
