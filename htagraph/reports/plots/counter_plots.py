"""Figures over time: queue length, bandwidth, memory and sampled counters; and of launches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from htagraph.model import answers
from htagraph.model.arrays import F64, I64
from htagraph.model.units import human_count, human_duration, human_number
from htagraph.model.window import Window
from htagraph.reports.answers import EMPTY_ANSWERS
from htagraph.reports.plots.drawing import (
    BOUND_COLORS,
    Drawing,
    Line,
    TimeUnit,
    durations_axis,
    label,
    new_figure,
    no_figure,
    of_frame,
    series_style,
    step_lines,
    stepped,
    thin_line,
    time_axis,
    track_labels,
    translucent,
)

_MAX_TRACKS = 4
"""Lines in one figure: chosen, more cannot be told apart."""
_MAX_POINTS = 1_000
"""Points of a line: about one for each pixel of a wide figure."""
_BINS_PER_DECADE = 8
"""Bins of durations: chosen, each a third wider than the one before."""
_WORTH_SAYING = 0.05
"""Share of launches that take longer than their work from which on the title says so: chosen."""
_DASH = {"allocated": "solid", "reserved": "dash"}
_HOST = 0
"""PyTorch's device type of host memory."""
_NO_TOTALS = "No totals of memory were recorded, only changes: they need a newer PyTorch"
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def _duration_line(name: str, dur_ns: I64, edges: F64, line: dict[str, Any]) -> dict[str, Any]:
    """Line of steps, of a color and a dash: how many durations lie in each bin."""
    count, _ = np.histogram(np.maximum(dur_ns, 1), bins=edges)
    used = np.flatnonzero(count)
    first, last = (used[0], used[-1] + 1) if len(used) else (0, 0)
    # An empty bin on both sides: the line begins and ends at zero.
    inside = slice(max(first - 1, 0), min(last + 1, len(count)))
    return stepped(name, edges[:-1][inside], count[inside], line, "%{y:,}", width=2)


@of_frame(answers.LAUNCH_STATS)
def launch_stats(frame: pd.DataFrame) -> Drawing:
    """Figure of how long launch calls take, how long their work waits, and how long it runs."""
    if frame.empty:
        return no_figure("No launches were recorded")
    columns = {
        "launch call": ("launch_ns", BOUND_COLORS["host"]),
        "delay until its work starts": ("launch_delay_ns", BOUND_COLORS["launch"]),
        "its work": ("kernel_ns", BOUND_COLORS["compute"]),
    }
    # Edges of bins of equal ratio, from 1 ns on.
    longest_ns = int(frame[[column for column, _ in columns.values()]].to_numpy().max())
    n_bins = int(np.ceil(np.log10(max(longest_ns, 10)) * _BINS_PER_DECADE)) + 2
    edges: F64 = 10.0 ** (np.arange(n_bins) / _BINS_PER_DECADE)
    lines = [
        _duration_line(
            name,
            frame.loc[frame[column] > 0, column].to_numpy(np.int64),
            edges,
            {"color": color.fill},
        )
        for name, (column, color) in columns.items()
    ]
    shorter = float((frame["kernel_ns"] < frame["launch_ns"]).mean())
    title = f"A launch call takes {human_duration(float(frame['launch_ns'].median()))} (median)"
    if shorter >= _WORTH_SAYING:
        title += f", longer than its work in {shorter:.0%} of {len(frame):,} launches"
    y_axis = {"title": {"text": "number of launches"}, "rangemode": "tozero"}
    n_early = int((frame["launch_delay_ns"] == 0).sum())
    early = f"{n_early:,} launches have no delay: their work starts before the call ends."
    x_axis, note = durations_axis("duration"), early if n_early else None
    return new_figure(lines, title, xaxis=x_axis, yaxis=y_axis, hovermode="x unified", note=note)


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
        f"stream {stream}, device {device}": rows.get_group((device, stream))
        for device, stream in busiest.index[:_MAX_TRACKS]
    }
    first, most = next(iter(tracks)), int(busiest.iloc[0])
    title = (
        f"At most {most:,} {'launch is' if most == 1 else 'launches are'} outstanding on {first}"
    )
    return _levels(frame, tracks, len(busiest), (title, "launches outstanding"), origin_ns)


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
    busiest = sorted(tracks, key=lambda name: -moved[name])[:_MAX_TRACKS]
    first, part = busiest[0], tracks[busiest[0]]
    busy_ns = int(part.loc[part["value"] > 0, "dur_ns"].sum())
    rate = moved[first] / max(busy_ns, 1)
    title = f"{first} moves {_human_bytes(moved[first])}, at {rate:.3g} GB/s while it runs"
    drawn = {name: tracks[name] for name in busiest}
    return _levels(frame, drawn, len(tracks), (title, "GB/s"), origin_ns)


