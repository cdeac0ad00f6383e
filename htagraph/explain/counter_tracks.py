"""Counter tracks of the timeline: queue length, bandwidth, SM activity, samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from htagraph.lookup.counter_levels import (
    CounterChanges,
    bandwidth_changes,
    counter_levels,
    queue_changes,
)
from htagraph.lookup.sample_levels import sample_levels
from htagraph.lookup.sm_activity import sm_activity
from htagraph.model.dag import Dag
from htagraph.model.kinds import in_words
from htagraph.model.units import human_duration
from htagraph.writers.pftrace import CounterTrack

_NEARLY_ALL = 0.9
"""Least share of kernel time with a known grid for an SM activity track; as `utilization` asks for.
Pinned by tests/explain/test_counter_tracks.py."""


def counter_tracks(dag: Dag) -> list[CounterTrack]:
    """Counters over the whole trace: queue length, bandwidth, SM activity, and samples.

    Queue length and bandwidth are per stream; bandwidth is also per device if several streams copy
    in the same direction. SM activity is an estimate, for devices with known grids. The name of a
    sampled counter shows how uncertain its timestamps are.
    """
    copies = _tracks_of(dag, bandwidth_changes(dag, by_stream=True), "bandwidth, ", "GB/s")
    n_streams = Counter((track.device, track.name) for track in copies)
    together = _tracks_of(dag, bandwidth_changes(dag), "bandwidth, ", "GB/s")
    return [
        *_tracks_of(dag, queue_changes(dag), "", "launches"),
        *copies,
        *(track for track in together if n_streams[track.device, track.name] > 1),
        *_sm_activity(dag),
        *_sampled(dag),
    ]


def _sm_activity(dag: Dag) -> list[CounterTrack]:
    """Share of the SMs of each device that have a block."""
    tracks = []
    for found in sm_activity(dag, dag.span):
        sums = found.whole("busy", "known")
        if not 0 < sums["busy"] * _NEARLY_ALL <= sums["known"]:
            continue
        ts_ns, share = found.active
        last = np.append(np.diff(ts_ns) > 0, True)
        ts_ns, percent = ts_ns[last], np.rint(share[last] * 100)
        moves = np.append(True, np.diff(percent) != 0)
        start = dag.span.start_ns + np.rint(ts_ns[moves]).astype(np.int64)
        tracks.append(
            CounterTrack("SM activity (estimate)", "%", start, percent[moves], found.device, -1)
        )
    return tracks


def _sampled(dag: Dag) -> Iterator[CounterTrack]:
    """A track for each series, clipped to the trace."""
    begin, end = dag.span.start_ns, dag.span.end_ns
    for levels in sample_levels(dag.events.samples):
        start_ns = np.maximum(levels.bound_ns[:-1], begin)
        inside = (start_ns < end) & (levels.bound_ns[1:] > begin)
        if inside.any():
            series = levels.series
            unsure = series.uncertainty_ns
            about = f", +-{human_duration(unsure)}" if unsure else ""
            yield CounterTrack(
                f"{series.name} ({series.instrument}{about})",
                series.unit,
                start_ns[inside],
                levels.value[inside],
                series.device,
            )


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
