"""Counters that another tool sampled: GPU metrics, power, clocks, memory."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.lookup.sample_levels import Levels, over, sample_levels
from htagraph.lookup.steps import steps_in
from htagraph.model.answers import SAMPLED_COUNTERS
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.window import Window

_MAX_STRETCHES = 300
"""Points of a curve, which is more than a plot can show. Chosen."""


def sampled_counters(dag: Dag, window: Window, *, by: str = "window") -> pd.DataFrame:
    """Mean, minimum and maximum of each sampled counter.

    Each instant takes the value of the nearest sample, so means are weighted by time.

    ::

        samples   |   1       3       2
        values    |[ 1   ][ 3    ][ 2    ]
        window    |     [          ]           mean 2.6 or so, two samples, from 1 to 3

    Parameters
    ----------
    by : {"window", "step", "time"}
        One row for the window, for each step that overlaps it (whole), or for each point of a
        curve: one per sample, or if these are many, per part of equal length.

    Returns
    -------
    DataFrame, schema `answers.SAMPLED_COUNTERS`
        By device, instrument, name and time, without ranges that have no sample.
    """
    stretches = _steps(dag, window) if by == "step" else _whole(window)
    parts = [
        _of_series(levels, *(_curve(levels, window) if by == "time" else stretches))
        for levels in sample_levels(dag.events.samples)
    ]
    if not parts:
        return SAMPLED_COUNTERS.empty()
    frame = pd.concat(parts, ignore_index=True)
    order = ["device", "instrument", "name", "start_ns", "step"]
    frame = frame.sort_values(order, kind="stable", ignore_index=True)
    return SAMPLED_COUNTERS.frame({name: frame[name] for name in SAMPLED_COUNTERS.columns})


def _whole(window: Window) -> tuple[I64, I64, I64]:
    """The window as a range that is no step."""
    return (
        np.array([window.start_ns], dtype=np.int64),
        np.array([window.end_ns], dtype=np.int64),
        np.array([-1], dtype=np.int64),
    )


def _steps(dag: Dag, window: Window) -> tuple[I64, I64, I64]:
    """Steps that overlap the window."""
    steps = steps_in(dag.events, window)
    start = steps["start_ns"].to_numpy(np.int64)
    end = start + steps["dur_ns"].to_numpy(np.int64)
    return start, end, steps["step"].to_numpy(np.int64)


def _curve(levels: Levels, window: Window) -> tuple[I64, I64, I64]:
    """Ranges of a curve: those of the levels, or fewer."""
    start_ns, end_ns = window.start_ns, window.end_ns
    inside = levels.bound_ns[(levels.bound_ns > start_ns) & (levels.bound_ns < end_ns)]
    bound = np.concatenate([[start_ns], inside, [end_ns]])
    if len(bound) > _MAX_STRETCHES + 1:
        # The product of two long times might overflow int64.
        place, (whole, rest) = np.arange(_MAX_STRETCHES + 1), divmod(window.dur_ns, _MAX_STRETCHES)
        bound = start_ns + place * whole + place * rest // _MAX_STRETCHES
    return bound[:-1], bound[1:], np.full(len(bound) - 1, -1, dtype=np.int64)


def _of_series(levels: Levels, start_ns: I64, end_ns: I64, step: I64) -> pd.DataFrame:
    """Rows of one series."""
    found, series = over(levels, start_ns, end_ns), levels.series
    frame = pd.DataFrame(
        {
            "device": series.device,
            "instrument": series.instrument,
            "name": series.name,
            "unit": series.unit,
            "step": step,
            "start_ns": start_ns,
            "dur_ns": end_ns - start_ns,
            "n_samples": found.n_samples,
            "mean": found.mean,
            "min": found.low,
            "max": found.high,
            "uncertainty_ns": series.uncertainty_ns,
        }
    )
    return frame[found.covered_ns > 0]
