"""The path of a job, in legs: on one rank from a collective back to the one before, and across ranks where one waited.

A rank is reduced to its collectives and, of each, the collective that its start goes back to along binding edges (its
skeleton). Back from the end of the job, a leg runs on one rank to the end of a collective. If the rank waited in it, the
path hops to the rank that came last, at the instant at which it came.

::

    rank 0   ------[all_reduce         ]------>  end of the job
                        wait | transfer
    rank 1   ----------------[all_reduce]---     the path goes on here, back from the start
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.model.frames import LEGS

__all__ = ["Leg", "RankEnds", "find_legs", "legs_frame"]

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RankEnds:
    """Where a rank's part of the window begins and ends.

    Parameters
    ----------
    start_ns, end_ns : int, unit=ns
        On the rank's clock.
    end_node : int
        Node that the rank's path leads to, -1 for none.
    after : int
        Collective that the walk back from there meets first, -1 for none.
    """

    start_ns: int
    end_ns: int
    end_node: int
    after: int


@dataclass(frozen=True)
class Leg:
    """A part of a job's path on one rank.

    Parameters
    ----------
    rank : int
    start_ns, end_ns : int, unit=ns
        In common time.
    local_start_ns, local_end_ns : int, unit=ns
        On the rank's clock: what has to be looked at to tell what the leg is made of.
    end_node : int
        Node that the leg leads to on its rank.
    collective : int
        The collective whose transfer the leg is, -1 for a leg along the rank's own path.
    hops : bool
        Before the leg, the path was on another rank.
    """

    rank: int
    start_ns: int
    end_ns: int
    local_start_ns: int
    local_end_ns: int
    end_node: int
    collective: int = -1
    hops: bool = False


class _Hops:
    """Who was last at each collective of each rank, to be looked up."""

    def __init__(self, meetings: pd.DataFrame) -> None:
        columns = ("meeting", "rank", "collective", "last_rank")
        meeting, rank, collective, last_rank = (meetings[name].to_numpy(np.int64) for name in columns)
        self._n_collectives = int(collective.max(initial=0)) + 1
        n_ranks = int(rank.max(initial=0)) + 1
        by_meeting = np.argsort(meeting * n_ranks + rank, kind="stable")
        key = (meeting * n_ranks + rank)[by_meeting]
        last = by_meeting[np.searchsorted(key, meeting * n_ranks + last_rank)]
        allowed = (meetings["overrun_ns"] == 0) & (meetings["wait_ns"] > 0) & ~meetings["is_partial"]
        kept = np.flatnonzero(allowed.to_numpy(dtype=bool))
        kept = kept[np.argsort(self._key(rank[kept], collective[kept]), kind="stable")]
        self._members = self._key(rank[kept], collective[kept])
        self._rank, self._collective = rank[last[kept]], collective[last[kept]]

    def _key(self, rank: I64, collective: I64) -> I64:
        return rank * self._n_collectives + collective

    def late(self, rank: int, collective: int) -> tuple[int, int] | None:
        """Return the rank, and its collective, that one waited for; None if it waited for nobody."""
        if collective >= self._n_collectives:
            return None
        key = rank * self._n_collectives + collective
        at = int(np.searchsorted(self._members, key))
        if at == len(self._members) or self._members[at] != key:
            return None
        return int(self._rank[at]), int(self._collective[at])


def find_legs(
    tables: Mapping[int, pd.DataFrame],
    ends: Mapping[int, RankEnds],
    meetings: pd.DataFrame,
    clocks: Mapping[int, Clock],
) -> list[Leg]:
    """Return the legs of the job's path, earliest first.

    Parameters
    ----------
    tables : mapping of int to DataFrame
        Schema `frames.COLLECTIVES`, by rank.
    ends : mapping of int to RankEnds
    meetings : DataFrame, schema `frames.MEETINGS`
    clocks : mapping of int to Clock

    Returns
    -------
    list of Leg
        In common time each begins where the one before ended; the first begins where its rank's part of the window does.
    """
    hops = _Hops(meetings)
    columns = {
        rank: {name: table[name].to_numpy(np.int64) for name in ("start_ns", "end_ns", "after", "event")}
        for rank, table in tables.items()
    }
    rank = max(ends, key=lambda number: (int(clocks[number].to_common(ends[number].end_ns)), -number))
    node, until_ns, anchor = ends[rank].end_node, ends[rank].end_ns, ends[rank].after
    legs: list[Leg] = []
    while True:
        own, clock, first_ns = columns[rank], clocks[rank], ends[rank].start_ns
        since_ns = int(own["end_ns"][anchor]) if anchor >= 0 else first_ns
        legs.append(_leg(rank, clock, max(since_ns, first_ns), until_ns, node))
        if anchor < 0 or since_ns <= first_ns:
            return legs[::-1]
        start_ns, event = int(own["start_ns"][anchor]), int(own["event"][anchor])
        transfer = _leg(rank, clock, start_ns, since_ns, 2 * event + 1, collective=anchor)
        if late := hops.late(rank, anchor):
            met_ns = int(clocks[late[0]].to_common(columns[late[0]]["start_ns"][late[1]]))
            transfer = replace(transfer, start_ns=met_ns, hops=True)
            rank, anchor = late
        legs.append(transfer)
        if start_ns <= first_ns and not transfer.hops:
            return legs[::-1]
        node, until_ns = 2 * int(columns[rank]["event"][anchor]), int(columns[rank]["start_ns"][anchor])
        anchor = int(columns[rank]["after"][anchor])


def _leg(rank: int, clock: Clock, start_ns: int, end_ns: int, end_node: int, *, collective: int = -1) -> Leg:
    """Return a leg between two times of a rank's clock."""
    common_start, common_end = clock.to_common([start_ns, end_ns]).tolist()
    return Leg(rank, common_start, common_end, start_ns, end_ns, end_node, collective)


def legs_frame(legs: list[Leg]) -> pd.DataFrame:
    """Return legs as a table in common time, schema `frames.LEGS`."""
    return LEGS.frame(
        {
            "rank": [leg.rank for leg in legs],
            "start_ns": [leg.start_ns for leg in legs],
            "dur_ns": [leg.end_ns - leg.start_ns for leg in legs],
            "collective": [leg.collective for leg in legs],
        }
    )
