"""Figures of kernels: those with most time, operators against their roof, and streams over time."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import pandas as pd

from htagraph.arrays.codes import largest
from htagraph.arrays.matching import running_latest
from htagraph.lookup.queues import queues
from htagraph.lookup.steps import find_steps
from htagraph.lookup.windowed import Clipped, device_work
from htagraph.model import answers
from htagraph.model.arrays import I64, Texts
from htagraph.model.colors import IDLE, SERIES, Color
from htagraph.model.kinds import KernelClass
from htagraph.model.labels import distinct_names
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window
from htagraph.reports.plots.drawing import (
    CLASS_COLORS,
    Blocks,
    Drawing,
    TimeUnit,
    bars,
    block_bars,
    color_of,
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
from htagraph.run.graph import TraceGraph

_TOP = 15
"""Kernels or operators with a bar: chosen, to fit a screen."""


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


_LARGEST_PX, _SMALLEST_PX = 44, 6
"""Diameter of the circle of the operator with most time, and of any."""
_NO_ROOF = "No operator has a known roof: shapes were not recorded, or the device is not known"


@of_frame(answers.ROOFLINE)
def time_at_roof(frame: pd.DataFrame, *, top: int = _TOP) -> Drawing:
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


_MAX_MARKS = 1_200
"""Kernels drawn one by one: chosen, to keep a figure of any trace a few MB."""
_MAX_STREAMS = 16
"""Streams with a row, the busiest: chosen, to fit a screen."""
_NO_WORK = len(KernelClass)
"""Code of time in which nothing runs, after those of the classes."""


@of_path("TraceGraph")
def timeline(graph: TraceGraph, *, max_marks: int = _MAX_MARKS) -> Drawing:
    """Figure of what runs on each stream over time: a row per stream, colored by class.

    Where kernels of a stream overlap, the time belongs to the first.

    Parameters
    ----------
    graph : TraceGraph
        In its window: ``graph.window("ProfilerStep#5")``.
    max_marks : int
        Number of the longest kernels and gaps that are drawn one by one, over all streams. The
        others are joined between them, each block as high as its share of the time.
    """
    dag, window, by = graph.dag, graph.interval, queues(graph.dag, "stream")
    work = device_work(dag, window)
    lane = by.of_event[work.event]
    busy_ns = np.bincount(lane, weights=work.dur_ns, minlength=len(by))
    lanes = np.sort(largest(busy_ns, _MAX_STREAMS))
    lanes = lanes[busy_ns[lanes] > 0]
    if not len(lanes):
        return no_figure("No device work was recorded")
    unit, named, traces = TimeUnit.fitting(window.dur_ns), set[int](), []
    rows, n_joined = [], 0
    for row, one in enumerate(lanes.tolist()):
        tiles, event = _tiled(work.take(lane == one), window)
        of_class = dag.classification.kernel_class
        code = np.where(event >= 0, of_class[event], _NO_WORK)
        found = thin_path(tiles[0], tiles[1], code, max_single=max(max_marks // len(lanes), 1))
        runs = found.code != _NO_WORK
        n_joined += int(found.n_segments[runs & (found.segment < 0)].sum())
        share = float(found.dur_ns[runs].sum()) / window.dur_ns
        rows.append(f"device {by.device[one]}, stream {by.stream[one]} {percent(share)}")
        for kind in np.unique(found.code[runs]).tolist():
            name, at = KernelClass(kind).label, np.flatnonzero(found.code == kind)
            names = dag.events.names(event[found.segment[at]])
            about = row, name, window.start_ns, unit
            drawn = block_bars(
                found, at, about, color_of(CLASS_COLORS, name), _said(found, at, names)
            )
            traces.append(drawn | {"legendgroup": name, "showlegend": kind not in named})
            named.add(kind)
    note = f"The {n_joined:,} shortest kernels are joined between the others." if n_joined else ""
    if len(lanes) < np.count_nonzero(busy_ns):
        note += f" The {len(lanes)} busiest of {np.count_nonzero(busy_ns):,} streams."
    most = rows[int(busy_ns[lanes].argmax())].rpartition(" ")
    return new_figure(
        traces,
        f"{most[0].capitalize()} is busy {most[2]} of {human_duration(window.dur_ns)}",
        rows=len(rows),
        barmode="overlay",
        yaxis=named_rows(rows) | {"fixedrange": True},
        xaxis=time_axis(unit, window.dur_ns),
        shapes=step_lines(find_steps(dag.events)["start_ns"], window, unit),
        dragmode="zoom",
        note=note.strip(),
    )


def _tiled(work: Clipped, window: Window) -> tuple[tuple[I64, I64], I64]:
    """Starts and lengths that tile a window, and the event that runs then, -1 for none."""
    work = work.take(np.lexsort((work.end_ns, work.start_ns)))
    latest = work.end_ns[running_latest(work.end_ns, np.arange(len(work.event)) == 0)]
    free = np.concatenate([[window.start_ns], latest])
    edge = np.append(np.maximum(work.start_ns, free[:-1]), window.end_ns)
    start = np.stack([free, edge], axis=1).ravel()[:-1]
    dur = np.diff(np.append(start, window.end_ns))
    event = np.full(len(start), -1, dtype=np.int64)
    event[1::2] = work.event
    lasts = dur > 0
    return (start[lasts], dur[lasts]), event[lasts]


def _said(blocks: Blocks, at: I64, names: Texts) -> list[str]:
    """Text of each block on hovering."""
    columns = (blocks.segment, blocks.n_segments, blocks.dur_ns, blocks.span_ns)
    return [
        f"{label(name)}, {human_duration(dur)}"
        if segment >= 0
        else f"{human_count(n, 'short kernel')}, {human_duration(dur)} of {human_duration(span)}"
        for name, segment, n, dur, span in zip(
            names, *(column[at].tolist() for column in columns), strict=True
        )
    ]
