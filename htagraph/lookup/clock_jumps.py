"""Clocks that were set during a capture: what caused something is recorded after it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from htagraph.model.dag import Dag
from htagraph.model.damage import Damage, DamageKind
from htagraph.model.units import human_count, human_duration

__all__ = ["clock_jumps"]

_LEAST_NS = 1_000_000
"""By how much a recorded dependency runs backward if a clock was set.

Measured: of 116 real traces, none has a dependency that does after the device clock is aligned.
Device clocks that cannot be aligned are tens of microseconds off. Pinned by
`test_clock_jumps.py::test_a_clock_that_was_set_back_is_damage`.
"""


def clock_jumps(dag: Dag) -> Iterator[Damage]:
    """Yield a row if dependencies run backward by more than any clock is off."""
    edges, skew_ns = dag.rejected.edges, dag.rejected.skew_ns
    far = np.flatnonzero(skew_ns >= _LEAST_NS)
    if not len(far):
        return
    times = dag.events.node_ts_ns[np.append(edges.tail[far], edges.head[far])]
    n_all = len(dag.edges) + len(edges)
    said = (
        f"{len(far):,} of {human_count(n_all, 'edge')} run backward in time, "
        f"by up to {human_duration(int(skew_ns[far].max()))}: a clock was set during the capture, "
        "and times before and after that do not fit together."
    )
    yield Damage(DamageKind.LOST_TIMES, len(far), n_all, int(times.min()), int(times.max()), said)
