"""Clocks that devices ran at while they worked, as another tool sampled them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.lookup.device_states import devices_of
from htagraph.lookup.sample_levels import over
from htagraph.lookup.sampled_use import series_of
from htagraph.model.arrays import I64
from htagraph.model.clock_names import MEMORY_CLOCK, SM_CLOCK
from htagraph.model.dag import Dag


class Clocks(NamedTuple):
    """Mean clocks in MHz, NaN if not sampled."""

    sm_mhz: float
    memory_mhz: float


def device_clocks(dag: Dag, device: int, work: I64) -> Clocks:
    """Mean clocks of a device over the time of some of its work."""
    devices, means = devices_of(dag), []
    start_ns, end_ns = dag.events.ts_ns[work], dag.events.end_ns[work]
    for pattern in (SM_CLOCK, MEMORY_CLOCK):
        levels = series_of(dag.events.samples, device, devices, pattern)
        mean = np.nan
        if levels is not None:
            clock = over(levels, start_ns, end_ns)
            if covered := int(clock.covered_ns.sum()):
                mean = float(np.nansum(clock.mean * clock.covered_ns) / covered)
        means.append(mean)
    return Clocks(*means)
