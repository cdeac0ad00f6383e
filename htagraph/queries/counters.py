"""Counters over time: launches outstanding on each stream, and the bandwidth of copies."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from htagraph.lookup.counter_levels import (
    CounterChanges,
    bandwidth_changes,
    counter_levels,
    queue_changes,
)
from htagraph.model.answers import COUNTERS
from htagraph.model.dag import Dag
from htagraph.model.window import Window

_COUNTERS: dict[str, Callable[[Dag], CounterChanges]] = {
    "queue_length": queue_changes,
    "memory_bandwidth": bandwidth_changes,
}


def counters(dag: Dag, window: Window, *, name: str = "queue_length") -> pd.DataFrame:
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

    Returns
    -------
    DataFrame, schema `answers.COUNTERS`
        By device, stream and time, from the level at the start of the window if there is one.
    """
    changes = _COUNTERS[name](dag)
    found = counter_levels(changes, window)
    return COUNTERS.frame(
        {
            "ts_ns": found.start_ns,
            "dur_ns": found.end_ns - found.start_ns,
            "device": changes.device[found.track],
            "stream": changes.stream[found.track],
            "name": changes.name[found.track],
            "value": found.value / changes.unit,
        }
    )
