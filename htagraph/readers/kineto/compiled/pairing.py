"""Pairs of begin and end events. Compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.readers.kineto.compiled.machine import entry

I64 = npt.NDArray[np.int64]


def paired(is_begin: npt.NDArray[np.bool_], lane: npt.NDArray[np.int32]) -> I64:
    """The position of each event's other half, or -1; events of a lane nest.

    `is_begin`: in order of time; all others are ends.
    """
    partner = np.full(len(lane), -1, dtype=np.int64)
    _pair(is_begin, lane, np.full(int(lane.max(initial=-1)) + 1, -1, dtype=np.int64), partner)
    return partner


@entry
def _pair(
    is_begin: npt.NDArray[np.bool_], lane: npt.NDArray[np.int32], top: I64, partner: I64
) -> None:
    """Fill `partner`; `top` is the innermost open begin of each lane, which links to the next."""
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
