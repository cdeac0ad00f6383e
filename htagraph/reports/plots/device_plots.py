"""Figures of devices: temporal breakdown, idle time, overlap of communication with compute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.model import answers
from htagraph.model.colors import FILLS, IDLE, Color
from htagraph.model.kinds import in_words
from htagraph.model.labels import distinct_names
from htagraph.model.units import human_duration
from htagraph.reports.markdown import share_of_all
from htagraph.reports.plots.drawing import (
    BOUND_COLORS,
    CAUSE_COLORS,
    CLASS_COLORS,
    Drawing,
    TimeUnit,
    bars,
    color_of,
    named_rows,
    new_figure,
    no_figure,
    of_frame,
    track_labels,
)

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
    """Figure of the gaps of each stream in HTA's three categories.

    Parameters
    ----------
    frame : DataFrame, schema `answers.IDLE_CATEGORIES`
    """
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
    """Figure of how much communication overlaps with compute, by device.

    Parameters
    ----------
    frame : DataFrame, schema `answers.OVERLAP`
    """
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
    """Figure of why communication is exposed: what kept the next compute kernel from running.

    Parameters
    ----------
    frame : DataFrame, schema `answers.EXPOSED_COMMUNICATION`
    """
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
