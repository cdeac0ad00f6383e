"""Counters over time: launches outstanding on each stream, and the bandwidth of copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.algorithms.matching import group_starts
from htagraph.lookup.counter_levels import (
    CounterChanges,
    bandwidth_changes,
    counter_levels,
    queue_changes,
)
from htagraph.model.answers import COUNTERS
from htagraph.model.arrays import F64, I64
from htagraph.model.dag import Dag
from htagraph.model.window import Window

_COUNTERS: dict[str, Callable[[Dag], CounterChanges]] = {
    "queue_length": queue_changes,
    "memory_bandwidth": bandwidth_changes,
}


class _Levels(NamedTuple):
    """Levels of tracks, or what each track is over time."""

    track: I64
    ts_ns: I64
    dur_ns: I64
    value: F64
    n_levels: I64
    min: F64
    p50: F64
    p90: F64
    max: F64

    def by_track(self) -> _Levels:
        """The levels of each track as one row; each moment counts once."""
        order = np.lexsort((self.value, self.track))
        track, value, dur_ns = self.track[order], self.value[order], self.dur_ns[order]
        first = np.flatnonzero(group_starts(track))
        last, n = np.append(first[1:], len(track)) - 1, np.diff(np.append(first, len(track)))
        elapsed = np.cumsum(dur_ns)
        if not len(first):
            return self
        before, length = elapsed[first] - dur_ns[first], np.add.reduceat(dur_ns, first)
        p50, p90 = (
            value[np.maximum(np.searchsorted(10 * elapsed, 10 * before + tenths * length), first)]
            for tenths in (5, 9)
        )
        mean = np.add.reduceat(value * dur_ns, first) / np.maximum(length, 1)
        ts_ns = np.minimum.reduceat(self.ts_ns[order], first)
        return _Levels(track[first], ts_ns, length, mean, n, value[first], p50, p90, value[last])


def counters(
    dag: Dag, window: Window, *, name: str = "queue_length", by: str = "change"
) -> pd.DataFrame:
    """Values of a counter over time: launches outstanding per stream, or bandwidth per device.

    ::

        cpu 1    | [launch][launch]
        stream 7 |     [a     ]    [b   ]
        queue    |0[1 ][0 ][1  ][0

    Parameters
    ----------
    name : {"queue_length", "memory_bandwidth"}
        A launch counts from the start of its call to the start of its first work, a graph of many
        kernels as one. Bandwidth is summed over the copies of one direction that run at once, in
        1e9 bytes per second.
    by : {"change", "track"}
        ``track`` is a row for each stream or device and name: its mean and extremes over time.

    Returns
    -------
    DataFrame, schema `answers.COUNTERS`
        By device, stream and time, from the level at the start of the window if there is one.
    """
    changes = _COUNTERS[name](dag)
    found = counter_levels(changes, window)
    dur_ns, value = found.end_ns - found.start_ns, found.value / changes.unit
    n = np.ones(len(value), dtype=np.int64)
    levels = _Levels(found.track, found.start_ns, dur_ns, value, n, value, value, value, value)
    shown = levels if by == "change" else levels.by_track()
    return COUNTERS.frame(
        {
            "ts_ns": shown.ts_ns,
            "dur_ns": shown.dur_ns,
            "device": changes.device[shown.track],
            "stream": changes.stream[shown.track],
            "name": changes.name[shown.track],
            "value": shown.value,
            "n_levels": shown.n_levels,
            "min": shown.min,
            "p50": shown.p50,
            "p90": shown.p90,
            "max": shown.max,
        }
    )
