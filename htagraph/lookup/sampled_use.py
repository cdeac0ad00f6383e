"""What other instruments measured of the use of devices: the means of their samples."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from htagraph.model.samples import SampleTable, Series

__all__ = ["SAMPLED", "sampled_use"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

SAMPLED: Mapping[str, re.Pattern[str]] = {
    "gpu_utilization": re.compile(
        r"(?i)^utilization\.gpu|_GPU_UTIL$|^GPUTL$|^GR Active|_GR_ENGINE_ACTIVE$|^GRACT$"
    ),
    "sm_activity": re.compile(r"(?i)^SMs? Active|_SM_ACTIVE$|^SMACT$"),
    "sm_occupancy": re.compile(r"(?i)_SM_OCCUPANCY$|^SMOCC$|^Compute Warps in Flight"),
    "tensor_activity": re.compile(r"(?i)^Tensor Active|_PIPE_TENSOR_ACTIVE$|^TENSO$"),
}
"""Names of series that measure the same as an estimate does: those of nvidia-smi, of DCGM and of
the GPU metrics of Nsight Systems. Tensor activity is a share of cycles, not of kernel time."""

_PERCENT = 100.0
_MOST_OF_A_RATIO = 1.5
"""A share above it must be in percent: DCGM writes shares of 1, nvidia-smi whole percents."""


def sampled_use(
    samples: SampleTable, device: int, devices: I64, start_ns: I64, end_ns: I64
) -> dict[str, F64]:
    """Means of the samples of a device in some ranges, as shares of 1.

    Parameters
    ----------
    samples : SampleTable
    device : int
    devices : ndarray of int
        All devices of the trace: a series of no device is of the only one.
    start_ns, end_ns : ndarray of shape (n,), dtype=int64, unit=ns

    Returns
    -------
    dict of str to ndarray of shape (n,), dtype=float64
        By the names of `SAMPLED`; NaN without a sample. Of several series, the one with most
        samples counts.

    Examples
    --------
    >>> table = SampleTable.of([(Series("SMACT", "", 0, "dcgm"), [5, 15, 25], [0.25, 0.75, 0.5])])
    >>> use = sampled_use(table, 0, np.array([0]), np.array([0, 90]), np.array([20, 99]))
    >>> use["sm_activity"].tolist()
    [0.5, nan]
    """
    bounds = np.searchsorted(samples.series, np.arange(len(samples.all_series) + 1))
    nothing = np.full(len(start_ns), np.nan)
    found = {}
    for name, pattern in SAMPLED.items():
        fitting = [
            number
            for number, series in enumerate(samples.all_series)
            if pattern.search(series.name)
            and (series.device == device or (series.device < 0 and len(devices) == 1))
        ]
        most = max(fitting, key=lambda number: bounds[number + 1] - bounds[number], default=None)
        if most is None:
            found[name] = nothing
            continue
        rows = slice(bounds[most], bounds[most + 1])
        values = _as_shares(samples.all_series[most], samples.value[rows])
        found[name] = _means(samples.ts_ns[rows], values, start_ns, end_ns)
    return found


def _as_shares(series: Series, values: F64) -> F64:
    """Values of a series as shares of 1."""
    is_percent = "%" in series.unit + series.name or values.max(initial=0) > _MOST_OF_A_RATIO
    return values / _PERCENT if is_percent else values


def _means(ts_ns: I64, values: F64, start_ns: I64, end_ns: I64) -> F64:
    """Mean of the values that were taken in each range."""
    first, last = np.searchsorted(ts_ns, start_ns), np.searchsorted(ts_ns, end_ns)
    total = np.concatenate([[0.0], np.cumsum(values)])
    out = np.full(len(start_ns), np.nan)
    np.divide(total[last] - total[first], last - first, out=out, where=last > first)
    return out
