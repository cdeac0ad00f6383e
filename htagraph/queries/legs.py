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
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.model.frames import LEGS

__all__ = ["Leg", "RankEnds", "find_legs", "legs_frame"]


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


def _meeting_index(meetings: pd.DataFrame) -> dict[tuple[int, int], tuple[int, int, bool]]:
    """Return for each member (rank, collective): who was last (rank, collective), and whether clocks allow the hop."""
    last = meetings.merge(
        meetings[["meeting", "rank", "collective"]].rename(
            columns={"rank": "last_rank", "collective": "last_collective"}
        ),
        on=["meeting", "last_rank"],
        how="left",
    )
    sound = (last["overrun_ns"] == 0) & (last["wait_ns"] > 0)
    keys = zip(last["rank"].tolist(), last["collective"].tolist(), strict=True)
    values = zip(last["last_rank"].tolist(), last["last_collective"].tolist(), sound.tolist(), strict=True)
    return dict(zip(keys, values, strict=True))


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
    members = _meeting_index(meetings) if len(meetings) else {}
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
        last_rank, last, may_hop = members.get((rank, anchor), (rank, anchor, False))
        met_ns = int(clocks[last_rank].to_common(columns[last_rank]["start_ns"][last]))
        if may_hop and transfer.start_ns <= met_ns <= transfer.end_ns:
            transfer = replace(transfer, start_ns=met_ns, hops=True)
            rank, anchor = last_rank, last
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
