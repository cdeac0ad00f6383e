"""What a cause costs, and what its repair saves: predicted by replays of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pandas as pd

from htagraph.model.kinds import Cause

__all__ = ["Worth", "predicted"]


class Worth(NamedTuple):
    """What replays say of a cause.

    Parameters
    ----------
    cost_ns : int or None, unit=ns
        What the window loses to it; None if it was not replayed.
    then_bound : str
        The bottleneck without the cause; empty if unknown.
    saves_ns, low_ns, high_ns : int, unit=ns
        What its repair saves: expected, at least, and at most.
    repaired_by : str
        The replayed repair, empty for none.
    """

    cost_ns: int | None = None
    then_bound: str = ""
    saves_ns: int = 0
    low_ns: int = 0
    high_ns: int = 0
    repaired_by: str = ""


def predicted(opportunities: pd.DataFrame) -> Callable[[Cause, int, int], Worth]:
    """What is predicted of each cause, from its rank and the time charged to it.

    A repair saves no more than the cause costs, and that is no more than its time. Not so a late
    rank: the time charged to it is what it took longer than the runner-up, who waits in turn.
    """
    rows = {
        (row["kind"], row["cause"], row["late_rank"]): row
        for row in opportunities.to_dict("records")
        if row["cause"]
    }

    def worth(cause: Cause, rank: int, dur_ns: int) -> Worth:
        """What was predicted of a cause."""
        repair = rows.get(("repair", cause, rank))
        gone = repair if cause is Cause.LATE_RANK else rows.get(("cause", cause, rank))
        found = Worth()
        if gone is not None:
            most_ns = int(gone["saves_ns"]) if cause is Cause.LATE_RANK else dur_ns
            cost_ns = min(max(int(gone["saves_ns"]), 0), most_ns)
            found = found._replace(cost_ns=cost_ns, then_bound=str(gone["then_bound"]))
        if repair is not None:
            # What the replay leaves of a cause stays of the time charged to it, too.
            most_ns = min(round(dur_ns * (1 - repair["left_share"])), found.cost_ns or dur_ns)
            if cause is Cause.LATE_RANK:
                most_ns = int(repair["high_ns"])
            ends = ("saves_ns", "low_ns", "high_ns")
            saves_ns, low_ns, high_ns = (min(max(int(repair[name]), 0), most_ns) for name in ends)
            return Worth(*found[:2], saves_ns, low_ns, high_ns, str(repair["change"]))
        return found

    return worth
