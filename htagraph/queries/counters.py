"""Counters over time: launches outstanding on each stream, and the bandwidth of copies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from htagraph.errors import QueryError, one_of
from htagraph.lookup.bandwidths import bandwidths
from htagraph.lookup.counter_levels import CounterChanges, counter_levels, queue_changes
from htagraph.model.answers import COUNTERS
from htagraph.model.dag import Dag
from htagraph.model.window import Window

__all__ = ["counters"]

_BYTES_PER_S = 1_000_000_000


def _bandwidth_changes(dag: Dag) -> CounterChanges:
    """Bandwidth of each copy or fill, from its start to its end, per device and direction."""
    events, found = dag.events, bandwidths(dag)
    work = found.event
    # Whole bytes per second, so that what a copy adds it also takes away exactly.
    whole = np.rint(found.rate * _BYTES_PER_S).astype(np.int64)
    texts = np.array([text.partition(" (")[0] for text in events.symbols.texts], dtype=object)
    names, label = np.unique(texts[events.name[work]].astype(str), return_inverse=True)
    packed, track = np.unique(
        events.device[work].astype(np.int64) * max(len(names), 1) + label, return_inverse=True
    )
    device, name = np.divmod(packed, max(len(names), 1))
    return CounterChanges(
        track=np.concatenate([track, track]),
        ts_ns=np.concatenate([events.ts_ns[work], events.end_ns[work]]),
        change=np.concatenate([whole, -whole]),
        device=device,
        stream=np.full(len(packed), -1, dtype=np.int64),
        name=names.astype(object)[name],
        unit=_BYTES_PER_S,
    )


_COUNTERS: dict[str, Callable[[Dag], CounterChanges]] = {
    "queue_length": queue_changes,
    "memory_bandwidth": _bandwidth_changes,
}
"""What can be counted."""


def counters(dag: Dag, window: Window, *, name: str = "queue_length") -> pd.DataFrame:
    """Values of a counter over time: launches outstanding per stream, or bandwidth per device.

    ::

        cpu 1    | [launch][launch]
        stream 7 |     [a     ]    [b   ]
        queue    |0[1 ][0 ][1  ][0

    Parameters
    ----------
    dag : Dag
    window : Window
    name : {"queue_length", "memory_bandwidth"}
        A launch counts from the start of its call to the start of its first work, a graph of many
        kernels as one. Bandwidth is summed over the copies of one direction that run at once, in
        1e9 bytes per second.

    Returns
    -------
    DataFrame, schema `answers.COUNTERS`
        By device and stream, in order of time. The level at the start of the window comes first
        where something happened before.

    Raises
    ------
    QueryError
        If there is no such counter.
    """
    if name not in _COUNTERS:
        raise QueryError(f"there is no counter {name!r}.", hint=one_of(name, _COUNTERS))
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
