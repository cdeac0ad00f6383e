"""The path of a job in rank segments: along one rank between collectives, and across ranks.

The graph of all ranks together would not fit into one process. So a rank is reduced to its
collectives and, for each, the collective that its start leads back to along binding edges. Walking
back from the end of the job, a rank segment runs on one rank to the end of a collective. If the
rank waited in it, the path hops to the rank that arrived last, at its arrival: the start of its
kernel, or of the sending kernel where another one receives. A law checks that this is the path of
the whole graph (`tests/job/merged.py`). Only ranks on it are opened.

::

    rank 0   ------[all_reduce         ]------>  end of the job
                        wait | transfer
    rank 1   ----------------[all_reduce]---     the path continues here, back from the start
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from htagraph.arrays.clocks import Clock
from htagraph.model.arrays import I64


@dataclass(frozen=True)
class RankEnds:
    """Where a rank's part of the window begins and ends, on its clock."""

    start_ns: int
    end_ns: int
    end_node: int  # Last node of the rank's path, -1 for none
    after: int  # First collective on the way back from there, -1 for none

    def common(self, clock: Clock) -> tuple[int, int]:
        """The begin and the end in common time."""
        start_ns, end_ns = clock.to_common([self.start_ns, self.end_ns]).tolist()
        return start_ns, end_ns

    def later(self, n_left_out: int) -> RankEnds:
        """The same without the first collectives."""
        return replace(self, after=max(self.after - n_left_out, -1))


@dataclass(frozen=True)
class RankSegment:
    """A part of a job's path on one rank; the local times are the window on the rank's clock."""

    rank: int
    start_ns: int
    end_ns: int
    local_start_ns: int
    local_end_ns: int
    end_node: int  # Last node of the rank's path in that window
    collective: int = -1  # Whose transfer this is, -1 for a segment of the rank's own path
    hops: bool = False  # The path arrives from another rank


def _last_arrivals(collectives: pd.DataFrame, tables: Mapping[int, pd.DataFrame]) -> dict[int, I64]:
    """By rank: of each collective, the rank it waited for and that rank's collective, or -1."""
    columns = ("match", "rank", "collective", "last_rank")
    match, rank, collective, last_rank = (collectives[name].to_numpy(np.int64) for name in columns)
    n_ranks = int(rank.max(initial=0)) + 1
    by_member = np.argsort(match * n_ranks + rank, kind="stable")
    key = (match * n_ranks + rank)[by_member]
    last = by_member[np.searchsorted(key, match * n_ranks + last_rank)]
    waited = (collectives["overrun_ns"] == 0) & (collectives["wait_ns"] > 0)
    rows = np.flatnonzero((waited & ~collectives["is_partial"]).to_numpy(dtype=bool))
    found = {
        number: np.full((2, len(table)), -1, dtype=np.int64) for number, table in tables.items()
    }
    for number, own in pd.Series(rows).groupby(rank[rows]):
        found[int(str(number))][:, collective[own]] = rank[last[own]], collective[last[own]]
    return found


def find_rank_segments(
    tables: Mapping[int, pd.DataFrame],
    ends: Mapping[int, RankEnds],
    collectives: pd.DataFrame,
    clocks: Mapping[int, Clock],
) -> list[RankSegment]:
    """Find the rank segments of the job's path, earliest first.

    In common time each begins where the one before ended; the first begins where its rank's part of
    the window does.
    """
    last = _last_arrivals(collectives, tables)
    columns = {
        rank: {
            name: table[name].to_numpy(np.int64)
            for name in ("start_ns", "end_ns", "after", "event", "arrival")
        }
        for rank, table in tables.items()
    }
    rank = max(
        ends, key=lambda number: (int(clocks[number].to_common(ends[number].end_ns)), -number)
    )
    node, until_ns, anchor = ends[rank].end_node, ends[rank].end_ns, ends[rank].after
    rank_segments: list[RankSegment] = []
    while True:
        own, clock, first_ns = columns[rank], clocks[rank], ends[rank].start_ns
        since_ns = int(own["end_ns"][anchor]) if anchor >= 0 else first_ns
        rank_segments.append(_rank_segment(rank, clock, max(since_ns, first_ns), until_ns, node))
        if anchor < 0 or since_ns <= first_ns:
            return rank_segments[::-1]
        start_ns, event = int(own["start_ns"][anchor]), int(own["event"][anchor])
        transfer = _rank_segment(rank, clock, start_ns, since_ns, 2 * event + 1, collective=anchor)
        late, awaited = last[rank][:, anchor].tolist()
        if late >= 0:
            rank, anchor = late, int(columns[late]["arrival"][awaited])
            met_ns = int(clocks[rank].to_common(columns[rank]["start_ns"][anchor]))
            transfer = replace(transfer, start_ns=met_ns, hops=True)
        rank_segments.append(transfer)
        if start_ns <= first_ns and not transfer.hops:
            return rank_segments[::-1]
        event, until_ns, after = (
            int(columns[rank][name][anchor]) for name in ("event", "start_ns", "after")
        )
        node, anchor = 2 * event, after


def _rank_segment(
    rank: int, clock: Clock, start_ns: int, end_ns: int, end_node: int, *, collective: int = -1
) -> RankSegment:
    """A rank segment between two times of a rank's clock."""
    common_start, common_end = clock.to_common([start_ns, end_ns]).tolist()
    return RankSegment(rank, common_start, common_end, start_ns, end_ns, end_node, collective)
