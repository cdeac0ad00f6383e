"""Figures of devices and of kernels: where time goes, idle time, roofs, streams over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import largest
from htagraph.arrays.matching import running_latest
from htagraph.lookup.queues import queues
from htagraph.lookup.steps import find_steps
from htagraph.lookup.windowed import Clipped, device_work
from htagraph.model import answers
from htagraph.model.arrays import I64, Texts
from htagraph.model.colors import FILLS, IDLE, SERIES, Color
from htagraph.model.kinds import KernelClass, in_words
from htagraph.model.labels import distinct_names
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window
from htagraph.reports.markdown import share_of_all
from htagraph.reports.plots.drawing import (
    BOUND_COLORS,
    CAUSE_COLORS,
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
    track_labels,
)
from htagraph.run.graph import TraceGraph

_TOP = 12
"""Bars of a figure: chosen, to fit a screen."""
_MAX_DEVICES = 16
"""Devices with a row, those that are idle most: chosen, to fit a screen."""
_IDLE_COLORS = {
    "host_wait": BOUND_COLORS["host"],
    "kernel_wait": BOUND_COLORS["kernel_gap"],
    "other": IDLE,
}
"""Color of each of HTA's categories, that of the bound which is most like it."""
_PARTS = {
    "compute": "compute",
    "communication": "exposed communication",
    "memory": "exposed copies",
    "idle": "idle",
}


def _largest_first(
    frame: pd.DataFrame, by: str | list[str], time: str, *, sort: bool = True
) -> pd.Series[int]:
    """Sums by group; ties are in order of the groups if they are sorted, else of the rows."""
    sums = frame.groupby(by, observed=True, sort=sort)[time].sum()
    return sums.sort_values(ascending=False, kind="stable")


def _shown(
    frame: pd.DataFrame, badness: pd.Series[Any], what: str, *, unit: str = "devices"
) -> tuple[pd.DataFrame, str]:
    """The devices with most of something, in their order; and a note on the others."""
    if len(frame) <= _MAX_DEVICES:
        return frame, ""
    rows = np.sort(np.argsort(-badness.to_numpy(), kind="stable")[:_MAX_DEVICES])
    return frame.iloc[rows], f"The {_MAX_DEVICES} of {len(frame):,} {unit} with most {what}."


def _stack(
    name: str, rows: Sequence[Any], x: npt.ArrayLike, dur_ns: Iterable[int], color: Color
) -> dict[str, Any]:
    """One part of stacked bars, with its durations in words."""
    return bars(name, rows, x, color, [human_duration(value) for value in dur_ns])


@of_frame(answers.TEMPORAL_BREAKDOWN)
def temporal_breakdown(frame: pd.DataFrame) -> Drawing:
    """Figure of how each device spends the window.

    Parameters
    ----------
    frame : DataFrame, schema `answers.TEMPORAL_BREAKDOWN`
        Of one rank, or of a job with a column ``rank``.
    """
    shown, note = _shown(frame, frame["idle_share"], "idle time")
    rows = track_labels(shown)
    colors = {**CLASS_COLORS, "idle": IDLE}
    traces = [
        _stack(
            name, rows, shown[f"{part}_share"].to_numpy() * 100, shown[f"{part}_ns"], colors[part]
        )
        for part, name in _PARTS.items()
    ]
    if frame.empty:
        title = "No device work was recorded"
    elif len(frame) == 1:
        compute, idle = float(frame["compute_share"].iloc[0]), float(frame["idle_share"].iloc[0])
        title = f"{rows[0].capitalize()} computes {compute:.0%} of the time and is idle {idle:.0%}"
    else:
        most = rows[int(shown["idle_share"].to_numpy().argmax())]
        title = (
            f"Devices compute {share_of_all(frame, 'compute'):.0%} of the time and are idle "
            f"{share_of_all(frame, 'idle'):.0%} on average; {most} is idle most "
            f"({frame['idle_share'].max():.0%})"
        )
    axis = {"title": {"text": "share of the time, %"}, "range": [0, 100]}
    return new_figure(traces, title, rows=max(len(rows), 1), barmode="stack", xaxis=axis, note=note)


