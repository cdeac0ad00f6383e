"""The saving of a finding: predicted by a replay, or bounded by busy time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pandas as pd

from htagraph.explain.busy_time import BusyTime
from htagraph.model.kinds import Cause
from htagraph.model.units import human_duration

__all__ = ["Worth", "bounded", "predicted"]

_ON_DEVICE = (
    Cause.COMMUNICATION,
    Cause.COPIES,
    Cause.BLOCKING_COPY,
    Cause.DEVICE_GAPS,
    Cause.DEVICE_FULL,
)
_ON_HOST = (
    Cause.HOST,
    Cause.HOST_WAIT,
    Cause.UNRECORDED_WAIT,
    Cause.FULL_QUEUE,
    Cause.DATA_LOADING,
    Cause.ALLOCATION,
    Cause.FIRST_USE,
    Cause.OPTIMIZER,
    Cause.COMPILATION,
    Cause.RECOMPILATION,
    Cause.AUTOTUNING,
    Cause.CHECKPOINTING,
    Cause.GARBAGE_COLLECTION,
)


class Worth(NamedTuple):
    """The saving of a cause.

    Parameters
    ----------
    saves_ns, low_ns, high_ns : int, unit=ns
        Expected, at least, and at most; never more than the time attributed to the cause.
    repaired_by, then_bound : str
        The replayed change, and the next bottleneck; empty without a replay.
    limited_by : str
        The resource that limits the saving, if nothing was replayed.
    """

    saves_ns: int
    low_ns: int
    high_ns: int
    repaired_by: str = ""
    then_bound: str = ""
    limited_by: str = ""


def predicted(
    opportunities: pd.DataFrame, otherwise: Callable[[Cause, int, int], Worth] | None = None
) -> Callable[[Cause, int, int], Worth]:
    """The savings that replays predict; `otherwise` gives that of a cause that was not replayed."""
    repairs = {
        (row["cause"], row["late_rank"]): row
        for row in opportunities.to_dict("records")
        if row["cause"]
    }

    def worth(cause: Cause, rank: int, dur_ns: int) -> Worth:
        """The saving of a cause, from the time attributed to it."""
        row = repairs.get((str(cause), rank))
        if row is None:
            return otherwise(cause, rank, dur_ns) if otherwise else Worth(0, 0, 0)
        # What the replay leaves of a cause stays of its attributed time, too.
        most_ns = round(dur_ns * (1 - row["left_share"]))
        ends = ("saves_ns", "low_ns", "high_ns")
        saved = [min(max(int(row[name]), 0), most_ns) for name in ends]
        return Worth(saved[0], saved[1], saved[2], str(row["change"]), str(row["then_bound"]))

    return worth


def bounded(busy: BusyTime, window_ns: int) -> Callable[[Cause, int, int], Worth]:
    """Upper bounds of savings: no resource gets faster than the others are busy.

    Compute counts half, as if it were twice as fast.
    """

    def worth(cause: Cause, rank: int, dur_ns: int) -> Worth:
        """The attributed time, up to the time in which no other resource is busy."""
        del rank
        others = []
        if cause in _ON_HOST:
            others = [(busy.device_ns, "devices compute and copy")]
        elif cause in _ON_DEVICE:
            others = [(busy.host_ns, "the host works"), (busy.compute_ns, "devices compute")]
        elif cause is Cause.COMPUTE:
            others = [(busy.host_ns, "the host works")]
        busy_ns, what = max(others, default=(0, ""))
        limit_ns = window_ns - min(busy_ns, window_ns)
        saves_ns = min(dur_ns, limit_ns) // (2 if cause is Cause.COMPUTE else 1)
        limited_by = f"{what} for {human_duration(busy_ns)}" if limit_ns < dur_ns else ""
        return Worth(saves_ns, 0, saves_ns, limited_by=limited_by)

    return worth
