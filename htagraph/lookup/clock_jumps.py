"""Clocks that were set during a capture: what caused something is recorded after it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from htagraph.model.dag import Dag
from htagraph.model.damage import Damage, DamageKind
from htagraph.model.units import human_count, human_duration

_LEAST_NS = 1_000_000
"""By how much a recorded dependency runs backward if a clock was set.

Measured: of 116 real traces, none has a dependency that does after the device clock is aligned.
Device clocks that cannot be aligned are tens of microseconds off. Pinned by
`test_clock_jumps.py::test_a_clock_that_was_set_back_is_damage`.
"""
_LEAST_OVERLAP_NS = 200_000
"""By how much a wait ends before what it waited for if a clock was set; in real traces, by less
than 20 us. Pinned by `test_clock_jumps.py::test_waits_that_end_long_before_their_work_are_damage`.
"""


def clock_jumps(dag: Dag) -> Iterator[Damage]:
    """Yield a row if dependencies run backward by more than any clock is off."""
    edges, skew_ns = dag.rejected.edges, dag.rejected.skew_ns
    far = np.flatnonzero(skew_ns >= _LEAST_NS)
    n_far, n_all, times = len(far), len(dag.edges) + len(edges), dag.events.node_ts_ns
    overlap_ns = max(dag.calibration.clock_overlap_ns, dag.calibration.clock_apart_ns)
    if n_far:
        times = times[np.append(edges.tail[far], edges.head[far])]
        by = human_duration(int(skew_ns[far].max()))
        said = f"{n_far:,} of {human_count(n_all, 'edge')} run backward in time, by up to {by}: "
    elif overlap_ns >= _LEAST_OVERLAP_NS:
        n_far = 1
        said = f"Waits end up to {human_duration(overlap_ns)} before what they waited for: "
    else:
        return
    said += (
        "a clock was set during the capture, and times before and after that do not fit together."
    )
    yield Damage(DamageKind.LOST_TIMES, n_far, n_all, int(times.min()), int(times.max()), said)
