"""MergedReplay: the replays of all ranks as one, joined at matched collectives.

::

    start of member i  --0-->  all are there  --transfer-->  what waits for member i

Each matched collective has a node of its own: the last arrival of those that others wait for. Nodes
are numbered rank by rank, so that a rank's changes stay an array of its own; one topological order
goes through all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from htagraph.arrays.binding import bind, topological_order, walk_back
from htagraph.arrays.codes import gather
from htagraph.arrays.delays import new_delays
from htagraph.arrays.retime import DROPPED, retime
from htagraph.job.timeline import Timeline
from htagraph.model.arrays import I32, I64, Bools, brief
from htagraph.replay.collective_members import Members, transfers
from htagraph.replay.draft import Draft
from htagraph.replay.replay import Replay

_NEVER = np.iinfo(np.int64).min


class _Joined(NamedTuple):
    """Edges of all ranks and of matched collectives, sorted by head."""

    # offsets, tail, weight, release: as `retime` takes them
    offsets: I64
    tail: I32
    weight: I64
    release: I64
    # rank, row: of shape (n_edges,). Of a rank's own edge, -1 for arrivals at collectives.
    rank: I64
    row: I64


@brief
@dataclass(frozen=True)
class MergedReplay:
    """The order of the nodes of all ranks, which changes do not touch."""

    first: Mapping[int, int]  # Number of the first node of each rank
    n_nodes: int  # Of all ranks; nodes of collectives follow
    # Of shape (n_nodes + n_collectives,). Topological: by time, then by depth. It keeps the order
    # within each rank.
    order: I32
    members: Mapping[int, Members]
    n_collectives: int

    @classmethod
    def of(cls, replays: Mapping[int, Replay], members: Mapping[int, Members]) -> Self:
        """Put the nodes of all ranks in order; replays are in common time."""
        sizes = [len(replay.node) for replay in replays.values()]
        n_nodes = sum(sizes)
        first = dict(zip(replays, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
        n = 1 + max((int(one.match.max(initial=-1)) for one in members.values()), default=-1)
        met_ns = np.zeros(n, dtype=np.int64)
        edges: list[tuple[I64, I64]] = []
        for rank, replay in replays.items():
            own = members[rank]
            met_ns[own.match] = own.met_ns
            came = np.flatnonzero(own.is_awaited)
            row, member = transfers(replay, own)
            at_once = np.flatnonzero(np.diff(replay.ts_ns) == 0)
            edges += [
                (first[rank] + replay.places[2 * own.came[came]], n_nodes + own.match[came]),
                (n_nodes + own.match[member], first[rank] + replay.head[row].astype(np.int64)),
                (first[rank] + at_once, first[rank] + at_once + 1),
            ]
        tail, head = (
            np.concatenate([np.empty(0, dtype=np.int64), *ends]).astype(np.int32)
            for ends in zip(*edges, strict=True)
        )
        times = np.concatenate([*(replay.ts_ns for replay in replays.values()), met_ns])
        order, cyclic = topological_order(tail, head, times)
        if cyclic.any():  # collectives at one instant, in another order on each rank
            unclear = np.maximum(tail[cyclic], head[cyclic]) - n_nodes
            return cls.of(replays, {r: own.without(unclear) for r, own in members.items()})
        return cls(first, n_nodes, order, members, n)

    def times_ns(self, drafts: Mapping[int, Draft]) -> dict[int, I64]:
        """When each node of each rank happens under drafts, which are in the order of the ranks."""
        times = self._times_ns(self._joined(drafts))
        return {
            rank: times[self.first[rank] : self.first[rank] + len(draft.replay.node)]
            for rank, draft in drafts.items()
        }

    def path(
        self, drafts: Mapping[int, Draft], rank: int, place: int, *, since_ns: int
    ) -> Iterator[tuple[int, I64, I64]]:
        """Yield each rank's edges on the critical path to a place of a rank, and their times.

        Rows are those of the rank's draft. The time after a wait for others is its transfer's.
        """
        joined = self._joined(drafts)
        times = self._times_ns(joined)
        head = np.repeat(np.arange(len(times), dtype=np.int32), np.diff(joined.offsets))
        kind, alike = np.zeros(len(head), dtype=np.int8), np.zeros(len(times), dtype=np.int64)
        binding = bind(joined.tail, head, kind, joined.weight, times, alike)
        last = self.first[rank] + place
        walked = walk_back(last, binding, joined.tail, times, until_ns=since_ns)
        dur_ns = times[head[walked]] - np.maximum(times[joined.tail[walked]], since_ns)
        row, of_rank = joined.row[walked], joined.rank[walked]
        for number in drafts:
            mine = np.flatnonzero(of_rank == number)
            yield number, row[mine], dur_ns[mine]

    def _times_ns(self, joined: _Joined) -> I64:
        return retime(joined.offsets, joined.tail, joined.weight, joined.release, self.order)

    def _joined(self, drafts: Mapping[int, Draft]) -> _Joined:
        """The edges of all ranks, and those to and from matched collectives, sorted by head."""
        tails, weights, counts, releases, at, joined = [], [], [], [], [], []
        came, into, n_edges = [], [], 0
        own_rows, own_ranks = [], []
        for rank, draft in drafts.items():
            replay, own, first = draft.replay, self.members[rank], self.first[rank]
            weight = draft.weight_ns
            row, member = draft.transfers
            kept = ~draft.is_out[own.event[member]] & (weight[row] != DROPPED)
            row, member = row[kept], member[kept]
            arrives = np.flatnonzero(own.is_awaited & ~draft.is_out[own.event])
            came.append(first + replay.places[2 * own.came[arrives]])
            into.append(own.match[arrives])
            at.append(n_edges + row)
            joined.append(self.n_nodes + own.match[member])
            tails.append(replay.tail + np.int32(first))
            weights.append(weight)
            own_rows.append(np.arange(len(weight)))
            own_ranks.append(np.full(len(weight), rank))
            count = np.diff(replay.offsets)
            np.add.at(count, replay.head[row], 1)
            counts.append(count)
            releases.append(draft.release_ns)
            n_edges += len(weight)
        order = np.argsort(np.concatenate(into), kind="stable")
        rows, weight = np.concatenate(at), np.concatenate(weights)
        row, of_rank = np.concatenate(own_rows), np.concatenate(own_ranks)
        counts.append(np.bincount(np.concatenate(into), minlength=self.n_collectives))
        met = np.concatenate(came)[order]
        nothing = np.full(len(order), -1)
        return _Joined(
            offsets=np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64),
            tail=np.concatenate(
                [np.insert(np.concatenate(tails), rows, np.concatenate(joined)), met]
            ).astype(np.int32),
            weight=np.concatenate([np.insert(weight, rows, weight[rows]), 0 * order]),
            release=np.concatenate([*releases, np.full(self.n_collectives, DROPPED)]),
            row=np.concatenate([np.insert(row, rows, row[rows]), nothing]),
            rank=np.concatenate([np.insert(of_rank, rows, of_rank[rows]), nothing]),
        )


def members_of(timeline: Timeline, begun_ns: Mapping[int, int]) -> dict[int, Members]:
    """The members of matched collectives, by rank: whom each meets, and how late it is.

    No rank waits in a collective that misses members, nor in one that ended, by the clocks, before
    the last one arrived. `begun_ns`: when the capture of each rank begins, in common time. A rank
    is not to blame for being late by then: its profiler started later.
    """
    roles, measured = timeline.members, timeline.collectives
    here = measured["rank"].isin(begun_ns).to_numpy(dtype=bool, copy=True)
    here &= ~measured["is_partial"].to_numpy(dtype=bool)
    roles, measured = roles[here], measured[here]
    match, rank, event, arrived, overrun = (
        measured[name].to_numpy(np.int64)
        for name in ("match", "rank", "event", "arrived_ns", "overrun_ns")
    )
    awaited, waits = (roles[name].to_numpy(dtype=bool) for name in ("is_awaited", "waits"))
    met = pd.Series(np.where(awaited, arrived, _NEVER)).groupby(match).transform("max").to_numpy()
    begun = pd.Series(begun_ns).reindex(rank).to_numpy(np.int64)
    came, left = np.empty_like(event), np.empty_like(event)
    # A transfer that was there already is no meeting: the rank may have been late before it.
    passed = (~roles["is_rendezvous"] & (measured["wait_ns"] == 0)).to_numpy(dtype=bool)
    if timeline.late_hosts:
        # Nor is a meeting of ranks that are late together.
        host = measured["rank"].map(timeline.late_hosts).fillna("")
        of_match = host.groupby(match)
        is_inside = (of_match.transform("nunique") == 1) & (host != "")
        passed = passed | is_inside.to_numpy(dtype=bool)
    for number in begun_ns:
        rows = np.flatnonzero(rank == number)
        mine = roles["collective"].iloc[rows]
        came[rows], left[rows] = _came(timeline, number, mine, passed[rows])
    median = _median_of(match, arrived)
    # A rank that waited in a collective, like the median rank, was not late before it left.
    left = np.maximum(left, left[median])
    since = np.where(left > _NEVER, left, begun)
    late = arrived - arrived[median]
    at_first = arrived - begun - (arrived - begun)[_median_of(match, arrived - begun)]
    late = np.where(left > _NEVER, late, np.minimum(late, at_first))
    late = np.where(roles["is_rendezvous"], np.maximum(late, 0), 0)
    least = np.minimum(late, np.maximum(arrived - _latest_other(match, arrived), 0))
    latency, error = timeline.fitted_latencies(match)
    found = {}
    for number in begun_ns:
        rows = np.flatnonzero(rank == number)
        rows = rows[np.argsort(arrived[rows], kind="stable")]
        seen, met_there = arrived[rows], np.flatnonzero(~passed[rows])
        begin, own, least_begin, least_own = seen.copy(), 0 * seen, seen.copy(), 0 * seen
        at, earliest = seen[met_there], np.minimum(since[rows], seen)[met_there]
        begin[met_there], own[met_there] = new_delays(at, earliest, late[rows][met_there])
        least_begin[met_there], least_own[met_there] = new_delays(
            at, earliest, least[rows][met_there]
        )
        found[number] = Members(
            rank=number,
            match=match[rows],
            event=event[rows],
            came=came[rows],
            waits=waits[rows] & (overrun[rows] == 0) & (met[rows] > _NEVER),
            is_awaited=awaited[rows],
            arrived_ns=arrived[rows],
            met_ns=met[rows],
            since_ns=begin,
            late_ns=own,
            least_since_ns=least_begin,
            least_late_ns=least_own,
            latency_ns=latency[rows],
            latency_error=error[rows],
        )
    return found


def _came(
    timeline: Timeline, rank: int, collective: pd.Series[int], passed: Bools
) -> tuple[I64, I64]:
    """The event with which a rank arrived at collectives, and when it had left the one before.

    That is the collective that its arrival goes back to, if there is one, without those that it
    passed.
    """
    table = timeline.graphs.summaries[rank].collectives
    row = np.searchsorted(table["collective"], collective)
    arrival = table["arrival"].to_numpy(np.int64)[row]
    row = np.where(arrival >= 0, arrival, row)
    ends = timeline.clocks[rank].to_common(table["end_ns"])
    all_after, is_passed = table["after"].to_numpy(np.int64), np.zeros(len(table), dtype=bool)
    after, is_passed[np.searchsorted(table["collective"], collective)] = all_after[row], passed
    while (at := np.flatnonzero(gather(is_passed, after, default=False))).size:
        after[at] = all_after[after[at]]
    return table["event"].to_numpy(np.int64)[row], gather(ends, after, _NEVER)


def _latest_other(match: I64, arrived: I64) -> I64:
    """When the last of the others arrived at the collective of each row; its own if alone."""
    order = np.lexsort((arrived, match))
    ends = np.flatnonzero(np.diff(match[order], append=-1))
    sizes = np.diff(ends, prepend=-1)
    last, runner_up = order[ends], order[np.where(sizes > 1, ends - 1, ends)]
    row = np.empty(len(match), dtype=np.int64)
    row[order] = np.repeat(last, sizes)
    row[last] = runner_up
    return arrived[row]


def _median_of(match: I64, values: I64) -> I64:
    """The row of the (lower) median value in the collective of each row."""
    order = np.lexsort((values, match))
    begins = np.flatnonzero(np.diff(match[order], prepend=-1))
    sizes = np.diff(begins, append=len(order))
    median = np.empty(len(match), dtype=np.int64)
    median[order] = np.repeat(order[begins + (sizes - 1) // 2], sizes)
    return median
