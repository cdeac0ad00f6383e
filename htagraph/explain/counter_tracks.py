"""Counters of the timeline (queues, bandwidth, SM activity, samples), and rooflines of its work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.arrays.codes import gather
from htagraph.lookup.operator_roofs import Limit, operator_roofs
from htagraph.lookup.samples import (
    CounterChanges,
    bandwidth_changes,
    counter_levels,
    queue_changes,
    sample_levels,
)
from htagraph.lookup.sm_activity import geometry_devices, sm_activity
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import DEVICE_KINDS, among, in_words
from htagraph.model.units import human_duration
from htagraph.operators.peaks import peaks_of
from htagraph.writers.pftrace import CounterTrack

_NEARLY_ALL = 0.9
"""Least share of kernel time with a known grid for an SM activity track; as `utilization` asks for.
Pinned by tests/explain/test_topics.py."""


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
    track, start_ns, _, value = counter_levels(changes, dag.span)
    ends = np.searchsorted(track, np.arange(len(changes.name) + 1))
    return [
        CounterTrack(
            f"{prefix}{in_words(changes.name[of])}",
            unit,
            start_ns[first:last],
            value[first:last] / changes.unit,
            int(changes.device[of]),
            int(changes.stream[of]),
        )
        for of, (first, last) in enumerate(pairwise(ends.tolist()))
        if first < last
    ]


_NS = 1e9


def roof_arguments(dag: Dag) -> Mapping[str, tuple[I64, npt.NDArray[Any]]]:
    """Arguments of operators with a model and of their device work, by name: events and values.

    All kernels of a call have the values of the call. Empty, at no cost, if the peaks of no device
    are known.
    """
    if not any(map(peaks_of, geometry_devices(dag).values())):
        return {}
    events = dag.events
    work = np.flatnonzero(among(events.kind, DEVICE_KINDS))
    roofs = operator_roofs(dag, work, events.dur_ns[work])
    if not roofs.has_peaks:
        return {}
    calls = roofs.work
    call = np.full(len(events), -1, dtype=np.int64)
    # Operators of a capture are not in the trace, only the kernels of their replays are.
    is_here = calls.event < len(events)
    call[calls.event[is_here]] = np.flatnonzero(is_here)
    call[work] = calls.call
    rows = np.flatnonzero(call >= 0)
    seconds = np.maximum(roofs.device_ns, 1) / _NS
    n_bytes = np.where(calls.host_bytes >= 0, calls.host_bytes, calls.of_calls("bytes_low"))
    tflops, gigabytes = calls.of_calls("flops") / seconds / 1e12, n_bytes / seconds / 1e9
    share = roofs.roof_ns / np.maximum(roofs.device_ns, 1)
    limit = np.array(Limit.labels(), dtype=object)[roofs.limit]
    judged = rows[gather(roofs.limit, call[rows]) != Limit.UNKNOWN]
    multiplies = rows[gather(tflops, call[rows]) > 0]
    return {
        "roof_tflops_per_s": (multiplies, np.round(tflops[call[multiplies]], 1)),
        "roof_gb_per_s": (rows, np.round(gigabytes[call[rows]], 1)),
        "roof_share": (judged, np.round(share[call[judged]], 3)),
        "roof_limit": (judged, limit[call[judged]]),
    }