@of_frame(answers.IDLE_TIME)
def idle_time(frame: pd.DataFrame, *, top: int = _TOP) -> Drawing:
    """Figure of idle time by the name of what devices wait for, largest first.

    Parameters
    ----------
    frame : DataFrame, schema `answers.IDLE_TIME`
    top : int, default=12
        Bars; the note says what the others add up to.
    """
    total = int(frame["idle_ns"].sum())
    if not total:
        return no_figure("No device is ever idle")
    by_name = _largest_first(frame, ["cause", "name"], "idle_ns", sort=False)
    unit, shown = TimeUnit.fitting(float(by_name.iloc[0])), by_name.head(top)
    cause = shown.index.get_level_values("cause").astype(str)
    whole = shown.index.get_level_values("name").tolist()
    short = distinct_names(whole, width=38)
    names = [escape(short[name]) for name in whole]
    traces = []
    for one in dict.fromkeys(cause):
        at = np.flatnonzero(cause == one)
        values = shown.to_numpy()[at]
        color = color_of(CAUSE_COLORS, one)
        traces.append(_stack(in_words(one), at.tolist(), unit.of(values), values.tolist(), color))
    share = shown.iloc[0] / total
    title = f"The largest single contributor is {names[0]} with {share:.0%} of idle time"
    axis = {"title": {"text": f"idle time, {unit.name}"}}
    rest = human_duration(int(by_name.iloc[top:].sum()))
    others = f"{len(by_name) - top:,} others take {rest} together; the table lists them."
    note, rows = others if len(by_name) > top else None, named_rows(names)
    return new_figure(
        traces, title, rows=len(names), barmode="stack", xaxis=axis, yaxis=rows, note=note
    )


@of_frame(answers.IDLE_CATEGORIES)
def idle_categories(frame: pd.DataFrame) -> Drawing:
    """Figure of the gaps of each stream in HTA's three categories."""
    total = int(frame["idle_ns"].sum())
    if not total:
        return no_figure("No stream is idle between two kernels")
    keys = [key for key in ("rank", "device", "stream") if key in frame.columns]
    table = frame.pivot_table("idle_ns", keys, "category", "sum", observed=False).astype(np.int64)
    by_stream = table.sum(axis=1)
    shown, note = _shown(table, by_stream, "idle time", unit="streams")
    rows, unit = track_labels(shown.index.to_frame()), TimeUnit.fitting(float(by_stream.max()))
    traces = [
        _stack(in_words(name), rows, unit.of(shown[name]), shown[name], _IDLE_COLORS[name])
        for name in _IDLE_COLORS
    ]
    parts = (f"{in_words(name)} {table[name].sum() / total:.0%}" for name in _IDLE_COLORS)
    title = f"Gaps between the kernels of streams: {', '.join(parts)}"
    axis = {"title": {"text": f"idle time between kernels, {unit.name}"}}
    return new_figure(traces, title, rows=len(rows), barmode="stack", xaxis=axis, note=note)


@of_frame(answers.OVERLAP)
def overlap(frame: pd.DataFrame) -> Drawing:
    """Figure of how much communication overlaps with compute, by device."""
    shown, note = _shown(frame, frame["exposed_ns"], "exposed communication")
    rows = track_labels(shown)
    parts = {
        "compute alone": (shown["compute_ns"] - shown["overlap_ns"], CLASS_COLORS["compute"]),
        "both": (shown["overlap_ns"], CLASS_COLORS["compute"]),
        "exposed communication": (shown["exposed_ns"], CLASS_COLORS["communication"]),
    }
    unit = TimeUnit.fitting(
        float((shown["compute_ns"] + shown["exposed_ns"]).max()) if len(shown) else 0
    )
    traces = [
        _stack(name, rows, unit.of(time), time.tolist(), color)
        for name, (time, color) in parts.items()
    ]
    traces[1]["marker"]["pattern"] = {
        "shape": "|",
        "fgcolor": CLASS_COLORS["communication"].fill,
        "bgcolor": CLASS_COLORS["compute"].fill,
        "size": 6,
        "solidity": 0.5,
    }
    communication, exposed = int(frame["communication_ns"].sum()), int(frame["exposed_ns"].sum())
    title = (
        f"{1 - exposed / communication:.0%} of communication is hidden behind compute; "
        f"{human_duration(exposed)} is exposed"
        if communication
        else "Nothing communicates"
    )
    axis = {"title": {"text": f"time, {unit.name}"}}
    return new_figure(traces, title, rows=max(len(rows), 1), barmode="stack", xaxis=axis, note=note)


