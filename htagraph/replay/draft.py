"""Draft: a replay that changes modify; and groups of events to change, defined for any trace.

Python frames are not nodes of the graph; a share of an edge is theirs if it overlaps them. The
place of untraced code, which no operator covers, is what runs before or after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather, marked
from htagraph.arrays.intervals import Cover, union
from htagraph.arrays.retime import DROPPED
from htagraph.errors import QueryError
from htagraph.explain.topics import about
from htagraph.lookup.attribution import around, gap_places, innermost, op_names
from htagraph.lookup.collectives import given_ranges, host_ranges
from htagraph.lookup.queues import READS
from htagraph.lookup.selecting import name_mask, replayed_in, under_mask
from htagraph.model.api_calls import ALLOCATION
from htagraph.model.arrays import F64, I64, Bools, Texts
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import Cause, EdgeKind, EventKind, KernelClass
from htagraph.model.rules import Rule
from htagraph.model.symbols import SymbolTable
from htagraph.replay.assumptions import Assumption, Reading
from htagraph.replay.replay import Members, Replay, transfers


@dataclass(frozen=True)
class Code:
    """Untraced code, by place."""

    place: str | re.Pattern[str]

    def __repr__(self) -> str:
        return f"code({getattr(self.place, 'pattern', self.place)!r})"


def code(place: str | re.Pattern[str]) -> Code:
    """Untraced code by the place that reports print, to scale or remove; operators stay.

    If stacks were recorded, the name of a frame is all of a function instead, operators included:
    ``remove("train.py(4): hook")``.

    Parameters
    ----------
    place : str or re.Pattern
        A glob or regex of what runs before or after it (``"after Optimizer.step#*"``).

    Returns
    -------
    Code

    Examples
    --------
    >>> import htagraph as hg
    >>> print(hg.remove(code("after Optimizer.step#*")))
    remove(code('after Optimizer.step#*'))
    """
    return Code(place)


class Frames:
    """The time in which some Python frames (rows of the event table) run on their threads."""

    def __init__(self, dag: Dag, rows: I64) -> None:
        events = dag.events
        self._dag, self._rows = dag, rows
        runs = union(events.lane[rows].astype(np.int64), events.ts_ns[rows], events.end_ns[rows])
        self._covers = {
            lane: Cover(runs.start[runs.group == lane], runs.end[runs.group == lane])
            for lane in np.unique(runs.group).tolist()
        }

    def within(self) -> Bools:
        """Whether each event is a host event within the frames of its thread."""
        events = self._dag.events
        inside = np.zeros(len(events), dtype=bool)
        for lane, cover in self._covers.items():
            mine = np.flatnonzero((events.lane == lane) & events.is_host)
            start, end = events.ts_ns[mine], events.end_ns[mine]
            # An event without length counts as one nanosecond long.
            until = np.maximum(end, start + 1)
            inside[mine] = cover.within(start, until) == until - start
        return inside

    def share(self, replay: Replay) -> F64:
        """Share of each thread edge within the frames, 0 for other edges."""
        found = np.zeros(len(replay.head), dtype=np.float64)
        for rows, lane in self._edges(replay):
            start, end = replay.ts_ns[replay.tail[rows]], replay.ts_ns[replay.head[rows]]
            found[rows] = self._covers[lane].within(start, end) / np.maximum(end - start, 1)
        return found

    def waited_in(self, replay: Replay) -> Bools:
        """Whether each edge is a gap's wait for something that ended while the frames ran."""
        found = np.zeros(len(replay.head), dtype=bool)
        hidden = np.flatnonzero((replay.kind == EdgeKind.HIDDEN_SYNC) & (replay.row >= 0))
        lane = self._dag.events.lane[replay.node[replay.head[hidden]] >> 1]
        for number, cover in self._covers.items():
            rows = hidden[lane == number]
            ended = replay.ts_ns[replay.tail[rows]]
            found[rows] = cover.free_from(ended) > ended
        return found

    def ends_in(self, replay: Replay) -> I64:
        """How many of the frames end in each thread edge."""
        found, events = np.zeros(len(replay.head), dtype=np.int64), self._dag.events
        for rows, lane in self._edges(replay):
            ends = np.sort(events.end_ns[self._rows[events.lane[self._rows] == lane]])
            until, since = (replay.ts_ns[side[rows]] for side in (replay.head, replay.tail))
            found[rows] = np.searchsorted(ends, until) - np.searchsorted(ends, since)
        return found

    def _edges(self, replay: Replay) -> list[tuple[I64, int]]:
        """Edges of each thread that has frames, with its lane."""
        threads = np.flatnonzero(replay.kind == EdgeKind.THREAD)
        lane = self._dag.events.lane[replay.node[replay.head[threads]] >> 1]
        return [(threads[lane == number], number) for number in self._covers]


