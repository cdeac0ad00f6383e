"""Many removals at once: how long a window would be without each of many groups of events.

Each group is a column of one pass over the graph (`retime_without`). The result is that of `remove`
for the events of one group, but not for what is nested in them or launched from them.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from htagraph.arrays.codes import gather
from htagraph.arrays.removals import retime_without
from htagraph.arrays.retime import DROPPED
from htagraph.model.arrays import I32, I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind
from htagraph.model.window import Window
from htagraph.replay.replay import Replay

_WAITS = (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC, EdgeKind.QUEUE)


class Removal(NamedTuple):
    """Groups of edges, and what each edge weighs without its group."""

    replay: Replay
    group: I32  # Of shape (m, 2). Up to two different groups of each edge; -1 for none.
    without_ns: I64  # Of shape (m, 2). At most the weight of the edge.
    n_groups: int

    @classmethod
    def of_events(cls, dag: Dag, replay: Replay, group: I64, n_groups: int) -> Self:
        """Removal of groups of events (-1 for none) as by `Draft.take_out`."""
        weight, kind, edges = replay.weight_ns, replay.kind, replay.edges
        head = edges.head >> 1
        owner = gather(group, replay.owner)
        owned = np.where(kind == EdgeKind.CONTENTION, DROPPED, 0)
        enters = edges.tail >> 1 != head
        starts = enters & (edges.head & 1 == 0) & dag.events.is_device[head]
        entered = np.where(kind == EdgeKind.THREAD, replay.lag_ns, weight)
        entered[starts & (kind != EdgeKind.SOURCE)] = 0
        entered[starts & np.isin(kind, (EdgeKind.LAUNCH, EdgeKind.CONTENTION))] = DROPPED
        entered[enters & ~starts & np.isin(kind, _WAITS)] = DROPPED
        groups = np.stack([owner, group[head]], axis=1)
        without = np.stack([owned, entered], axis=1)
        both = groups[:, 0] == groups[:, 1]
        without[both, 0] = without[both].min(axis=1)
        groups[both, 1] = -1
        return cls.of_edges(replay, groups, without, n_groups)

    @classmethod
    def of_edges(cls, replay: Replay, group: I64, without_ns: I64, n_groups: int) -> Self:
        """Removal of up to two groups of each edge, without groups that do not change it."""
        idle = without_ns >= replay.weight_ns[:, None]
        return cls(replay, np.where(idle, -1, group).astype(np.int32), without_ns, n_groups)

    def costs_ns(self, window: Window) -> I64:
        """By how much shorter a window would be without each group, as by `Rehearsal.dur_ns`.

        The start and the end of the window move with the work that was done by then.
        """
        replay, found = self.replay, np.zeros(self.n_groups, dtype=np.int64)
        bounds = replay.bounds(window)
        if not len(bounds.until):
            return found
        # Weights only decrease, so nothing happens later. Each bound of the window is held in place
        # by a chain of edges without float, so only groups with such an edge can move it.
        matters = np.zeros(self.n_groups, dtype=bool)
        for done in (bounds.before, bounds.until):
            latest = replay.latest_ns(done)
            tight = replay.ts_ns[replay.tail] + replay.weight_ns == latest[replay.head]
            some = self.group[tight]
            matters[some[some >= 0]] = True
        asked = np.flatnonzero(matters)
        number = np.full(self.n_groups, -1, dtype=np.int32)
        number[asked] = np.arange(len(asked))
        n_nodes = int(bounds.until.max()) + 1
        m = int(replay.offsets[n_nodes])
        graph = (
            replay.offsets[: n_nodes + 1],
            replay.tail[:m],
            replay.weight_ns[:m],
            replay.release_ns[:n_nodes],
        )
        group = gather(number, self.group[:m].reshape(-1)).reshape(-1, 2)
        ends = [bounds.before, bounds.until]
        last = retime_without(graph, self.without_ns[:m], group, len(asked), ends)
        start_ns = last[:, 0] + bounds.lead_ns if len(bounds.before) else window.start_ns
        dur_ns = np.maximum(last[:, 1] + bounds.tail_ns - start_ns, 0)
        found[asked] = window.dur_ns - dur_ns
        return found
