"""Counters over time: outstanding launches, bandwidth of copies, memory, and what tools sampled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from htagraph.arrays.matching import group_starts
from htagraph.lookup.attribution import innermost, innermost_at, names_or_empty
from htagraph.lookup.counter_levels import (
    CounterChanges,
    bandwidth_changes,
    counter_levels,
    queue_changes,
)
from htagraph.lookup.samples import Levels, over, sample_levels
from htagraph.lookup.steps import find_steps, steps_in
from htagraph.lookup.windowed import clipped
from htagraph.model.answers import COUNTERS, MEMORY_TIMELINE, SAMPLED_COUNTERS
from htagraph.model.arrays import F64, I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window

_COUNTERS: dict[str, Callable[[Dag], CounterChanges]] = {
    "queue_length": queue_changes,
    "memory_bandwidth": bandwidth_changes,
}


def _by_track(track: I64, ts_ns: I64, dur_ns: I64, value: F64) -> tuple[I64, dict[str, Any]]:
    """Tracks, and the columns of one row for the levels of each; every moment counts once."""
    order = np.lexsort((value, track))
    track, value, dur_ns = track[order], value[order], dur_ns[order]
    first = np.flatnonzero(group_starts(track))
    last, n = np.append(first[1:], len(track)) - 1, np.diff(np.append(first, len(track)))
    elapsed = np.cumsum(dur_ns)
    before, length = elapsed[first] - dur_ns[first], np.add.reduceat(dur_ns, first)
    p50, p90 = (
        value[np.maximum(np.searchsorted(10 * elapsed, 10 * before + tenths * length), first)]
        for tenths in (5, 9)
    )
    return track[first], {
        "ts_ns": np.minimum.reduceat(ts_ns[order], first),
        "dur_ns": length,
        "value": np.add.reduceat(value * dur_ns, first) / np.maximum(length, 1),
        "n_levels": n,
        "min": value[first],
        "p50": p50,
        "p90": p90,
        "max": value[last],
    }


def counters(
    dag: Dag, window: Window, *, name: str = "queue_length", by: str = "change"
) -> pd.DataFrame:
    """Values of a counter over time: launches outstanding per stream, or bandwidth per device.

    ::

        cpu 1    | [launch][launch]
        stream 7 |     [a     ]    [b   ]
        queue    |0[1 ][0 ][1  ][0

    `name`: a launch counts from the start of its call to the start of its first work, a graph of
    many kernels as one. Bandwidth is summed over the copies of one direction that run at once, in
    1e9 bytes per second. `by`: ``track`` is a row for each stream or device and name: its mean and
    extremes over time. By device, stream and time, from the level at the start of the window if
    there is one.
    """
    changes = _COUNTERS[name](dag)
    track, ts_ns, end_ns, counted = counter_levels(changes, window)
    dur_ns, value = end_ns - ts_ns, counted / changes.unit
    if by == "change" or not len(track):
        each = dict.fromkeys(("value", "min", "p50", "p90", "max"), value)
        levels = {"ts_ns": ts_ns, "dur_ns": dur_ns, "n_levels": np.ones_like(ts_ns), **each}
    else:
        track, levels = _by_track(track, ts_ns, dur_ns, value)
    of_track = {key: getattr(changes, key)[track] for key in ("device", "stream", "name")}
    return COUNTERS.frame(levels | of_track)


_MAX_STRETCHES = 300
"""Points of a curve, which is more than a plot can show. Chosen."""


def sampled_counters(dag: Dag, window: Window, *, by: str = "window") -> pd.DataFrame:
    """Mean, minimum and maximum of each sampled counter.

    Each instant takes the value of the nearest sample, so means are weighted by time.

    ::

        samples   |   1       3       2
        values    |[ 1   ][ 3    ][ 2    ]
        window    |     [          ]           mean 2.6 or so, two samples, from 1 to 3

    `by`: one row for the window, for each step that overlaps it (whole), or for each point of a
    curve: one per sample, or if these are many, per part of equal length. By device, instrument,
    name and time, without ranges that have no sample.
    """
    if by == "step":
        stretches = _steps(dag, window)
    else:  # the window, which is no step
        times = np.array([window.start_ns, window.end_ns, -1], dtype=np.int64)
        stretches = times[:1], times[1:2], times[2:]
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


_MEMORY = "[memory]"


def memory_timeline(dag: Dag, window: Window) -> pd.DataFrame:
    """Allocations and releases in the window, each with the operator that made it.

    By device and time. Empty if memory was not recorded. ``attrs["steps_ns"]`` has the starts of
    steps.
    """
    events = dag.events
    rows = np.flatnonzero(
        (events.kind == EventKind.INSTANT) & (events.name == events.symbols.code(_MEMORY))
    )
    rows = clipped(dag, rows, window).event
    kind, device = events.column("device_type")[rows], events.column("device_id")[rows]
    change = events.column("bytes", 0)[rows]
    order = np.lexsort((change, events.ts_ns[rows], device, kind))
    rows = rows[order]
    inner, _ = innermost_at(
        dag, np.flatnonzero(events.is_host), events.lane[rows].astype(np.int64), events.ts_ns[rows]
    )
    op = innermost(dag, inner, (EventKind.OP, EventKind.ANNOTATION))
    frame = MEMORY_TIMELINE.frame(
        {
            "event": rows,
            "ts_ns": events.ts_ns[rows],
            "device_type": kind[order],
            "device": device[order],
            "bytes": change[order],
            "allocated": events.column("total_allocated")[rows],
            "reserved": events.column("total_reserved")[rows],
            "op": names_or_empty(dag, op),
        }
    )
    steps_ns = find_steps(events)["start_ns"]
    frame.attrs["steps_ns"] = steps_ns[steps_ns.between(window.start_ns, window.end_ns)].tolist()
    return frame
