"""The figure of kept runs: step time, what causes cost, and where the step time changed."""

from __future__ import annotations

from typing import Any

import pandas as pd

from htagraph.model.arrays import F64
from htagraph.model.frames import KEPT_RUNS, RUN_CHANGES
from htagraph.model.units import human_count, human_duration, human_percent
from htagraph.reports.plots.drawing import (
    Drawing,
    TimeUnit,
    label,
    new_figure,
    no_figure,
    of_frame,
    series_style,
)

_MAX_CAUSES = 5
"""Causes with a line: chosen, more cannot be told apart."""
_CHANGE = {"color": "rgba(134, 148, 168, 0.9)", "width": 1, "dash": "dot"}


@of_frame(KEPT_RUNS)
def run_history(
    frame: pd.DataFrame,
    *,
    costs: pd.DataFrame | None = None,
    changes: pd.DataFrame | None = None,
) -> Drawing:
    """Figure of step time and of what causes cost, run by run; dotted lines are changes.

    Parameters
    ----------
    frame : DataFrame, schema `frames.KEPT_RUNS`
    costs : DataFrame, optional
        `History.costs`.
    changes : DataFrame, schema `frames.RUN_CHANGES`, optional
    """
    if frame.empty:
        return no_figure("No run is kept")
    costs = pd.DataFrame(index=frame["key"]) if costs is None else costs
    changes = RUN_CHANGES.empty() if changes is None else changes
    step_ns = frame["typical_step_ns"]
    unit = TimeUnit.fitting(float(step_ns.max()))
    dark = {"color": "#64748b", "width": 2}
    traces = [_runs(frame, "step time", unit.of(step_ns), step_ns, {"line": dark})]
    largest = costs.median().sort_values(ascending=False, kind="stable")
    largest = largest[largest > 0]
    for place, cause in enumerate(largest.index[:_MAX_CAUSES]):
        cost_ns = costs[cause].reindex(frame["key"]).fillna(0)
        style = {"line": {"width": 1.2, **series_style(place)}}
        traces.append(_runs(frame, label(cause), unit.of(cost_ns), cost_ns, style))
    row_of = {key: row for row, key in enumerate(frame["key"])}
    at = [row_of[key] - 0.5 for key in changes["key"] if key in row_of]
    lines = [
        {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": _CHANGE}
        for x in at
    ]
    notes = [
        {"x": x, "y": 1, "yref": "paper", "text": text, "showarrow": False, "xanchor": "left",
         "yanchor": "top", "font": {"size": 11}}
        for x, text in zip(at, map(_told, changes["change_share"], changes["by"]), strict=True)
    ]  # fmt: skip
    more = len(largest) - _MAX_CAUSES
    return new_figure(
        traces,
        _title(step_ns, len(changes)),
        height=380,
        xaxis={"title": {"text": "run, in order of time"}, "rangemode": "nonnegative"},
        yaxis={"title": {"text": f"time per step, {unit.name}"}, "rangemode": "tozero"},
        shapes=lines,
        annotations=notes,
        note=f"{human_count(more, 'smaller cause')} left out." if more > 0 else None,
    )


def _runs(
    frame: pd.DataFrame,
    name: str,
    y: F64,
    time_ns: pd.Series,
    style: dict[str, Any],
) -> dict[str, Any]:
    """Line of a time over runs."""
    facts = zip(frame["name"], frame["time"], frame["commit"], time_ns.tolist(), strict=True)
    told = [
        f"{human_duration(ns)}<br>{label(run)}<br>{time[:16]} {commit[:7]}".rstrip()
        for run, time, commit, ns in facts
    ]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(range(len(frame))),
        "y": y,
        "marker": {"size": 4},
        "customdata": told,
        "hovertemplate": f"{name}: %{{customdata}}<extra></extra>",
        **style,
    }


def _told(share: float, by: str) -> str:
    """A change in a few characters."""
    sign = "+" if share > 0 else "−"
    return f"{sign}{human_percent(abs(share))}{'' if by == 'code' else f', {by}'}"


def _title(step_ns: pd.Series, n_changes: int) -> str:
    """Sentence on the runs."""
    ends = f"{human_duration(int(step_ns.min()))} to {human_duration(int(step_ns.max()))} a step"
    changed = f"and changed {human_count(n_changes, 'time')}" if n_changes else "with no change"
    return f"{human_count(len(step_ns), 'run')} took {ends} {changed}"
