"""Token surplus: time that ranks spend on more tokens than the mean, and a run without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.algorithms.retime import DROPPED
from htagraph.model.arrays import F64, I64
from htagraph.model.kinds import Cause
from htagraph.replay.changes import Change
from htagraph.replay.draft import Draft


@dataclass(frozen=True)
class TokenSurplus:
    """The part of each rank's time that goes to tokens beyond the mean.

    Parameters
    ----------
    times_ns, sums_ns : mapping of int to ndarray
        By rank: times, ascending, and the surplus until then; it grows evenly in between.
    """

    times_ns: Mapping[int, I64] = field(default_factory=dict)
    sums_ns: Mapping[int, F64] = field(default_factory=dict)

    def moved(self, clocks: Mapping[int, Clock]) -> TokenSurplus:
        """The same in common time."""
        times_ns = {rank: clocks[rank].to_common(one) for rank, one in self.times_ns.items()}
        return TokenSurplus(times_ns, self.sums_ns)

    def within(self, rank: int, start_ns: I64, end_ns: I64) -> I64:
        """The surplus of a rank in each of some intervals."""
        times = self.times_ns.get(rank)
        if times is None:
            return np.zeros(len(start_ns), dtype=np.int64)
        low, high = (
            np.interp(at - times[0], times - times[0], self.sums_ns[rank])
            for at in (start_ns, end_ns)
        )
        found: I64 = np.clip(np.floor(high - low), 0, end_ns - start_ns).astype(np.int64)
        return found

    def charged(self, attributed_time: pd.DataFrame, rank: int) -> pd.DataFrame:
        """Pieces of a rank, cut into what goes to the surplus and the rest."""
        start_ns, dur_ns = (
            attributed_time[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns")
        )
        part_ns = self.within(rank, start_ns, start_ns + dur_ns)
        if not part_ns.any():
            return attributed_time
        rest = attributed_time.assign(
            start_ns=start_ns + part_ns,
            dur_ns=dur_ns - part_ns,
            cause=attributed_time["cause"].astype(object),
        )
        surplus = rest.assign(start_ns=start_ns, dur_ns=part_ns, cause=str(Cause.EXPERT_IMBALANCE))
        both = pd.concat([surplus, rest])
        return both[both["dur_ns"] > 0].sort_values("start_ns", kind="stable", ignore_index=True)


@dataclass(frozen=True)
class Balance(Change):
    """No rank works on more tokens than the mean of its group: it has that much less to do.

    Parameters
    ----------
    surplus : TokenSurplus
        In common time.
    """

    surplus: TokenSurplus

    def apply(self, draft: Draft) -> None:
        """Shorten all edges in the work on tokens by one factor; transfers stay."""
        replay = draft.replay
        begin, end = replay.ts_ns[replay.tail], replay.ts_ns[replay.head]
        spared = self.surplus.within(draft.rank, begin, np.maximum(begin, end))
        spared[draft.transfers.row] = 0
        rows = np.flatnonzero((spared > 0) & (draft.lag_ns != DROPPED))
        left = 1 - spared[rows] / (end - begin)[rows]
        for part in (draft.lag_ns, draft.extra_ns):
            part[rows] = np.rint(part[rows] * left).astype(np.int64)

    def __str__(self) -> str:
        """Write it."""
        return "balance(tokens)"