@of_frame(answers.EXPOSED_COMMUNICATION)
def exposed_communication(frame: pd.DataFrame) -> Drawing:
    """Figure of why communication is exposed: what kept the next compute kernel from running."""
    exposed = frame[frame["exposed_ns"] > 0]
    why = _largest_first(exposed, "why", "exposed_ns")
    total = int(why.sum())
    if not total:
        return no_figure("No communication is exposed")
    unit = TimeUnit.fitting(float(why.iloc[0]))
    rows, color = [*map(str, why.index)], CLASS_COLORS["communication"]
    traces = [_stack("exposed communication", rows, unit.of(why), why.tolist(), color)]
    title = (
        f"Communication is exposed mostly because of: {why.index[0]} ({why.iloc[0] / total:.0%})"
    )
    axis = {"title": {"text": f"exposed time, {unit.name}"}}
    return new_figure(traces, title, rows=len(why), showlegend=False, xaxis=axis)


@of_frame(answers.UTILIZATION)
def utilization(frame: pd.DataFrame) -> Drawing:
    """Figure of how full each device is: used, and what is empty, why; it adds up to 100%.

    Parameters
    ----------
    frame : DataFrame, schema `answers.UTILIZATION`
        By device, of one rank, or of a job with a column ``rank``.
    """
    shown, note = _shown(frame, 1 - frame["gpu_utilization"], "time without a kernel")
    rows = track_labels(shown)
    busy, active = shown["gpu_utilization"], shown["sm_activity"]
    filled, small, tail = shown["sm_occupancy"], shown["small_grid_share"], shown["tail_share"]
    has_warps = filled.notna()
    parts = {
        "warps": (filled, FILLS[0]),
        "SMs with a block, empty warp slots": (active - filled, FILLS[1]),
        "SMs with a block": (active.where(~has_warps), FILLS[1]),
        "no block: small grids": (small, FILLS[2]),
        "no block: last waves": (tail, FILLS[3]),
        "no block: communication": (busy - active - small - tail, BOUND_COLORS["communication"]),
        "a kernel runs, not estimated": (busy.where(active.isna()), BOUND_COLORS["unknown_waits"]),
        "no kernel runs": (1 - busy, IDLE),
    }
    shares = {
        name: (share.clip(0, 1).fillna(0) * 100).round(6) for name, (share, _) in parts.items()
    }
    traces = [
        bars(name, rows, share.to_numpy(), parts[name][1], [f"{one:.1f}%" for one in share])
        for name, share in shares.items()
        if share.any()
    ]
    title = _use(frame)
    axis = {"title": {"text": "share of warp slots and of the time, %"}, "range": [0, 100]}
    return new_figure(traces, title, rows=max(len(rows), 1), barmode="stack", xaxis=axis, note=note)


def _use(frame: pd.DataFrame) -> str:
    """What a figure of utilisation shows."""
    if frame.empty:
        return "No device work was recorded"
    busy, active = float(frame["gpu_utilization"].mean()), frame["sm_activity"].mean(skipna=False)
    said = f"A kernel runs {busy:.0%} of the time"
    on = f", on {active / busy:.0%} of the SMs (estimate)" if active > 0 else ""
    return f"{said}{on}" if len(frame) == 1 else f"On average, {said[0].lower()}{said[1:]}{on}"


_TOP_KERNELS = 15
"""Kernels or operators with a bar: chosen, to fit a screen."""


@of_frame(answers.KERNEL_BREAKDOWN)
def top_kernels(frame: pd.DataFrame, *, top: int = _TOP_KERNELS) -> Drawing:
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
def time_at_roof(frame: pd.DataFrame, *, top: int = _TOP_KERNELS) -> Drawing:
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
