"""Latency and bandwidth of transfers by sizes and times: t = alpha + size / beta (Hockney 1994)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import F64, I64

_FEWEST_SIZES = 3
"""Distinct sizes that a line needs: two always fit."""
_LEAST_RANGE = 4
"""Largest by smallest size from which a slope can be told from noise. Chosen."""


class TransferFit(NamedTuple):
    """Latency and bandwidth, and how far times are from them.

    Parameters
    ----------
    alpha_ns : float, unit=ns
        Time of a transfer of nothing.
    error : float
        Median of the deviations, as a share of the fitted time.
    """

    alpha_ns: float
    ns_per_byte: float
    error: float

    def time_ns(self, n_bytes: npt.ArrayLike) -> F64:
        """Fitted time of transfers."""
        return self.alpha_ns + self.ns_per_byte * np.asarray(n_bytes, dtype=np.float64)


def fit_transfers(n_bytes: I64, time_ns: I64) -> TransferFit | None:
    """The line through the shortest times of each size; None if sizes are too few or too similar.

    Relative errors count: a large transfer must not outweigh the latency of small ones.

    Examples
    --------
    >>> found = fit_transfers(np.array([0, 1_000, 4_000, 16_000]), np.array([50, 60, 90, 210]))
    >>> round(found.alpha_ns), round(1 / found.ns_per_byte)
    (50, 100)
    """
    sizes, code = np.unique(n_bytes, return_inverse=True)
    if len(sizes) < _FEWEST_SIZES or sizes[-1] < _LEAST_RANGE * max(int(sizes[0]), 1):
        return None
    least = np.full(len(sizes), np.iinfo(np.int64).max)
    np.minimum.at(least, code.reshape(-1), time_ns)
    weight = 1 / np.maximum(least, 1)
    lines = np.stack([np.ones(len(sizes)), sizes.astype(np.float64)], axis=1)
    (alpha, slope), *_ = np.linalg.lstsq(lines * weight[:, None], least * weight, rcond=None)
    if slope <= 0 or alpha < 0:
        return None
    fit = TransferFit(float(alpha), float(slope), 0.0)
    return fit._replace(error=float(np.median(np.abs(least - fit.time_ns(sizes)) * weight)))
