"""Replay: a graph as a simulation of its run.

Every node happens as soon as all its edges allow. With the recorded weights, that reproduces every
recorded time; with others, it predicts the changed run. Waits that cost no time in the recorded run
are included (`htagraph.replay.latent_waits`).

The time of a node that no edge explains, its residual, is part of an edge's weight. A trace does
not tell which edge that is: see `Assumption`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from htagraph.arrays.codes import ranges
from htagraph.arrays.retime import NO_DEADLINE, latest_times, residuals
from htagraph.model.arrays import I8, I32, I64, Bools, brief
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind
from htagraph.model.rules import Rule
from htagraph.model.window import Window
from htagraph.replay.latent_waits import held_calls, latent_waits, own_times

Found = TypeVar("Found")


class Bounds(NamedTuple):
    """The work done by the start and by the end of a window."""

    # before, until: positions of nodes of work
    before: I64
    until: I64
    # lead_ns, tail_ns: how long after the last of them the window starts and ends
    lead_ns: int
    tail_ns: int


@brief
@dataclass(frozen=True)
class Replay:
    """Nodes in a topological order, and the edges between them with their weights."""

    node: I64  # Node of the graph at each position
    ts_ns: I64  # Recorded time
    release_ns: I64  # Earliest possible time: the recorded one if no edge leads to it
    is_work: Bools  # Only work can begin or end a window
    offsets: I64  # Of shape (n + 1,)
    # tail, head: of shape (m,). Positions; sorted by head.
    tail: I32
    head: I32
    # lag_ns, extra_ns: of shape (m,). Least time from tail to head, and the residual that belongs
    # to the edge.
    lag_ns: I64
    extra_ns: I64
    # kind, rule: of shape (m,)
    kind: I8
    rule: I8
    event: I32  # Of shape (m,). As in the edge table.
    row: I64  # Of shape (m,). Row of the edge table, -1 for others.
    places: I64  # Of shape (2 * n_events + 1,). Position of each node of the graph, -1 for others.
    kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """What several changes ask of the recorded run, by name: found once, for all lags."""

    def once(self, name: str, find: Callable[[], Found]) -> Found:
        """What is found of nodes and edges, the same for all lags."""
        if name not in self.kept:
            self.kept[name] = find()
        found: Found = self.kept[name]
        return found

    @property
    def weight_ns(self) -> I64:
        """Time from the tail of each edge to its head."""
        return self.lag_ns + self.extra_ns

    @property
    def first_ns(self) -> int:
        """Time of the first node: nothing can happen before."""
        return int(self.ts_ns[0]) if len(self.ts_ns) else 0

    @property
    def edges(self) -> EdgeTable:
        """The edges as rows of an edge table, in their order."""
        return self.edges_at(slice(None))

    def edges_at(self, rows: slice | npt.NDArray[np.integer]) -> EdgeTable:
        """Some of the edges as rows of an edge table."""
        tail, head = (self.node[end[rows]].astype(np.int32) for end in (self.tail, self.head))
        return EdgeTable(
            tail, head, self.kind[rows], self.lag_ns[rows], self.event[rows], self.rule[rows]
        )

    def with_lags(self, lag_ns: I64) -> Self:
        """The same run by other lags: each residual belongs to the edges that arrive last."""
        extra_ns = residuals(
            self.offsets, self.tail, lag_ns, self.release_ns, self.ts_ns, only_bound=True
        )
        return replace(self, lag_ns=lag_ns, extra_ns=extra_ns)

    def rows_into(self, nodes: I64) -> I64:
        """The edges that lead to some nodes of the graph."""
        return self.rows_at(self.places[nodes])

    def rows_at(self, places: I64) -> I64:
        """The edges that lead to some positions, of which -1 is none."""
        return _within(self.offsets, places[places >= 0])

    def rows_owned(self, chosen: Bools) -> I64:
        """The edges that are the own time of chosen events."""
        order, first = self.once(
            "by owner",
            lambda: (
                np.argsort(self.owner, kind="stable"),
                np.cumsum(np.bincount(self.owner + 1, minlength=len(self.places) // 2 + 1)),
            ),
        )
        return order[_within(first, np.flatnonzero(chosen))]

    @property
    def owner(self) -> I32:
        """Event whose own time each edge is, -1 for none."""
        return self.once("owner", self._owner)

    def _owner(self) -> I32:
        runs = np.isin(self.kind, (EdgeKind.SPAN, EdgeKind.THREAD, EdgeKind.CONTENTION))
        runs |= self.rule == Rule.STREAM_OVERLAP
        runs |= (self.node[self.tail] == 2 * self.event.astype(np.int64)) & np.isin(
            self.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC, EdgeKind.STREAM)
        )
        return np.where(runs, self.event, -1).astype(np.int32)

    def bounds(self, window: Window) -> Bounds:
        """The work done by the start and by the end of a window."""
        done, gaps = [], []
        for at_ns in (window.start_ns, window.end_ns):
            last = int(np.searchsorted(self.ts_ns, at_ns, side="right"))
            nodes = np.flatnonzero(self.is_work[:last])
            done.append(nodes)
            gaps.append(at_ns - int(self.ts_ns[nodes[-1]]) if len(nodes) else 0)
        return Bounds(done[0], done[1], gaps[0], gaps[1])

    def window_in(self, times_ns: I64, window: Window) -> Window:
        """A window of the run at other times: until all work is done that was done by its end.

        Windows that touch where work begins or ends, as steps do, still touch.
        """
        bounds = self.bounds(window)
        start_ns, end_ns, anchor = window.start_ns, window.end_ns, -1
        if len(bounds.before):
            start_ns = int(times_ns[bounds.before].max()) + bounds.lead_ns
        if len(bounds.until):
            last = bounds.until[
                np.flatnonzero(times_ns[bounds.until] == times_ns[bounds.until].max())
            ]
            end_ns = int(times_ns[last[-1]]) + bounds.tail_ns
            anchor = int(self.node[last[-1]])
        return replace(window, start_ns=start_ns, end_ns=max(end_ns, start_ns), anchor=anchor)

    def latest_ns(self, done: I64) -> I64:
        """Latest time of each position that does not delay some positions.

        More than half of `NO_DEADLINE` for what these do not depend on.
        """
        deadline = np.full(len(self.ts_ns), NO_DEADLINE)
        if len(done):
            deadline[done] = self.ts_ns[done].max()
        return latest_times(self.offsets, self.tail, self.weight_ns, deadline)

    def float_ns(self, window: Window) -> I64:
        """Total float: by how much each position may be later without delaying the window's end.

        More than half of `NO_DEADLINE` for what the end does not depend on.
        """
        return self.latest_ns(self.bounds(window).until) - self.ts_ns

    def free_float_ns(self) -> I64:
        """Free float: by how much each position may be later without delaying any other.

        `NO_DEADLINE` if nothing follows.
        """
        found = np.full(len(self.ts_ns), NO_DEADLINE)
        left_ns = self.ts_ns[self.head] - self.ts_ns[self.tail] - self.weight_ns
        np.minimum.at(found, self.tail, left_ns)
        return found

    def with_edges(self, more: EdgeTable, lag_ns: I64, extra_ns: I64) -> tuple[Self, I64, I64]:
        """The replay with more edges, except those backward in time, and weights in that order."""
        place = self.places
        tail, head = place[more.tail], place[more.head]
        more = more.take((tail >= 0) & (tail < head))
        heads = np.concatenate([self.head, place[more.head]])
        order = np.argsort(heads, kind="stable")
        lag = np.concatenate([lag_ns, more.lag_ns])[order]
        extra = np.concatenate([extra_ns, np.zeros(len(more), dtype=np.int64)])[order]
        wider = replace(
            self,
            offsets=offsets_of(heads, len(self.node)),
            tail=np.concatenate([self.tail, place[more.tail].astype(np.int32)])[order],
            head=heads[order].astype(np.int32),
            lag_ns=lag,
            extra_ns=extra,
            kind=np.concatenate([self.kind, more.kind])[order],
            rule=np.concatenate([self.rule, more.rule])[order],
            event=np.concatenate([self.event, more.event])[order],
            row=np.concatenate([self.row, np.full(len(more), -1, dtype=np.int64)])[order],
            kept={},
        )
        return wider, lag, extra


def _within(first: I64, at: I64) -> I64:
    """The rows of some groups, of rows in which each group begins at its first."""
    return ranges(first[at], first[at + 1] - first[at])


def offsets_of(head: npt.NDArray[np.integer], n_nodes: int) -> I64:
    """Where the edges into each position begin, of edges sorted by head."""
    counts = np.bincount(head, minlength=n_nodes)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def replay_of(dag: Dag) -> Replay:
    """Replay of a graph: with its own weights it gives back every time, exactly.

    Each residual belongs to the edges that arrived last; see `htagraph.replay.assumptions` for the
    other readings. About 150 ns an edge.
    """
    edges = EdgeTable.concat([dag.edges, latent_waits(dag)])
    place = np.full(2 * len(dag.events) + 1, -1, dtype=np.int64)
    place[dag.order] = np.arange(len(dag.order))
    tail, head = place[edges.tail], place[edges.head]
    forward = np.flatnonzero(tail < head)
    order = forward[np.argsort(head[forward], kind="stable")]
    node = dag.order.astype(np.int64)
    ts_ns = dag.events.node_ts_ns[node]
    offsets = offsets_of(head[order], len(node))
    release = np.full(len(node), ts_ns[0] if len(ts_ns) else 0, dtype=np.int64)
    rooted = offsets[1:] == offsets[:-1]
    release[rooted] = ts_ns[rooted]
    columns = edges.take(order)
    found = Replay(
        node=node,
        ts_ns=ts_ns,
        release_ns=release,
        is_work=dag.is_work[node >> 1],
        offsets=offsets,
        tail=tail[order].astype(np.int32),
        head=head[order].astype(np.int32),
        lag_ns=columns.lag_ns,
        extra_ns=np.zeros(len(order), dtype=np.int64),
        kind=columns.kind,
        rule=columns.rule,
        event=columns.event,
        row=np.where(order < len(dag.edges), order, -1),
        places=place,
    )
    held, lag = held_calls(dag, columns), found.lag_ns.copy()
    lag[held] = own_times(dag, found.event[held], 0.5)
    return _with_calls(dag, found.with_lags(lag))


def _with_calls(dag: Dag, replay: Replay) -> Replay:
    """The same weights, but a launch that came late has its call's time as its lag.

    Work that starts after a slow call could not start earlier.
    """
    late = np.flatnonzero((replay.kind == EdgeKind.LAUNCH) & (replay.extra_ns > 0))
    call = replay.node[replay.tail[late]] >> 1
    weight = replay.weight_ns[late]
    lag, extra = replay.lag_ns.copy(), replay.extra_ns.copy()
    lag[late] = np.maximum(lag[late], np.minimum(dag.events.dur_ns[call], weight))
    extra[late] = weight - lag[late]
    return replace(replay, lag_ns=lag, extra_ns=extra)
