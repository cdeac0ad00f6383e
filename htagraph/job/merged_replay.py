"""MergedReplay: the replays of all ranks as one, joined where collectives were matched.

::

    start of member i  --0-->  all are there  --transfer-->  what waits for member i

Each matched collective has a node of its own. It happens when the last of those whom others wait
for has come, whoever that is. Nodes are numbered rank by rank, so that what changes on a rank stays
an array of its own; one topological order goes through all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.binding import topological_order
from htagraph.algorithms.retime import DROPPED, retime_in_order
from htagraph.replay.collective_members import Members, transfers
from htagraph.replay.draft import Draft
from htagraph.replay.replay import Replay

__all__ = ["MergedReplay"]

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MergedReplay:
    """Where the nodes of all ranks stand among each other; changes do not move them.

    Parameters
    ----------
    first : mapping of int to int
        Number of the first node of each rank.
    n_nodes : int
        Of all ranks; collectives come after these.
    order : ndarray of shape (n_nodes + n_collectives,), dtype=int32
        Topological: by time, then by depth. It keeps the order within each rank.
    """

    first: Mapping[int, int]
    n_nodes: int
    order: I32
    members: Mapping[int, Members]
    n_collectives: int

    @classmethod
    def of(cls, replays: Mapping[int, Replay], members: Mapping[int, Members]) -> Self:
        """Put the nodes of all ranks in order.

        Parameters
        ----------
        replays : mapping of int to Replay
            In common time.
        members : mapping of int to Members
            Their collectives are numbered from 0.
        """
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
        order, cyclic = topological_order(tail, head, times, np.arange(len(times), dtype=np.int32))
        if cyclic.any():  # at one instant, and ranks do not agree on what came first
            unclear = np.maximum(tail[cyclic], head[cyclic]) - n_nodes
            return cls.of(replays, {r: own.without(unclear) for r, own in members.items()})
        return cls(first, n_nodes, order, members, n)

    def times_ns(self, drafts: Mapping[int, Draft]) -> dict[int, I64]:
        """When each node of each rank happens, if changes were made to all or none of them.

        Parameters
        ----------
        drafts : mapping of int to Draft
            Of the ranks, in their order.
        """
        tails, weights, counts, releases, at, joined = [], [], [], [], [], []
        came, into, n_edges = [], [], 0
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
            count = np.diff(replay.offsets)
            np.add.at(count, replay.head[row], 1)
            counts.append(count)
            releases.append(draft.release_ns)
            n_edges += len(weight)
        order = np.argsort(np.concatenate(into), kind="stable")
        rows, weight = np.concatenate(at), np.concatenate(weights)
        counts.append(np.bincount(np.concatenate(into), minlength=self.n_collectives))
        tail = np.concatenate(
            [
                np.insert(np.concatenate(tails), rows, np.concatenate(joined)),
                np.concatenate(came)[order],
            ]
        )
        weight = np.concatenate(
            [np.insert(weight, rows, weight[rows]), np.zeros(len(order), dtype=np.int64)]
        )
        release = np.concatenate([*releases, np.full(self.n_collectives, DROPPED)])
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        graph = (offsets.astype(np.int64), tail.astype(np.int32), weight, release)
        times = retime_in_order(self.order, graph)
        return {
            rank: times[self.first[rank] : self.first[rank] + len(draft.replay.node)]
            for rank, draft in drafts.items()
        }
