"""Figures of kernels: classes, the longest, their durations, and sequences that repeat."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import pandas as pd

from htagraph.model import answers
from htagraph.model.arrays import F64, I64
from htagraph.model.labels import distinct_names
from htagraph.model.units import human_count, human_duration
from htagraph.reports.plots.drawing import Drawing
from htagraph.reports.plots.style import (
    BOUND_COLORS,
    CLASS_COLORS,
    TimeUnit,
    bars,
    color_of,
    durations_axis,
    label,
    named_rows,
    new_figure,
    no_figure,
    of_frame,
    one_bar,
    series_line,
    stepped,
)

__all__ = [
    "duration_line",
    "kernel_classes",
    "kernel_durations",
    "kernel_patterns",
    "log_bins",
    "top_kernels",
]

_BINS_PER_DECADE = 8
"""Bins of durations: chosen, each a third wider than the one before."""
_TOP = 15
"""Kernels with a bar: chosen, to fit a screen."""
_N_PATTERNS = 10
"""Patterns with a bar: chosen."""
_MAX_RANKS = 10
"""Ranks with a line of their own; with more, lines are by class: chosen."""


@of_frame(answers.KERNEL_BREAKDOWN)
def kernel_classes(frame: pd.DataFrame) -> Drawing:
    """Figure of device time by class of kernel.

    Parameters
    ----------
    frame : DataFrame, schema `answers.KERNEL_BREAKDOWN`
        By class.
    """
    columns = frame[["group", "share", "class", "sum_ns", "n_kernels"]]
    parts = [
        (
            group,
            share,
            color_of(CLASS_COLORS, kernel_class),
            f"{human_duration(total)}, {human_count(n, 'kernel')}",
        )
        for group, share, kernel_class, total, n in columns.itertuples(index=False)
    ]
    first = (
        f"{str(frame['group'].iloc[0]).capitalize()} takes {frame['share'].iloc[0]:.0%} of"
        if len(frame)
        else "No"
    )
    return one_bar(parts, f"{first} device time", "share of device time, %")


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


def log_bins(longest_ns: int) -> F64:
    """Edges of bins of equal ratio, from 1 ns on."""
    decades = np.ceil(np.log10(max(longest_ns, 10)) * _BINS_PER_DECADE).astype(int)
    return np.asarray(10.0 ** (np.arange(decades + 2) / _BINS_PER_DECADE), dtype=np.float64)


def duration_line(name: str, dur_ns: I64, edges: F64, line: dict[str, Any]) -> dict[str, Any]:
    """Line of steps, of a color and a dash: how many durations lie in each bin."""
    count, _ = np.histogram(np.maximum(dur_ns, 1), bins=edges)
    used = np.flatnonzero(count)
    first, last = (used[0], used[-1] + 1) if len(used) else (0, 0)
    # An empty bin on both sides: the line begins and ends at zero.
    inside = slice(max(first - 1, 0), min(last + 1, len(count)))
    return stepped(name, edges[:-1][inside], count[inside], line, "%{y:,}", width=2)


@of_frame(answers.KERNEL_DURATIONS)
def kernel_durations(frame: pd.DataFrame) -> Drawing:
    """Figure of the distribution of kernel durations, by rank where there are a few, or by class.

    Parameters
    ----------
    frame : DataFrame, schema `answers.KERNEL_DURATIONS`
    """
    if frame.empty:
        return no_figure("No kernels ran")
    dur = frame["dur_ns"].to_numpy(np.int64)
    edges = log_bins(int(dur.max()))
    ranks = np.unique(frame["rank"].to_numpy()).tolist() if "rank" in frame.columns else []
    if 1 < len(ranks) <= _MAX_RANKS:
        groups = frame["rank"].to_numpy()
        lines = [
            duration_line(f"rank {rank}", dur[groups == rank], edges, series_line(place))
            for place, rank in enumerate(ranks)
        ]
    else:
        groups = frame["class"].astype(str).to_numpy()
        lines = [
            duration_line(name, dur[groups == name], edges, {"color": color.fill})
            | {"fill": "tozeroy"}
            for name, color in CLASS_COLORS.items()
            if (groups == name).any()
        ]
    n_longest = max(len(dur) // 100, 1)
    share = int(np.sort(dur)[-n_longest:].sum()) / max(int(dur.sum()), 1)
    longest = "the longest takes" if n_longest == 1 else "the longest 1% take"
    title = (
        f"Half of {len(dur):,} kernels and copies take less than "
        f"{human_duration(float(np.median(dur)))}; {longest} {share:.0%} of the time"
    )
    y_axis = {"title": {"text": "number"}, "rangemode": "tozero"}
    return new_figure(
        lines, title, xaxis=durations_axis("duration"), yaxis=y_axis, hovermode="x unified"
    )


@of_frame(answers.KERNEL_PATTERNS)
def kernel_patterns(frame: pd.DataFrame, *, top: int = _N_PATTERNS) -> Drawing:
    """Figure of the repeating sequences with most device time: their kernels and the gaps between.

    Parameters
    ----------
    frame : DataFrame, schema `answers.KERNEL_PATTERNS`
    top : int, default=10
    """
    shown = frame.head(top)
    if shown.empty:
        return no_figure("No sequence of kernels repeats")
    first = shown.iloc[0]
    rows = [f"{row + 1}. {_pattern(names)}" for row, names in enumerate(shown["pattern"])]
    unit = TimeUnit.fitting(float((shown["device_ns"] + shown["gap_ns"]).max()))
    what = [
        f"{human_count(n, 'time')}: {'<br>'.join(label(name, width=60) for name in names)}"
        for n, names in zip(shown["n_occurrences"].tolist(), shown["pattern"], strict=True)
    ]
    parts = (
        ("kernels", shown["device_ns"], CLASS_COLORS["compute"]),
        ("gaps between", shown["gap_ns"], BOUND_COLORS["kernel_gap"]),
    )
    traces = []
    for name, times, color in parts:
        each = zip(times.tolist(), what, strict=True)
        hover = [f"{human_duration(dur_ns)}<br>{names}" for dur_ns, names in each]
        traces.append(bars(name, rows, unit.of(times), color, hover))
    title = (
        f"The most expensive repeating sequence has {first['length']} kernels, runs "
        f"{human_count(first['n_occurrences'], 'time')} and takes {first['share']:.0%} of device "
        "time"
    )
    x_axis = {"title": {"text": f"time of all occurrences, {unit.name}"}}
    return new_figure(traces, title, rows=len(rows), barmode="stack", xaxis=x_axis)


def _pattern(names: tuple[str, ...]) -> str:
    """Short name of a sequence."""
    first, *between, last = (label(name, width=18) for name in names)
    return f"{first} → … → {last} ({len(names)})" if between else f"{first} → {last}"
