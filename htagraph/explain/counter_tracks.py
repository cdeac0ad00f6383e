"""What is drawn as a curve beside the streams: launches outstanding, and bandwidth."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from htagraph.lookup.counter_levels import (
    CounterChanges,
    bandwidth_changes,
    counter_levels,
    queue_changes,
)
from htagraph.model.dag import Dag
from htagraph.model.kinds import in_words
from htagraph.writers.pftrace import CounterTrack

__all__ = ["counter_tracks"]


def counter_tracks(dag: Dag) -> list[CounterTrack]:
    """Counters over the whole trace: launches outstanding, and the bandwidth of copies and fills.

    They are of streams; where several copy in one direction, also of the device.
    """
    copies = _tracks_of(dag, bandwidth_changes(dag, by_stream=True), "bandwidth, ", "GB/s")
    n_streams = Counter((track.device, track.name) for track in copies)
    together = _tracks_of(dag, bandwidth_changes(dag), "bandwidth, ", "GB/s")
    return [
        *_tracks_of(dag, queue_changes(dag), "", "launches"),
        *copies,
        *(track for track in together if n_streams[track.device, track.name] > 1),
    ]


def _tracks_of(dag: Dag, changes: CounterChanges, prefix: str, unit: str) -> list[CounterTrack]:
    """A track for each counter that has values."""
    levels = counter_levels(changes, dag.span)
    ends = np.searchsorted(levels.track, np.arange(len(changes.name) + 1))
    return [
        CounterTrack(
            f"{prefix}{in_words(changes.name[of])}",
            unit,
            levels.start_ns[first:last],
            levels.value[first:last] / changes.unit,
            int(changes.device[of]),
            int(changes.stream[of]),
        )
        for of, (first, last) in enumerate(pairwise(ends.tolist()))
        if first < last
    ]
