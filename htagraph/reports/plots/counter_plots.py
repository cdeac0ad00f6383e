"""Figures of launches, queue length and memory bandwidth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from htagraph.model import answers
from htagraph.model.units import human_duration
from htagraph.reports.plots.drawing import Drawing
from htagraph.reports.plots.kernel_plots import duration_line, log_bins
from htagraph.reports.plots.style import (
    BOUND_COLORS,
    TimeUnit,
    durations_axis,
    label,
    new_figure,
    no_figure,
    of_frame,
    series_line,
    time_axis,
)
from htagraph.reports.plots.thinning import Line, thin_line

__all__ = ["launch_stats", "memory_bandwidth", "queue_length"]

_MAX_TRACKS = 6
"""Lines in one figure: chosen, more cannot be told apart."""
_MAX_POINTS = 1_000
"""Points of a line: about one for each pixel of a wide figure."""
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@of_frame(answers.LAUNCH_STATS)
def launch_stats(frame: pd.DataFrame) -> Drawing:
    """Figure of how long launch calls take, how long their work waits, and how long it runs.

    Parameters
    ----------
    frame : DataFrame, schema `answers.LAUNCH_STATS`
    """
    if frame.empty:
        return no_figure("No launches were recorded")
    columns = {
        "launch call": ("launch_ns", BOUND_COLORS["host"]),
        "delay until its work starts": ("launch_delay_ns", BOUND_COLORS["launch"]),
        "its work": ("kernel_ns", BOUND_COLORS["compute"]),
    }
    edges = log_bins(int(frame[[column for column, _ in columns.values()]].to_numpy().max()))
    lines = [
        duration_line(
            name, frame.loc[frame[column] > 0, column].to_numpy(np.int64), edges, {"color": color}
        )
        for name, (column, color) in columns.items()
    ]
    shorter = float((frame["kernel_ns"] < frame["launch_ns"]).mean())
    title = (
        f"{shorter:.0%} of {len(frame):,} launches start work that is shorter than "
        f"the call, which takes {human_duration(float(frame['launch_ns'].median()))} (median)"
    )
    y_axis = {"title": {"text": "number of launches"}, "rangemode": "tozero"}
    figure = new_figure(
        lines, title, xaxis=durations_axis("duration"), yaxis=y_axis, hovermode="x unified"
    )
    n_early = int((frame["launch_delay_ns"] == 0).sum())
    if n_early:
        figure.layout["meta"] = {
            "note": f"{n_early:,} launches have no delay: their work starts before the call ends."
        }
    return figure


@of_frame(answers.COUNTERS)
def queue_length(frame: pd.DataFrame, *, origin_ns: int | None = None) -> Drawing:
    """Figure of outstanding launches over time, by stream.

    Parameters
    ----------
    frame : DataFrame, schema `answers.COUNTERS`
        Of ``queue_length``.
    origin_ns : int, unit=ns, optional
        Time at which the axis begins, the first change by default.
    """
    if frame.empty:
        return no_figure("No launches were recorded")
    rows = frame.groupby(["device", "stream"])
    busiest = rows["value"].max().sort_values(ascending=False, kind="stable")
    tracks = {
        (device, stream): f"stream {stream}, device {device}" for device, stream in busiest.index
    }
    first = tracks[busiest.index[0]]
    most = int(busiest.iloc[0])
    title = (
        f"At most {most:,} {'launch is' if most == 1 else 'launches are'} outstanding on {first}"
    )
    return _levels(
        {tracks[key]: rows.get_group(key) for key in busiest.index},
        title,
        "launches outstanding",
        origin_ns,
    )


@of_frame(answers.COUNTERS)
def memory_bandwidth(frame: pd.DataFrame, *, origin_ns: int | None = None) -> Drawing:
    """Figure of the bandwidth of copies and fills over time, by direction.

    Parameters
    ----------
    frame : DataFrame, schema `answers.COUNTERS`
        Of ``memory_bandwidth``.
    origin_ns : int, unit=ns, optional
        Time at which the axis begins, the first change by default.
    """
    if frame.empty:
        return no_figure("No copies with a recorded size")
    several = bool((frame["device"] != frame["device"].iloc[0]).any())
    labels = {name: label(name) for name in frame["name"].unique()}
    keys = [
        f"{labels[name]}{f', device {device}' if several else ''}"
        for name, device in zip(frame["name"], frame["device"].tolist(), strict=True)
    ]
    tracks = {str(key): part for key, part in frame.groupby(np.array(keys), sort=False)}
    # 1e9 bytes a second for a nanosecond is a byte.
    moved = {name: float((part["value"] * part["dur_ns"]).sum()) for name, part in tracks.items()}
    tracks = dict(sorted(tracks.items(), key=lambda item: -moved[item[0]]))
    first, part = next(iter(tracks.items()))
    busy_ns = int(part.loc[part["value"] > 0, "dur_ns"].sum())
    rate = moved[first] / max(busy_ns, 1)
    title = f"{first} moves {_human_bytes(moved[first])}, at {rate:.3g} GB/s while it runs"
    return _levels(tracks, title, "GB/s", origin_ns)


def _line(part: pd.DataFrame) -> Line:
    """Levels of one track, with at most `_MAX_POINTS` points or so."""
    ts_ns, dur_ns = part["ts_ns"].to_numpy(np.int64), part["dur_ns"].to_numpy(np.int64)
    return thin_line(ts_ns, dur_ns, part["value"].to_numpy(np.float64), max_points=_MAX_POINTS)


def _human_bytes(n_bytes: float) -> str:
    """Number of bytes with three digits and a unit."""
    size, name = next(((size, name) for size, name in _SIZES if n_bytes >= size), (1, "B"))
    return f"{n_bytes / size:.3g} {name}"


def _levels(
    tracks: dict[str, pd.DataFrame], title: str, unit_name: str, origin_ns: int | None
) -> Drawing:
    """Figure of levels over time, of the busiest tracks."""
    shown = dict(list(tracks.items())[:_MAX_TRACKS])
    begin = min(int(part["ts_ns"].min()) for part in tracks.values())
    end = max(int((part["ts_ns"] + part["dur_ns"]).max()) for part in tracks.values())
    origin = begin if origin_ns is None else origin_ns
    unit = TimeUnit.fitting(end - origin)
    drawn = {name: _line(part) for name, part in shown.items()}
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": unit.of(line.ts_ns - origin),
            "y": line.value,
            "line": {"shape": "hv", "width": 1.5, **series_line(place)},
            "hovertemplate": f"{name}: %{{y:,.4~g}} {unit_name}<extra></extra>",
        }
        for place, (name, line) in enumerate(drawn.items())
    ]
    x_axis = time_axis(unit, end - origin)
    y_axis = {"title": {"text": unit_name}, "rangemode": "tozero"}
    figure = new_figure(traces, title, xaxis=x_axis, yaxis=y_axis, showlegend=True)
    notes = []
    if len(tracks) > len(shown):
        notes.append(f"The busiest {len(shown)} of {len(tracks)} are drawn.")
    if any(line.is_thinned for line in drawn.values()):
        notes.append(f"Each of about {_MAX_POINTS:,} points is the highest value of its interval.")
    figure.layout["meta"] = {"note": " ".join(notes)}
    return figure
