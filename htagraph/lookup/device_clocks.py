"""Clocks that devices ran at while they worked, as another tool sampled them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.lookup.device_states import devices_of
from htagraph.lookup.sample_levels import over
from htagraph.lookup.sampled_use import series_of
from htagraph.model.clock_names import MEMORY_CLOCK, SM_CLOCK
from htagraph.model.dag import Dag

__all__ = ["Clocks", "device_clocks"]

I64 = npt.NDArray[np.int64]


class Clocks(NamedTuple):
    """Mean clocks in MHz, NaN if not sampled."""

    sm_mhz: float
    memory_mhz: float


def device_clocks(dag: Dag, device: int, work: I64) -> Clocks:
    """Mean clocks of a device over the time of some of its work."""
    found = [
        series_of(dag.events.samples, device, devices_of(dag), pattern)
        for pattern in (SM_CLOCK, MEMORY_CLOCK)
    ]
    start_ns, end_ns = dag.events.ts_ns[work], dag.events.end_ns[work]
    means = []
    for levels in found:
        clock = None if levels is None else over(levels, start_ns, end_ns)
        covered = 0 if clock is None else int(clock.covered_ns.sum())
        means.append(
            float(np.nansum(clock.mean * clock.covered_ns) / covered)
            if clock is not None and covered
            else np.nan
        )
    return Clocks(*means)
