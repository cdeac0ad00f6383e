"""Figure of two runs: what differs most."""

from __future__ import annotations

from html import escape
from typing import Literal

import numpy as np
import pandas as pd

from htagraph.errors import QueryError, one_of
from htagraph.model import frames
from htagraph.model.colors import SERIES, Color
from htagraph.model.labels import distinct_names
from htagraph.model.units import human_count, human_duration
from htagraph.reports.plots.drawing import Drawing
from htagraph.reports.plots.style import (
    TimeUnit,
    bars,
    named_rows,
    new_figure,
    no_figure,
    of_frame,
)

_TOP = 12
"""Names with bars: chosen, to fit a screen."""
_COLUMNS = {"time": ("before_ns", "after_ns"), "count": ("n_before", "n_after")}


@of_frame(frames.DIFF)
def differences(
    frame: pd.DataFrame, *, of: Literal["time", "count"] = "time", top: int = _TOP
) -> Drawing:
    """Figure of the operators or kernels that differ most between two runs.

    Parameters
    ----------
    frame : DataFrame, schema `frames.DIFF`
        ``hg.diff(before, after).kernels()``, or ``.ops()``.
    of : {"time", "count"}
    top : int, default=12
        Names; the note says how many others differ.
    """
    if of not in _COLUMNS:
        raise QueryError(f"differences are not drawn of {of!r}.", hint=one_of(of, _COLUMNS))
    before, after = _COLUMNS[of]
    delta = frame[after] - frame[before]
    order = np.argsort(-np.abs(delta.to_numpy()), kind="stable")
    differing = frame.iloc[order[delta.to_numpy()[order] != 0]]
    if differing.empty:
        return no_figure(f"No {of} differs")
    shown, is_time = differing.head(top), of == "time"
    whole = shown["name"].tolist()
    short = distinct_names(whole, width=44)
    unit = TimeUnit.fitting(float(shown[[before, after]].to_numpy().max()) if is_time else 1)
    said = human_duration if is_time else "{:,}".format
    traces = [
        bars(
            name,
            np.arange(len(shown)),
            unit.of(shown[column]) if is_time else shown[column].to_numpy(),
            Color(color),
            [said(value) for value in shown[column].tolist()],
        )
        for name, column, color in (("before", before, SERIES[2]), ("after", after, SERIES[0]))
    ]
    first = int(shown[after].iloc[0] - shown[before].iloc[0])
    more = "more" if first > 0 else "less"
    name = escape(short[whole[0]])
    title = (
        f"{name} takes {human_duration(abs(first))} {more}"
        if is_time
        else f"{name} has {human_count(abs(first), 'call')} {more}"
    )
    rest = len(differing) - len(shown)
    return new_figure(
        traces,
        f"{title}, the largest of {human_count(len(differing), 'difference')}",
        rows=len(shown),
        barmode="group",
        yaxis=named_rows([escape(short[name]) for name in whole]),
        xaxis={"title": {"text": f"time, {unit.name}" if is_time else "count"}},
        meta={"note": f"The table lists {rest:,} more." if rest else ""},
    )
