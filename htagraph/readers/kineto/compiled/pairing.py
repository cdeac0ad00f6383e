"""Pairs of begin and end events. Compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.readers.kineto.compiled.machine import entry

__all__ = ["pair"]

I64 = npt.NDArray[np.int64]


@entry
def pair(
    is_begin: npt.NDArray[np.bool_], lane: npt.NDArray[np.int32], top: I64, partner: I64
) -> None:
    """Fill `partner` with the position of each event's other half, or -1.

    Parameters
    ----------
    is_begin : ndarray of shape (n,), dtype=bool
        In order of time; all others are ends.
    lane : ndarray of shape (n,), dtype=int32
    top : ndarray of shape (n_lanes,), dtype=int64
        All -1; scratch: the innermost open begin of each lane, whose `partner` holds the next one.
    partner : ndarray of shape (n,), dtype=int64
        All -1.
    """
    for k in range(len(lane)):
        if is_begin[k]:
            partner[k] = -top[lane[k]] - 2
            top[lane[k]] = k
        elif top[lane[k]] >= 0:
            begin = top[lane[k]]
            top[lane[k]] = -partner[begin] - 2
            partner[begin] = k
            partner[k] = begin
    for k in range(len(lane)):
        partner[k] = max(partner[k], -1)
