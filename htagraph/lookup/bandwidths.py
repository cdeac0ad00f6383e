"""Bandwidth of copies and fills: bytes by duration, or the recorded value where it is better."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.model.arrays import F64, I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind, among

_US_NS = 1_000
"""A unit: what older profilers cut durations to."""
_TOLERANCE = 0.01
"""Share by which a recorded bandwidth may differ from bytes by duration: profilers round it.
Chosen: test_bandwidths draws copies on both sides."""
_FEWEST_DURATIONS = 3
"""Durations that must differ before one factor between both counts as systematic: cutting to whole
microseconds changes each by another factor; two may agree by chance (test_bandwidths)."""


class Bandwidths(NamedTuple):
    """Bandwidth of each copy or fill for which it is known.

    Parameters
    ----------
    event : ndarray of shape (n,), dtype=int64
    rate : ndarray of shape (n,), dtype=float64
        Bytes per nanosecond, which is 1e9 bytes per second.
    n_fit, n_compared : int
        Recorded bandwidths that fit bytes and duration, and all for which both are known.
    factor : float
        Recorded bandwidth of the median copy as a share of bytes by duration; 1 if unknown.
    is_as_recorded : bool
        Whether recorded values were used although bytes are known.
    """

    event: I64
    rate: F64
    n_fit: int
    n_compared: int
    factor: float
    is_as_recorded: bool


def bandwidths(dag: Dag) -> Bandwidths:
    """Bandwidth of each copy or fill that takes time.

    Bytes by duration is exact where durations are in nanoseconds. Older profilers computed the
    bandwidth first and then cut durations to whole microseconds: there the recorded value is
    better, unless all are off by one factor, or one by more than such a cut explains.
    """
    events = dag.events
    work = np.flatnonzero(
        among(events.kind, (EventKind.MEMCPY, EventKind.MEMSET)) & (events.dur_ns > 0)
    )
    dur_ns = events.dur_ns[work]
    recorded = events.column("memory_bandwidth", -1.0)[work].astype(np.float64)
    n_bytes = events.column("bytes", -1)[work].astype(np.float64)
    computed = n_bytes / dur_ns
    both = np.flatnonzero((recorded >= 0) & (n_bytes > 0))
    ratio = recorded[both] / computed[both]
    is_cut = not bool((events.dur_ns[events.is_device] % _US_NS).any())
    cut_ns = _US_NS if is_cut else 0
    shortest = np.maximum(dur_ns[both] - cut_ns, 1)
    fits = (ratio >= (1 - _TOLERANCE) * dur_ns[both] / (dur_ns[both] + cut_ns)) & (
        ratio <= (1 + _TOLERANCE) * dur_ns[both] / shortest
    )
    factor = float(np.median(ratio)) if len(both) else 1.0
    is_one_factor = (
        len(np.unique(dur_ns[both])) >= _FEWEST_DURATIONS
        and bool((np.abs(ratio - factor) <= _TOLERANCE * factor).all())
        and abs(factor - 1) > _TOLERANCE
    )
    n_fit = 0 if is_one_factor else int(fits.sum())
    is_as_recorded = is_cut and 2 * n_fit >= max(len(both), 1)
    prefers_recorded = (recorded >= 0) & (is_as_recorded | (n_bytes < 0))
    rate = np.where(prefers_recorded, recorded, computed)
    known = (recorded >= 0) | (n_bytes >= 0)
    return Bandwidths(work[known], rate[known], n_fit, len(both), factor, is_as_recorded)
