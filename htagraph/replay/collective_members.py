"""One rank's members of matched collectives, as edges of its replay.

::

    start of a member ---transfer---> its end
                |                       ^
                '---> all are there ----'
                           transfer

Data moves once all ranks have arrived. In a changed run, another rank may be the last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from htagraph.arrays.codes import gather
from htagraph.arrays.retime import DROPPED
from htagraph.model.arrays import F64, I64, Bools
from htagraph.replay.replay import Replay


@dataclass(frozen=True)
class Members:
    """Members of one rank's matched collectives in common time, sorted by arrival."""

    rank: int
    match: I64  # Number of the matched collective across ranks
    # event, came: the kernel or host range, and the one whose start is the rank's arrival: itself,
    # or the half that sends
    event: I64
    came: I64
    # waits, is_awaited: whether its end waits for others, and others for it
    waits: Bools
    is_awaited: Bools
    arrived_ns: I64
    met_ns: I64  # Arrival of the last rank that others wait for
    # since_ns, late_ns: by how much the rank became late, against the median rank, since this time
    since_ns: I64
    late_ns: I64
    # least_since_ns, least_late_ns: the same against the last of the others
    least_since_ns: I64
    least_late_ns: I64
    # latency_ns, latency_error: fitted latency of its transfer in ns, and the error of the fit as a
    # share; NaN without a fit
    latency_ns: F64
    latency_error: F64

    def without(self, matches: npt.NDArray[np.integer]) -> Members:
        """The members, without waits in some of the collectives."""
        sound = ~np.isin(self.match, matches)
        return replace(self, waits=self.waits & sound, is_awaited=self.is_awaited & sound)

    def earlier_ns(self, ts_ns: I64, *, at_least: bool = False) -> F64:
        """By how much each time would be earlier if the rank had not been late until then.

        At the least, late means later than all others, not than the median.
        """
        since_ns, late_ns = (
            (self.least_since_ns, self.least_late_ns) if at_least else (self.since_ns, self.late_ns)
        )
        late = np.flatnonzero(late_ns > 0)
        if not len(late):
            return np.zeros(ts_ns.shape)
        first = since_ns[late[0]]  # float64 cannot hold epoch times to the nanosecond
        times = np.column_stack([since_ns[late], self.arrived_ns[late]]).ravel() - first
        spared = np.cumsum(np.column_stack([np.zeros(len(late)), late_ns[late]]).ravel())
        earlier: F64 = np.interp(ts_ns - first, times, spared)
        return earlier


def transfers(replay: Replay, members: Members) -> tuple[I64, I64]:
    """The edges of members' own time during which the last rank arrived, in common time.

    One leads to the end of the member; others lead to work that by the clocks needed less of it.
    Edges are ascending; the second is the member whose own time each is.
    """
    waits = np.flatnonzero(members.waits)
    size = int(max(members.event.max(initial=-1), replay.owner.max(initial=-1))) + 1
    member_of = np.full(size, -1, dtype=np.int64)
    member_of[members.event[waits]] = waits
    row = np.flatnonzero(gather(member_of, replay.owner) >= 0)
    member = member_of[replay.owner[row]]
    met_ns = members.met_ns[member]
    begins = replay.ts_ns[replay.tail[row]] <= met_ns
    crosses = begins & (replay.ts_ns[replay.head[row]] >= met_ns)
    return row[crosses], member[crosses]


def without_waits(replay: Replay, members: Members) -> Replay:
    """The replay without the waits before transfers.

    By itself it runs too early where the rank waited: see `htagraph.job.merged_replay`.
    """
    row, member = transfers(replay, members)
    waited = members.met_ns[member] - replay.ts_ns[replay.tail[row]]
    lag, extra = replay.lag_ns.copy(), replay.extra_ns.copy()
    there = lag[row] != DROPPED
    row, waited = row[there], waited[there]
    weight = np.maximum(lag[row] + extra[row] - waited, 0)
    lag[row] = np.maximum(lag[row] - waited, 0)
    extra[row] = weight - lag[row]
    return replace(replay, lag_ns=lag, extra_ns=extra)
