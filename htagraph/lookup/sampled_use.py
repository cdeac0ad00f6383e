"""Use of devices that other instruments sampled, to compare with htagraph's estimates."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from htagraph.lookup.sample_levels import Levels, over, sample_levels
from htagraph.model.arrays import F64, I64
from htagraph.model.samples import SampleTable, Series

SAMPLED: Mapping[str, re.Pattern[str]] = {
    "gpu_utilization": re.compile(
        r"(?i)^utilization\.gpu$|_GPU_UTIL$|^GPUTL$|^GR Active|_GR_ENGINE_ACTIVE$|^GRACT$"
        r"|^sm$|^gfx_activity$"
    ),
    "sm_activity": re.compile(r"(?i)^SMs? Active|_SM_ACTIVE$|^SMACT$"),
    "sm_occupancy": re.compile(r"(?i)_SM_OCCUPANCY$|^SMOCC$|^Compute Warps in Flight"),
    "tensor_activity": re.compile(r"(?i)^Tensor Active|_PIPE_TENSOR_ACTIVE$|^TENSO$"),
}
"""Names of series of nvidia-smi, DCGM and the GPU metrics of Nsight Systems that measure what
htagraph estimates. Tensor activity is a share of cycles, not of the time of kernels."""

_PERCENT = 100.0
"""A unit: the percent that are all."""
_MOST_OF_A_RATIO = 1.5
"""A series with larger values is in percent. DCGM writes ratios, most others percents; a ratio
exceeds 1 only by rounding. Chosen: test_sampled_use has series on both sides."""


def sampled_use(
    samples: SampleTable, device: int, devices: I64, start_ns: I64, end_ns: I64
) -> dict[str, F64]:
    """Means of the samples of a device over some ranges, weighted by time, as shares of 1.

    By the names of `SAMPLED`; NaN without samples. Of several series, the one with most samples
    counts. If the trace has one device, a series without a device is of that one.
    """
    found = {}
    for name, pattern in SAMPLED.items():
        most = series_of(samples, device, devices, pattern)
        found[name] = (
            np.full(len(start_ns), np.nan)
            if most is None
            else over(most, start_ns, end_ns).mean / full_value(most)
        )
    return found


def series_of(
    samples: SampleTable, device: int, devices: I64, pattern: re.Pattern[str]
) -> Levels | None:
    """The series of a device with such a name, of several the one with most samples.

    If the trace has one device, a series without a device is of that one.
    """

    def fits(series: Series) -> bool:
        is_of = series.device == device or (series.device < 0 and len(devices) == 1)
        return is_of and pattern.search(series.name) is not None

    return max(sample_levels(samples, fits), key=lambda levels: len(levels.value), default=None)


def full_value(levels: Levels) -> float:
    """The value of a series that means all."""
    text = levels.series.unit + levels.series.name
    is_percent = "%" in text or levels.value.max() > _MOST_OF_A_RATIO
    return _PERCENT if is_percent else 1.0