@of_frame(answers.MEMORY_TIMELINE)
def memory_timeline(frame: pd.DataFrame, *, origin_ns: int | None = None) -> Drawing:
    """Figure of memory over time, by device: allocated and reserved, its peak, and steps.

    Parameters
    ----------
    frame : DataFrame, schema `answers.MEMORY_TIMELINE`
        Steps are those in ``attrs["steps_ns"]``, as `TraceGraph.memory_timeline` returns them.
        Memory of the host is drawn if no device has any.
    origin_ns : int, unit=ns, optional
        Time at which the axis begins, the first record by default.
    """
    known = frame[frame["allocated"] >= 0]
    of_device = known[known["device_type"] != _HOST]
    shown = known if of_device.empty else of_device
    if shown.empty:
        return no_figure(EMPTY_ANSWERS["memory_timeline"] if frame.empty else _NO_TOTALS)
    names = np.array([name or "host" for name in track_labels(shown)])
    parts = {str(name): part for name, part in shown.groupby(names, sort=False)}
    tracks = dict(sorted(parts.items(), key=lambda item: -int(item[1]["allocated"].max())))
    drawn = dict(list(tracks.items())[: _MAX_TRACKS // 2])
    origin = int(shown["ts_ns"].min()) if origin_ns is None else origin_ns
    window = Window(origin, max(int(shown["ts_ns"].max()), origin), "")
    unit = TimeUnit.fitting(window.dur_ns)
    size, unit_name = _byte_unit(int(shown[["allocated", "reserved"]].to_numpy().max()))
    lines = {
        (name, column): _line(part.rename(columns={column: "value"}))
        for name, part in drawn.items()
        for column in ("allocated", "reserved")
        if (part[column] >= 0).any()
    }
    color = {name: series_style(place)["color"] for place, name in enumerate(drawn)}
    traces = [
        stepped(
            f"{column}, {name}",
            unit.of(line.ts_ns - origin),
            line.value / size,
            {"color": color[name], "dash": _DASH[column]},
            f"%{{y:,.4~g}} {unit_name}",
        )
        for (name, column), line in lines.items()
    ]
    peaks = {
        name: part.iloc[int(part["allocated"].to_numpy().argmax())] for name, part in drawn.items()
    }
    marks = [
        {
            "x": float(unit.of(peak["ts_ns"] - origin)),
            "y": peak["allocated"] / size,
            "text": f"peak {_human_bytes(peak['allocated'])}",
            # Texts point inward, or the end of the figure would cut them off.
            "xanchor": "right" if peak["ts_ns"] - origin > window.dur_ns / 2 else "left",
            "ax": 0,
            "ay": -24,
            "arrowcolor": series_style(0)["color"],
        }
        for peak in peaks.values()
    ]
    first, peak = next(iter(peaks.items()))
    title = (
        f"{first.capitalize()} allocates at most {_human_bytes(peak['allocated'])}"
        f"{f', in {label(peak.op)}' if peak['op'] else ''} at "
        f"{human_duration(peak['ts_ns'] - origin)}"
    )
    if peak["reserved"] > 0:
        title += f"; {_human_bytes(peak['reserved'])} are reserved then"
    return new_figure(
        traces,
        title,
        xaxis=time_axis(unit, window.dur_ns),
        yaxis={"title": {"text": f"memory, {unit_name}"}, "rangemode": "tozero"},
        showlegend=True,
        annotations=marks,
        shapes=step_lines(frame.attrs.get("steps_ns", ()), window, unit),
        note=_note(len(drawn), len(tracks), lines.values()),
    )


def _line(part: pd.DataFrame) -> Line:
    """Levels of one track, with at most `_MAX_POINTS` points or so."""
    ts_ns, value = part["ts_ns"].to_numpy(np.int64), part["value"].to_numpy(np.float64)
    dur_ns = part["dur_ns"].to_numpy(np.int64) if "dur_ns" in part else np.zeros_like(ts_ns)
    return thin_line(ts_ns, dur_ns, value, max_points=_MAX_POINTS)


def _byte_unit(n_bytes: float) -> tuple[float, str]:
    """Unit in which a number of bytes has a few digits: its size and name."""
    return next(((size, name) for size, name in _SIZES if n_bytes >= size), (1, "B"))


def _human_bytes(n_bytes: float) -> str:
    """Number of bytes with three digits and a unit."""
    size, name = _byte_unit(n_bytes)
    return f"{n_bytes / size:.3g} {name}"


def _note(n_drawn: int, n_all: int, lines: Iterable[Line]) -> str:
    """Sentences on tracks and points that are left out."""
    notes = [f"The busiest {n_drawn} of {n_all} are drawn."] if n_all > n_drawn else []
    if any(line.is_thinned for line in lines):
        notes.append(f"Each of about {_MAX_POINTS:,} points is the highest value of its interval.")
    return " ".join(notes)


def _levels(
    frame: pd.DataFrame,
    tracks: dict[str, pd.DataFrame],
    n_all: int,
    words: tuple[str, str],
    origin_ns: int | None,
) -> Drawing:
    """Figure of levels over time, of the busiest tracks of a frame; words are title and unit."""
    title, unit_name = words
    begin, end = int(frame["ts_ns"].min()), int((frame["ts_ns"] + frame["dur_ns"]).max())
    origin = begin if origin_ns is None else origin_ns
    unit = TimeUnit.fitting(end - origin)
    drawn = {name: _line(part) for name, part in tracks.items()}
    value = f"%{{y:,.4~g}} {unit_name}"
    return new_figure(
        [
            stepped(name, unit.of(line.ts_ns - origin), line.value, series_style(place), value)
            for place, (name, line) in enumerate(drawn.items())
        ],
        title,
        xaxis=time_axis(unit, end - origin),
        yaxis={"title": {"text": unit_name}, "rangemode": "tozero"},
        showlegend=True,
        note=_note(len(drawn), n_all, drawn.values()),
    )


_MAX_ROWS = 8
"""Counters drawn: chosen, to fit a screen."""
_ROW_PX, _FRAME_PX = 76, 120
"""Height of a row, and of title and axis."""
_GAP = 0.3
"""Part of a row that is left for its name."""
_FIRST = re.compile(
    r"sms? ?_?act|utilization\.gpu|^sm$|gpu_?util|^gputl|gr_?act|activity", re.IGNORECASE
)
"""Counters that say how busy a device is: they stand on top."""


@of_frame(answers.SAMPLED_COUNTERS)
def sampled_counters(frame: pd.DataFrame, *, origin_ns: int | None = None) -> Drawing:
    """Figure of sampled counters over time: a row for each, a line for each device.

    Parameters
    ----------
    frame : DataFrame, schema `answers.SAMPLED_COUNTERS`
        By ``time``.
    origin_ns : int, unit=ns, optional
        Time at which the axis begins, the first stretch by default.
    """
    if frame.empty:
        return no_figure("Nothing was sampled")
    origin = int(frame["start_ns"].min()) if origin_ns is None else origin_ns
    end = int((frame["start_ns"] + frame["dur_ns"]).max())
    unit = TimeUnit.fitting(end - origin)
    rows = _rows(frame)
    shown = rows[:_MAX_ROWS]
    traces: list[dict[str, Any]] = []
    names: list[dict[str, Any]] = []
    layout: dict[str, Any] = {}
    for row, part in enumerate(shown):
        axis = "y" if row == 0 else f"y{row + 1}"
        top = 1 - (row + _GAP) / len(shown)
        name, of = str(part["name"].iloc[0]), str(part["unit"].iloc[0])
        layout[f"yaxis{row + 1 if row else ''}"] = {
            "domain": [max(1 - (row + 1) / len(shown), 0), top],
            "anchor": "x",
            "nticks": 3,
            "rangemode": "tozero",
            "fixedrange": True,
            "zeroline": False,
            "automargin": True,
            "gridcolor": "rgba(134, 148, 168, 0.25)",
        }
        names.append(
            {"xref": "paper", "yref": "paper", "x": 0, "y": top, "xanchor": "left"}
            | {"yanchor": "bottom", "text": label(name) + (f", {label(of)}" if of else "")}
            | {"showarrow": False, "font": {"size": 12}}
        )
        for place, (device, line) in enumerate(part.groupby("device", sort=True)):
            title = f"device {device}" if device != -1 else "host"
            traces += _sample_plots_line(line, (unit, origin), axis, place, title)
    return new_figure(
        traces,
        _title(shown[0]),
        height=_FRAME_PX + _ROW_PX * len(shown),
        showlegend=False,
        annotations=names,
        xaxis=time_axis(unit, end - origin)
        | {"anchor": "y" if len(shown) == 1 else f"y{len(shown)}"},
        **layout,
        note=_sample_plots_note(frame, len(rows), len(shown), end - origin),
    )


def _rows(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Counters, the telling ones first: how busy devices are, then what changes most."""
    keys = ["instrument", "name", "unit"]
    parts = [part for _, part in frame.groupby(keys, sort=True)]
    tells = [_FIRST.search(part["name"].iloc[0]) is not None for part in parts]
    changes = [_change(part) for part in parts]
    order = sorted(range(len(parts)), key=lambda at: (not tells[at], -changes[at]))
    drawn = [parts[at] for at in order if tells[at] or changes[at] > 0]
    return drawn or [parts[at] for at in order]


def _change(part: pd.DataFrame) -> float:
    """By which part of its greatest value a counter changes."""
    greatest = float(part[["min", "max"]].abs().to_numpy().max())
    return float(part["max"].max() - part["min"].min()) / greatest if greatest else 0.0


def _sample_plots_line(
    line: pd.DataFrame, clock: tuple[TimeUnit, int], axis: str, place: int, title: str
) -> list[dict[str, Any]]:
    """The mean over time, within a band from the least to the greatest of joined samples."""
    (unit, origin_ns), shape = clock, {"shape": "hv", "width": 1.5, **series_style(place)}
    start, dur = line["start_ns"].to_numpy(np.int64), line["dur_ns"].to_numpy(np.int64)
    x = unit.of(start - origin_ns)
    apart = np.flatnonzero(start[1:] != start[:-1] + dur[:-1]) + 1
    ends = unit.of(start + dur - origin_ns)

    def steps(values: pd.Series[float]) -> F64:
        y = values.to_numpy(np.float64)
        return np.append(np.insert(y, apart, np.nan), y[-1])

    x = np.append(np.insert(x, apart, ends[apart - 1]), ends[-1])
    common: dict[str, Any] = {"type": "scatter", "mode": "lines", "x": x, "yaxis": axis}
    of = f" {label(line['unit'].iloc[0])}" if line["unit"].iloc[0] else ""
    mean = common | {
        "name": title,
        "y": steps(line["mean"]),
        "line": shape,
        "hovertemplate": f"{title}: %{{y:,.4~g}}{of}<extra></extra>",
    }
    if not (line["n_samples"] > 1).any():
        return [mean]
    edge = {"hoverinfo": "skip", "line": shape | {"width": 0}, "showlegend": False}
    low = common | edge | {"y": steps(line["min"])}
    high = common | edge | {"y": steps(line["max"]), "fill": "tonexty"}
    return [low, high | {"fillcolor": translucent(shape["color"], 0.25)}, mean]


def _title(part: pd.DataFrame) -> str:
    """The fact of the first row."""
    dur = part["dur_ns"].to_numpy(np.float64)
    mean = float((part["mean"].to_numpy(np.float64) * dur).sum() / dur.sum())
    low, high = float(part["min"].min()), float(part["max"].max())
    unit = str(part["unit"].iloc[0])
    of = "" if unit in ("", "ratio") else unit if unit == "%" else f" {label(unit)}"
    spread = f", from {human_number(low)} to {human_number(high)}" if high > low else ""
    return f"{label(part['name'].iloc[0])} is {human_number(mean)}{of} on average{spread}"


def _sample_plots_note(frame: pd.DataFrame, n_rows: int, n_shown: int, window_ns: int) -> str:
    """What is not drawn, and how certain times are."""
    n_all = len(frame[["instrument", "name", "unit"]].drop_duplicates())
    notes = []
    if n_all > n_rows:
        still = f"{human_count(n_all - n_rows, 'counter')} that never"
        notes.append(
            f"{still} changes is not drawn."
            if n_all == n_rows + 1
            else f"{still} change are not drawn."
        )
    if n_rows > n_shown:
        notes.append(f"The {n_shown} of {n_rows} that tell or change most are drawn.")
    if not frame["n_samples"].any():
        notes.append("No sample was taken in this time: values come from the samples around it.")
    for instrument, unsure in frame.groupby("instrument")["uncertainty_ns"].max().items():
        if unsure:
            than = ", which is longer than the run" if unsure >= window_ns else ""
            off = f"Times of {label(instrument)} may be off by {human_duration(int(unsure))}"
            notes.append(f"{off} to either side{than}.")
    return " ".join(notes)
