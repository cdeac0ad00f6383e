"""Replay: a graph as a simulation of its run.

Every node happens as soon as all its edges allow. With the recorded weights, that reproduces every
recorded time; with others, it predicts the changed run.

Waits that cost no time in the recorded run are included: they may in a faster one. A call that
waits for the device returns at once if the device is idle, and a launch if its queue has room. A
faster host would wait there. The edges for these waits have slack in the recorded run, so they do
not change its critical path. Such a call then takes what those of its name take that do not wait.

A rank of a job has members of matched collectives::

    start of a member ---transfer---> its end
                |                       ^
                '---> all are there ----'
                           transfer

Data moves once all ranks have arrived. In a changed run, another rank may be the last.

The time of a node that no edge explains, its residual, is part of an edge's weight. A trace does
not tell which edge that is: see `Assumption`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import gather, marked, ranges
from htagraph.arrays.matching import group_starts, last_before, last_of_groups
from htagraph.arrays.removals import retime_without
from htagraph.arrays.retime import DROPPED, NO_DEADLINE, latest_times, residuals
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.arrays import F64, I8, I32, I64, Bools, brief
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.rules import Rule
from htagraph.model.window import Window


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

    By itself it runs too early where the rank waited: see `htagraph.job.rehearsal`.
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


Found = TypeVar("Found")


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


_QUEUE_HOLDS = 1_022
"""Launches that a queue holds if the trace never filled it (measured: about 1,022).
test_host_changes launches more."""
_MOST_STREAMS = 32
"""Streams whose work a call is found to wait for; of more, those on which work was enqueued last. A
limit of time: hundreds of calls and streams have a hundred thousand pairs, and real traces have a
dozen streams. test_host_changes draws more."""
_INFERRED_WAITS = (
    Rule.ENDED_RIGHT_BEFORE,
    Rule.RECURRING_IN_REPLAYS,
    Rule.RECORD_AND_WAIT_ORDER,
)
_MOSTLY = 0.5
"""Share of a kernel's instances with an inferred wait from which the others wait, too. Chosen:
test_host_changes draws 30% and 70%."""
_OF_DEVICE = (CallMeaning.DEVICE_SYNC, CallMeaning.FREE)


def latent_waits(dag: Dag) -> EdgeTable:
    """Latent waits of calls, of launches for room in the queue, and of streams for each other.

    Waits that the graph has already are left out; all edges run forward in time.
    """
    work, called_ns = _launched(dag)
    if not len(work):
        return EdgeTable()
    found = EdgeTable.concat(
        [_of_calls(dag, work, called_ns), *_of_queues(dag, work), *_of_streams(dag, work)]
    )
    times = dag.events.node_ts_ns
    return found.take(times[found.tail] <= times[found.head])


def _launched(dag: Dag) -> tuple[I64, I64]:
    """Device work and the start of its recorded launch, sorted by that.

    Work of one launch is in the order in which it ran, not that of the file.
    """
    events = dag.events
    work = np.flatnonzero(events.is_device & (dag.launch >= 0))
    called_ns = events.ts_ns[dag.launch[work]]
    order = np.lexsort((events.tiebreak[work], events.ts_ns[work], called_ns))
    return work[order], called_ns[order]


def _of_calls(dag: Dag, work: I64, called_ns: I64) -> EdgeTable:
    """Edges from the last work enqueued on each stream to the end of a waiting call.

    A wait for an unknown stream is for the one on which its thread enqueued last.
    """
    events, meanings = dag.events, call_meanings(dag.events)
    known = marked(dag.edges.head[dag.edges.kind == EdgeKind.SYNC] >> 1, len(events))
    every = np.flatnonzero(np.isin(meanings, _OF_DEVICE))
    one = np.flatnonzero((meanings == CallMeaning.STREAM_SYNC) & ~known)
    if not (len(every) or len(one)):
        return EdgeTable()
    device, stream = (
        pd.factorize(column[work], sort=True)[0] for column in (events.device, events.stream)
    )
    stream = pd.factorize(device * (stream.max() + 1) + stream, sort=True)[0]
    every = every[np.argsort(events.ts_ns[every], kind="stable")]
    until = np.searchsorted(called_ns, events.ts_ns[every], side="left")
    last = last_of_groups(stream, until, _MOST_STREAMS)
    of_every, place = np.nonzero(last >= 0)
    lane = events.lane[dag.launch[work]].astype(np.int64)
    order = np.lexsort((called_ns, lane))
    last_there = last_before(lane[order], called_ns[order], events.lane[one], events.ts_ns[one])
    wanted = gather(stream[order], last_there)
    by_stream = np.argsort(stream, kind="stable")
    at = last_before(stream[by_stream], called_ns[by_stream], wanted, events.ts_ns[one])
    calls = np.concatenate([every[of_every], one[at >= 0]])
    awaited = np.concatenate([last[of_every, place], by_stream[at[at >= 0]]])
    order = np.argsort(stream[awaited], kind="stable")
    calls, awaited = calls[order], work[awaited[order]]
    # A call that need not wait only takes the time to return.
    left_ns = np.maximum(events.end_ns[calls] - events.end_ns[awaited], 0)
    return EdgeTable.of(
        Rule.CALL_SEMANTICS,
        2 * awaited + 1,
        2 * calls + 1,
        lag_ns=np.where(known[calls], 0, np.minimum(events.dur_ns[calls], left_ns)),
        event=calls,
    )


def _of_queues(dag: Dag, work: I64) -> Iterator[EdgeTable]:
    """Yield edges from the start of work to the launch that takes its place in a full queue.

    If the trace filled the queue, it holds as many as were ever outstanding.
    """
    events, edges, tiebreak = dag.events, dag.edges, dag.events.tiebreak
    was_full = bool((edges.rule == Rule.QUEUE_FULL).any())
    by_device = work[np.argsort(events.device[work], kind="stable")]
    bounds = np.flatnonzero(group_starts(events.device[by_device]))
    for mine in np.split(by_device, bounds)[1:]:
        calls, n_work = np.unique(dag.launch[mine], return_counts=True)
        calls = calls[n_work == 1]  # a graph launch takes one place for all its kernels
        single = mine[np.isin(dag.launch[mine], calls)]
        calls = calls[np.lexsort((tiebreak[calls], events.ts_ns[calls]))]
        started = single[np.lexsort((tiebreak[single], events.ts_ns[single]))]
        outstanding = np.arange(len(calls)) - np.searchsorted(
            events.ts_ns[started], events.end_ns[calls], side="right"
        )
        most = int(outstanding.max(initial=0)) + 1
        holds = most if was_full else max(most, _QUEUE_HOLDS)
        if len(calls) > holds:
            head = calls[holds:]
            tail = started[: len(head)]
            yield EdgeTable.of(Rule.QUEUE_FULL, 2 * tail, 2 * head + 1, event=head)


def _of_streams(dag: Dag, work: I64) -> Iterator[EdgeTable]:
    """Yield edges between streams for kernels whose other instances have an inferred wait.

    Inference finds only waits that cost time. If most instances of a kernel wait for a kernel on
    another stream, the others wait, too: for the last one of that name enqueued before.
    """
    events, edges = dag.events, dag.edges
    found = np.isin(edges.rule, _INFERRED_WAITS) & (edges.tail & 1 == 1)
    rows = np.flatnonzero(found & events.is_device[edges.head >> 1])
    if not len(rows):
        return
    source, target = (side[rows].astype(np.int64) >> 1 for side in (edges.tail, edges.head))
    keys = ("name", "device", "stream")
    pairs = np.stack([getattr(events, key)[side] for side in (source, target) for key in keys])
    pairs, n_found = np.unique(pairs, axis=1, return_counts=True)
    waits = marked(
        edges.head[(edges.kind == EdgeKind.SYNC) & (edges.head & 1 == 0)] >> 1, len(events)
    )
    launched_ns = np.where(dag.launch >= 0, events.ts_ns[dag.launch], events.ts_ns)
    instances = {
        tuple(int(getattr(events, key)[rows[0]]) for key in keys): rows
        for rows in _alike(np.stack([getattr(events, key)[work] for key in keys]), work)
    }
    for pair, n_waits in zip(pairs.T.tolist(), n_found.tolist(), strict=True):
        sources, targets = (instances.get(tuple(key), work[:0]) for key in (pair[:3], pair[3:]))
        others = targets[~waits[targets]]
        if n_waits < _MOSTLY * len(targets) or not len(others) or not len(sources):
            continue
        last = np.searchsorted(launched_ns[sources], launched_ns[others], side="left") - 1
        others, last = others[last >= 0], last[last >= 0]
        before = sources[last]
        ended = events.end_ns[before] <= events.ts_ns[others]
        before, others = before[ended], others[ended]
        yield EdgeTable.of(Rule.RECURRING_IN_REPLAYS, 2 * before + 1, 2 * others, event=others)


def _alike(keys: npt.NDArray[np.integer], rows: I64) -> list[I64]:
    """Rows grouped by their keys, shape (n_keys, n)."""
    order = np.lexsort(keys[::-1])
    differs = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
    return np.split(rows[order], np.flatnonzero(differs) + 1)


def held_calls(dag: Dag, edges: EdgeTable) -> Bools:
    """Whether each edge spans a runtime call that waited."""
    call = edges.event.astype(np.int64)
    held = (edges.rule == Rule.BLOCKING_CALL) & (call >= 0)
    held &= (edges.tail == 2 * call) & (edges.head == 2 * call + 1)
    runtime: Bools = held & (dag.events.kind[call] == EventKind.RUNTIME)
    return runtime


def own_times(dag: Dag, calls: I32, share: float) -> I64:
    """Quantile of the times of calls of the same name that did not wait, at most the call's own.

    If all of a name waited, calls that enqueue work take the time of a launch, others none.
    """
    events, edges = dag.events, dag.edges
    if not len(calls):
        return np.empty(0, dtype=np.int64)
    is_free = events.kind == EventKind.RUNTIME
    waited = edges.event[edges.rule == Rule.BLOCKING_CALL]
    is_free[waited[waited >= 0]] = False
    free = np.flatnonzero(is_free & np.isin(events.name, events.name[calls]))
    by_name = pd.Series(events.dur_ns[free]).groupby(events.name[free])
    usual = by_name.quantile(share, interpolation="lower")
    enqueues = marked(dag.launch[dag.launch >= 0], len(events))
    launches = events.dur_ns[enqueues & is_free]
    of_launches = float(np.quantile(launches, 0.5, method="lower")) if len(launches) else 0.0
    own = usual.reindex(events.name[calls]).to_numpy(np.float64)
    own = np.where(np.isnan(own), np.where(enqueues[calls], of_launches, 0.0), own)
    return np.minimum(own.astype(np.int64), events.dur_ns[calls])


_WAITING = (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC, EdgeKind.QUEUE)


class Removal(NamedTuple):
    """Groups of edges, and what each edge weighs without its group: many removals at once.

    Each group is a column of one pass over the graph (`retime_without`). The result is that of
    `remove` for the events of one group, but not for what is nested in them or launched from them.
    """

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
        entered[enters & ~starts & np.isin(kind, _WAITING)] = DROPPED
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