def share_of_code(dag: Dag, replay: Replay, chosen: Code) -> F64:
    """Share of each edge that runs the chosen code."""
    edge, dur_ns, number, places = replay.once("code", partial(_pieces, dag, replay))
    fits = SymbolTable(tuple(places.tolist())).named(chosen.place) & (places != "")
    if not fits.any():
        times = np.bincount(number, weights=dur_ns, minlength=len(places))
        longest = [repr(places[at]) for at in np.argsort(-times, kind="stable")[:4] if places[at]]
        hint = f"try {', '.join(longest)}." if longest else "no code runs between operators."
        raise QueryError(f"no untraced code matches {chosen!r}.", hint=hint)
    mine = fits[number]
    taken = np.bincount(edge[mine], weights=dur_ns[mine], minlength=len(replay.head))
    elapsed = replay.ts_ns[replay.head] - replay.ts_ns[replay.tail]
    share: F64 = taken / np.maximum(elapsed, 1)
    return share


def _pieces(dag: Dag, replay: Replay) -> tuple[I64, I64, I64, Texts]:
    """Edge, length and number of the place of each piece of untraced code; and the places."""
    events = dag.events
    until, since = (replay.ts_ns[side] for side in (replay.head, replay.tail))
    edges = np.flatnonzero((replay.rule == Rule.PROGRAM_ORDER) & (until > since))
    event = replay.event[edges].astype(np.int64)
    is_between = innermost(dag, event, (EventKind.OP, EventKind.RUNTIME)) < 0
    is_between &= gather(events.kind, event, EventKind.ANNOTATION) == EventKind.ANNOTATION
    edges = edges[is_between]
    tail, head = (replay.node[side[edges]] for side in (replay.tail, replay.head))
    return edges, (until - since)[edges], *pd.factorize(gap_places(dag, tail, head))


@dataclass(frozen=True)
class EventGroup:
    """A named group of events, found in any graph as a mask over its events."""

    name: str
    find: Callable[[Dag], Bools]

    def __repr__(self) -> str:
        return self.name


def of_class(member: KernelClass) -> EventGroup:
    """Device work of a class."""
    names = {KernelClass.COMPUTE: "computation", KernelClass.MEMORY: "copies"}

    def find(dag: Dag) -> Bools:
        return np.equal(dag.classification.kernel_class, member)

    return EventGroup(names.get(member, member.label), find)


def of_topic(topic: Cause) -> EventGroup:
    """Host ranges and Python frames named like a topic."""
    return EventGroup(str(topic), lambda dag: about(dag, topic))


def _waiting(dag: Dag, *, copies: bool) -> Bools:
    """Whether each host event, or the gap before it, waits for the device."""
    edges, events = dag.edges, dag.events
    waits = np.isin(edges.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC))
    waits &= (edges.rule == Rule.SYNCHRONOUS_COPY) == copies
    return marked(edges.head[waits] >> 1, len(events)) & events.is_host


def _reading(dag: Dag) -> Bools:
    """Whether each event is or is in an operator that reads a value from the device."""
    reads = dag.events.searched(READS) & dag.events.is_host
    return reads | under_mask(dag, reads)


def _waits(dag: Dag) -> Bools:
    """Whether each event waits for the device, not just for its own copy."""
    calls = _waiting(dag, copies=False) | (_waiting(dag, copies=True) & _reading(dag))
    reads = _reading(dag) & around(dag, np.flatnonzero(calls)) & dag.events.is_host
    return calls | reads


ALLOCATIONS = EventGroup(
    "GPU memory allocation",
    lambda dag: dag.events.searched(ALLOCATION) & (dag.events.kind == EventKind.RUNTIME),
)
"""Calls that allocate or free device memory."""
COPIES_THAT_BLOCK = EventGroup(
    "synchronous copies", lambda dag: _waiting(dag, copies=True) & ~_reading(dag)
)
"""Calls that wait for the copy they enqueue, except to read a value."""
HOST_WAITS = EventGroup("GPU synchronization", _waits)
"""All other events that wait for the device, with the operators that read a value."""


