"""Where a rank of a job meets others: its members of matched collectives, as its replay has them.

::

    start of a member ---transfer---> its end
                |                       ^
                '---> all are there ----'
                           transfer

What moves data begins when all are there. In another run another rank may be the last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.algorithms.retime import DROPPED
from htagraph.replay.replay import Replay

__all__ = ["Members", "Transfers", "transfers", "without_waits"]

Bools = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Members:
    """Members of matched collectives of one rank, in common time; by arrival.

    Parameters
    ----------
    match : ndarray of shape (n,), dtype=int64
        Number of the matched collective across ranks.
    event, came : ndarray of shape (n,), dtype=int64
        The kernel or host range, and that with whose start the rank came: itself, or the half that
        sends.
    waits, is_awaited : ndarray of shape (n,), dtype=bool
        Whether its end waits for others, and others for it.
    arrived_ns : ndarray of shape (n,), dtype=int64, unit=ns
    met_ns : ndarray of shape (n,), dtype=int64, unit=ns
        When the last of those whom others wait for had come.
    since_ns, late_ns : ndarray of shape (n,), dtype=int64, unit=ns
        How much later than the median rank it came, beyond what it was late at its last arrival
        already, and since when it may have spent that.
    least_since_ns, least_late_ns : ndarray of shape (n,), dtype=int64, unit=ns
        The same beyond the last of the others.
    """

    rank: int
    match: I64
    event: I64
    came: I64
    waits: Bools
    is_awaited: Bools
    arrived_ns: I64
    met_ns: I64
    since_ns: I64
    late_ns: I64
    least_since_ns: I64
    least_late_ns: I64

    def without(self, matches: npt.NDArray[np.integer]) -> Members:
        """The members, of which nobody waits in some of the collectives."""
        sound = ~np.isin(self.match, matches)
        return replace(self, waits=self.waits & sound, is_awaited=self.is_awaited & sound)

    def earlier_ns(self, ts_ns: I64, *, at_least: bool = False) -> npt.NDArray[np.float64]:
        """By how much each time would be earlier, had the rank never been late by then.

        At least: later than all others, in place of the median.
        """
        since_ns, late_ns = (
            (self.least_since_ns, self.least_late_ns) if at_least else (self.since_ns, self.late_ns)
        )
        late = np.flatnonzero(late_ns > 0)
        if not len(late):
            return np.zeros(ts_ns.shape)
        first = since_ns[late[0]]  # floats have no nanoseconds at times since 1970
        times = np.column_stack([since_ns[late], self.arrived_ns[late]]).ravel() - first
        spared = np.cumsum(np.column_stack([np.zeros(len(late)), late_ns[late]]).ravel())
        earlier: npt.NDArray[np.float64] = np.interp(ts_ns - first, times, spared)
        return earlier


class Transfers(NamedTuple):
    """Edges of a replay that are transfers of matched collectives.

    Parameters
    ----------
    row : ndarray of shape (k,), dtype=int64
        Edges, ascending.
    member : ndarray of shape (k,), dtype=int64
        The member whose own time each is.
    """

    row: I64
    member: I64


def transfers(replay: Replay, members: Members) -> Transfers:
    """The edges during which the last rank came: members' own time, from before to after that.

    One leads to the end of the member. Others lead to what needed no more of it, by the clocks.

    Parameters
    ----------
    replay : Replay
        In common time.
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
    return Transfers(row[crosses], member[crosses])


def without_waits(replay: Replay, members: Members) -> Replay:
    """The replay with transfers that begin when all are there, without the wait before.

    By itself it is too early wherever the rank waited: see `htagraph.job.merged_replay`.
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
