"""Figure of what another instrument sampled, a row for each counter."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from htagraph.model import answers
from htagraph.model.arrays import F64
from htagraph.model.units import human_count, human_duration, human_number
from htagraph.reports.plots.drawing import Drawing
from htagraph.reports.plots.style import (
    TimeUnit,
    label,
    new_figure,
    no_figure,
    of_frame,
    series_line,
    time_axis,
    translucent,
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
        names.append(_name_above(label(name) + (f", {label(of)}" if of else ""), top))
        for place, (device, line) in enumerate(part.groupby("device", sort=True)):
            title = f"device {device}" if device != -1 else "host"
            traces += _line(line, (unit, origin), axis, place, title)
    return new_figure(
        traces,
        _title(shown[0]),
        height=_FRAME_PX + _ROW_PX * len(shown),
        showlegend=False,
        annotations=names,
        xaxis=time_axis(unit, end - origin)
        | {"anchor": "y" if len(shown) == 1 else f"y{len(shown)}"},
        **layout,
        meta={"note": _note(frame, len(rows), len(shown), end - origin)},
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


def _name_above(text: str, top: float) -> dict[str, Any]:
    """Name of a row, above it."""
    where = {"xref": "paper", "yref": "paper", "x": 0, "y": top, "xanchor": "left"}
    return where | {"yanchor": "bottom", "text": text, "showarrow": False, "font": {"size": 12}}


def _line(
    line: pd.DataFrame, clock: tuple[TimeUnit, int], axis: str, place: int, title: str
) -> list[dict[str, Any]]:
    """The mean over time, within a band from the least to the greatest of joined samples."""
    (unit, origin_ns), shape = clock, {"shape": "hv", "width": 1.5, **series_line(place)}
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


def _note(frame: pd.DataFrame, n_rows: int, n_shown: int, window_ns: int) -> str:
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