def waits_at(name: str, op: str) -> EventGroup:
    """Calls with a name, within an operator, that wait for the device."""

    def find(dag: Dag) -> Bools:
        code = dag.events.symbols.code(name)
        waits = _waiting(dag, copies=True) | _waiting(dag, copies=False)
        rows = np.flatnonzero(waits & np.equal(dag.events.name, code))
        return marked(rows[op_names(dag, rows) == op], len(dag.events))

    return EventGroup(f"{name} in {op}" if op not in ("", name) else name, find)


Found = TypeVar("Found")

_N_KEPT = 4
"""Findings of changes that are kept: a change is drafted by all readings in a row, and some find
every edge of the run. Changes only the speed."""


class EventSet(Protocol):
    """A set of events of one graph, such as a `Selection`."""

    @property
    def dag(self) -> Dag:
        """The graph."""

    @property
    def rows(self) -> I64:
        """Rows of the event table."""


Events = str | re.Pattern[str] | EventSet | EventGroup
"""Events by name (a glob or regex), as a set, or as a group of any graph."""


def weights(lag_ns: I64, extra_ns: I64) -> I64:
    """Weights of edges: their lags and unknown waits, `DROPPED` of those that are not there."""
    return np.where(lag_ns == DROPPED, DROPPED, lag_ns + extra_ns)


class Parts(NamedTuple):
    """Some edges, each once, and a share of each above 0."""

    row: I64
    share: F64

    @classmethod
    def of(cls, share: F64) -> Self:
        """Those with a share, of the shares of all edges."""
        row = np.flatnonzero(share)
        return cls(row, share[row])

    def where(self, chosen: Bools) -> Parts:
        """Some of them."""
        return self if chosen.all() else Parts(self.row[chosen], self.share[chosen])


class Draft:
    """A replay under one assumption, changed in place.

    A rank of a job has `members` of collectives, whose edges are transfers without the wait.
    """

    def __init__(self, dag: Dag, reading: Reading, members: Members | None = None) -> None:
        self.dag = dag
        self.members = members
        self.rank = -1 if members is None else members.rank
        self.assumption: Assumption = reading.assumption
        self.replay = reading.replay
        self.lag_ns = reading.replay.lag_ns.copy()
        self.extra_ns = reading.replay.extra_ns.copy()
        self.release_ns = reading.replay.release_ns
        self.is_out = np.zeros(len(dag.events), dtype=bool)
        """Whether each event was removed."""

    def once(self, of: object, find: partial[Found]) -> Found:
        """What a change finds in the recorded run, for the next drafts of the same change too.

        It may depend on whether the assumption is `Assumption.RIGID`, not on lags.
        """
        kept: dict[tuple[object, int, bool], tuple[object, Found]]
        kept = self.replay.once("of changes", dict)
        key = find.func, id(of), self.assumption is Assumption.RIGID
        known = kept.get(key)
        if known is None:
            for first in list(kept)[: 1 - _N_KEPT]:
                kept.pop(first, None)
            known = kept[key] = of, find()
        return known[1]

    @property
    def weight_ns(self) -> I64:
        """Current weights of the edges."""
        return weights(self.lag_ns, self.extra_ns)

    @property
    def transfers(self) -> tuple[I64, I64]:
        """Edges that are transfers of matched collectives, and their members; none of one rank."""
        if self.members is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        return transfers(self.replay, self.members)

    def events(self, chosen: Events) -> Bools:
        """Whether each event is chosen: host events, device work and Python frames."""
        table = self.dag.events
        code = table.symbols.code(chosen) if isinstance(chosen, str) else -1
        if code >= 0:
            mask = np.equal(table.name, code)
        elif isinstance(chosen, str | re.Pattern):
            mask = name_mask(self.dag, chosen)
        elif isinstance(chosen, EventGroup):
            mask = chosen.find(self.dag)
        elif chosen.dag is not self.dag and not (
            # The same trace may have been opened twice.
            np.array_equal(chosen.dag.events.ts_ns, table.ts_ns)
            and np.array_equal(chosen.dag.events.name, table.name)
        ):
            hint = "select from the graph that you pass to what_if."
            raise QueryError("the selection belongs to another graph.", hint=hint)
        else:
            mask = marked(chosen.rows, len(table))
        if isinstance(chosen, str | re.Pattern):
            mask = mask | replayed_in(self.dag, chosen)
        is_frame = table.kind == EventKind.PYTHON
        found: Bools = mask & (table.is_host | table.is_device | is_frame)
        if not found.any():
            what = getattr(chosen, "pattern", chosen)
            hint = "use a name that the trace records, or a glob such as '*gemm*'."
            if not is_frame.any():
                hint += " To match Python frames, read stacks (--stacks, stacks=True)."
            raise QueryError(f"no event matches {what!r}.", hint=hint)
        return found

    def frames(self, chosen: Bools) -> Frames | None:
        """The time of the Python frames among chosen events; None without any."""
        rows = np.flatnonzero(chosen & (self.dag.events.kind == EventKind.PYTHON))
        return Frames(self.dag, rows) if len(rows) else None

    def nested(self, chosen: Bools) -> Bools:
        """Chosen events, and host events nested in them."""
        chosen = self._with_framed(chosen)
        return chosen | (under_mask(self.dag, chosen & self._is_host) & self._is_host)

    def launched(self, chosen: Bools) -> Bools:
        """Chosen events, and all that is nested in them or launched from them.

        So are collectives that a worker thread runs for them.
        """
        chosen = self._with_framed(chosen)
        found: Bools = chosen | under_mask(self.dag, chosen & self._is_host)
        ranges, calls = given_ranges(self.dag, host_ranges(self.dag))
        found[ranges] |= found[calls]
        return found

    def _with_framed(self, chosen: Bools) -> Bools:
        """Chosen events, and host events within their Python frames."""
        frames = self.frames(chosen)
        return chosen if frames is None else chosen | frames.within()

    @property
    def _is_host(self) -> Bools:
        return self.dag.events.is_host

    def share(self, chosen: Bools) -> Parts:
        """The share of edges that is the chosen events' own time, frames and launches included.

        Work that starts after a slow call could not start earlier. At the least, the time from the
        start of a call to its work is the device's.
        """
        replay, frames, own = self.replay, self.frames(chosen), self.replay.rows_owned(chosen)
        if frames is None:
            found = Parts(own, np.ones(len(own)))
        else:
            share = frames.share(replay)
            share[own] = 1.0
            found = Parts.of(share)
        if self.assumption is Assumption.RIGID:
            return found
        rows, calls = replay.once("launches", self._launches)
        launches, call = rows[chosen[calls]], calls[chosen[calls]]
        elapsed = replay.ts_ns[replay.head[launches]] - replay.ts_ns[replay.tail[launches]]
        of_call = np.minimum(self.dag.events.dur_ns[call] / np.maximum(elapsed, 1), 1.0)
        row, share = Parts(launches, of_call).where(of_call > 0)
        return Parts(np.append(found.row, row), np.append(found.share, share))

    def _launches(self) -> tuple[I64, I64]:
        """Edges from a call to the work that it launched, and these calls."""
        rows = np.flatnonzero(self.replay.kind == EdgeKind.LAUNCH)
        return rows, self.replay.node[self.replay.tail[rows]] >> 1

    def into(self, chosen: Bools) -> I64:
        """The edges that lead from another event to the start or end of a chosen one."""
        replay, events = self.replay, np.flatnonzero(chosen)
        rows = replay.rows_into(np.concatenate([2 * events, 2 * events + 1]))
        from_elsewhere = (replay.node[replay.tail[rows]] ^ replay.node[replay.head[rows]]) > 1
        return rows[from_elsewhere]

    def scale(self, parts: Parts, by: float) -> None:
        """Scale shares of edges by a factor."""
        row, share = parts.where(self.lag_ns[parts.row] != DROPPED)
        lag_ns = self.lag_ns[row]
        scaled, partly = lag_ns * by, np.flatnonzero(share < 1)
        times, some = self.replay.ts_ns, row[partly]
        elapsed = times[self.replay.head[some]] - times[self.replay.tail[some]]
        cut = lag_ns[partly] - share[partly] * elapsed * (1 - by)
        scaled[partly] = np.maximum(cut, 0)
        self.lag_ns[row] = np.rint(scaled).astype(np.int64)

    def spare(self, parts: Parts) -> None:
        """Make shares of edges, and of their unknown waits, take no time."""
        self.scale(parts, 0.0)
        row, left = parts.row, 1 - parts.share
        self.extra_ns[row] = np.rint(self.extra_ns[row] * left).astype(np.int64)

    def multiply(self, rows: I64, by: float | F64) -> None:
        """Make edges and their unknown waits longer or shorter by a factor."""
        for part in (self.lag_ns, self.extra_ns):
            part[rows] = np.rint(part[rows] * by).astype(np.int64)

    def shorten(self, spared: I64 | F64) -> None:
        """Take time off edges, but for transfers: not the rank alone controls these."""
        replay = self.replay
        spared[self.transfers[0]] = 0
        rows = np.flatnonzero((spared > 0) & (self.lag_ns != DROPPED))
        elapsed = replay.ts_ns[replay.head[rows]] - replay.ts_ns[replay.tail[rows]]
        self.multiply(rows, 1 - spared[rows] / elapsed)

    def clear(self, rows: I64) -> None:
        """Make edges take no time."""
        self.lag_ns[rows[self.lag_ns[rows] != DROPPED]] = 0
        self.extra_ns[rows] = 0

    def drop(self, rows: I64 | Bools) -> None:
        """Remove edges."""
        self.lag_ns[rows] = DROPPED
        self.extra_ns[rows] = 0

    def release(self, nodes: I64) -> None:
        """Let some nodes happen as soon as the edges into them allow, if there are any."""
        places, offsets = self.replay.places[nodes], self.replay.offsets
        places = places[places >= 0]
        places = places[offsets[places] < offsets[places + 1]]
        self.release_ns = self.release_ns.copy()
        self.release_ns[places] = self.replay.first_ns

    def take_out(self, chosen: Bools) -> None:
        """Make chosen events take no time, and neither wait nor need a launch.

        Work held up by something from before the profile still is.
        """
        replay, own, into = self.replay, self.replay.rows_owned(chosen), self.into(chosen)
        self.is_out |= chosen
        self.spare(self.share(chosen))
        if (frames := self.frames(chosen)) is not None:
            self.drop(frames.waited_in(replay))
        self.drop(own[replay.kind[own] == EdgeKind.CONTENTION])
        kind, head = replay.kind[into], replay.node[replay.head[into]]
        starts = (head & 1 == 0) & self.dag.events.is_device[head >> 1]
        self.drop(into[starts & np.isin(kind, (EdgeKind.LAUNCH, EdgeKind.CONTENTION))])
        self.clear(into[starts & (kind != EdgeKind.SOURCE)])
        waits = (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC, EdgeKind.QUEUE)
        self.drop(into[~starts & np.isin(kind, waits)])
        events = np.flatnonzero(chosen)
        self.release(2 * events + 1)
        self._at_once(np.concatenate([2 * events, 2 * events + 1]))

    def no_waits(self, rows: I64 | Bools) -> None:
        """Remove edges at which the host waits; its calls then take their usual time."""
        self.drop(rows)
        self._at_once(self.replay.node[self.replay.head[rows]])

    def _at_once(self, nodes: I64) -> None:
        """Let threads reach some nodes without unknown waits."""
        into = self.replay.rows_into(nodes)
        self.extra_ns[into[self.replay.kind[into] == EdgeKind.THREAD]] = 0

    def add(self, more: EdgeTable) -> None:
        """Add edges, except those that run backward in time."""
        self.replay, self.lag_ns, self.extra_ns = self.replay.with_edges(
            more, self.lag_ns, self.extra_ns
        )

    def is_labelled(self, label: str) -> Bools | None:
        """Whether each edge is of the kind or rule of this name; None if there is no such name.

        ``sync`` is the host's waits only: a stream that waits for another needs its results.
        """
        replay = self.replay
        head = replay.node[replay.head] >> 1
        text = label.lower()
        found: Bools | None = None
        if text in EdgeKind.labels():
            found = replay.kind == EdgeKind.parse(text)
        elif rules := [rule for rule in Rule if rule.label == text]:
            found = replay.rule == rules[0]
        if found is not None and text == EdgeKind.SYNC.label:
            found &= self._is_host[head]
        return found
