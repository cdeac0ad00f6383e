"""Draft: a replay that changes are made to."""

from __future__ import annotations

import re
from typing import Protocol

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.algorithms.retime import DROPPED
from htagraph.errors import QueryError
from htagraph.lookup.selecting import name_mask, under_mask
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.rules import Rule
from htagraph.replay.assumptions import Assumption, Reading
from htagraph.replay.event_groups import EventGroup
from htagraph.replay.host_code import Frames
from htagraph.replay.members import Members, Transfers, transfers

__all__ = ["Draft", "EventSet", "Events"]

Bools = npt.NDArray[np.bool_]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


class EventSet(Protocol):
    """A set of events of one graph, such as a `Selection`."""

    @property
    def dag(self) -> Dag:
        """The graph."""

    @property
    def rows(self) -> I64:
        """Rows of the event table."""


Events = str | re.Pattern[str] | EventSet | EventGroup
"""Events by a name (a glob or regex), a set of them, or what holds for them."""


class Draft:
    """A replay under one assumption, to be changed in place.

    Parameters
    ----------
    members : Members, optional
        Of a rank of a job: where it meets the others. The edges of their own time are transfers
        there, without the wait.
    """

    def __init__(self, dag: Dag, reading: Reading, members: Members | None = None) -> None:
        self.dag = dag
        self.members = members
        self.rank = -1 if members is None else members.rank
        self.assumption: Assumption = reading.assumption
        self.replay = reading.replay
        self.lag_ns = reading.replay.lag_ns.copy()
        self.extra_ns = reading.replay.extra_ns.copy()
        self.release_ns = reading.replay.release_ns.copy()
        self.is_out = np.zeros(len(dag.events), dtype=bool)
        """Whether each event was taken out."""

    @property
    def weight_ns(self) -> I64:
        """Weights of the edges as they are by now."""
        return np.where(self.lag_ns == DROPPED, DROPPED, self.lag_ns + self.extra_ns)

    @property
    def transfers(self) -> Transfers:
        """Edges that are transfers of collectives matched across ranks; none for a rank alone."""
        if self.members is None:
            return Transfers(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        return transfers(self.replay, self.members)

    def events(self, chosen: Events) -> Bools:
        """Whether each event is chosen: host events and device work of the graph, Python frames.

        Raises
        ------
        QueryError
            If there is none, or a set is of another graph.
        """
        table = self.dag.events
        code = table.symbols.code(chosen) if isinstance(chosen, str) else -1
        if code >= 0:
            mask = np.equal(table.name, code)
        elif isinstance(chosen, str | re.Pattern):
            mask = name_mask(self.dag, chosen)
        elif isinstance(chosen, EventGroup):
            mask = chosen.find(self.dag)
        elif not _same_events(chosen.dag, self.dag):
            raise QueryError(
                "the selection is of another graph.", hint="select from the graph that is changed."
            )
        else:
            mask = np.zeros(len(table), dtype=bool)
            mask[chosen.rows] = True
        is_frame = table.kind == EventKind.PYTHON
        found: Bools = mask & (table.is_host | table.is_device | is_frame)
        if not found.any():
            what = getattr(chosen, "pattern", chosen)
            hint = "names are those of graph.events, or a glob such as '*gemm*'."
            if not is_frame.any():
                hint += " Python frames are read with stacks=True."
            raise QueryError(f"no event of the graph is {what!r}.", hint=hint)
        return found

    def frames(self, chosen: Bools) -> Frames | None:
        """The time of the Python frames among chosen events; None where there are none."""
        rows = np.flatnonzero(chosen & (self.dag.events.kind == EventKind.PYTHON))
        return Frames(self.dag, rows) if len(rows) else None

    def nested(self, chosen: Bools) -> Bools:
        """Chosen events, and host events within those of the host."""
        chosen = self._with_framed(chosen)
        return chosen | (under_mask(self.dag, chosen & self._is_host) & self._is_host)

    def launched(self, chosen: Bools) -> Bools:
        """Chosen events with all under them: nested in them, or launched from there."""
        chosen = self._with_framed(chosen)
        return chosen | under_mask(self.dag, chosen & self._is_host)

    def _with_framed(self, chosen: Bools) -> Bools:
        """Chosen events, and host events within their Python frames."""
        frames = self.frames(chosen)
        return chosen if frames is None else chosen | frames.within()

    @property
    def _is_host(self) -> Bools:
        return self.dag.events.is_host

    def own_time(self, chosen: Bools) -> Bools:
        """Whether each edge is time of the chosen events themselves."""
        own: Bools = np.append(chosen, False)[self.replay.owner]
        return own

    def share(self, chosen: Bools) -> F64:
        """Share of each edge that is time of the chosen events themselves, frames included."""
        frames, own = self.frames(chosen), self.own_time(chosen)
        found = np.zeros(len(own)) if frames is None else frames.share(self.replay)
        return np.where(own, 1.0, found)

    def into(self, chosen: Bools) -> Bools:
        """Whether each edge leads to the start or the end of a chosen event, from another one."""
        replay, events = self.replay, np.flatnonzero(chosen)
        found = np.zeros(len(replay.head), dtype=bool)
        rows = replay.rows_into(np.concatenate([2 * events, 2 * events + 1]))
        from_elsewhere = (replay.node[replay.tail[rows]] ^ replay.node[replay.head[rows]]) > 1
        found[rows[from_elsewhere]] = True
        return found

    def scale(self, share: F64, by: float) -> None:
        """Make shares of edges take some times as long; several shares of one edge add up."""
        there = np.flatnonzero((share > 0) & (self.lag_ns != DROPPED))
        lag_ns, part, times = self.lag_ns[there], share[there], self.replay.ts_ns
        elapsed = times[self.replay.head[there]] - times[self.replay.tail[there]]
        cut = np.maximum(lag_ns - part * elapsed * (1 - by), 0)
        scaled = np.rint(np.where(part < 1, cut, lag_ns * by))
        self.lag_ns[there] = scaled.astype(np.int64)

    def spare(self, share: F64) -> None:
        """Make shares of edges take no time, nor what no edge explains of them."""
        self.scale(share, 0.0)
        self.extra_ns = np.rint(self.extra_ns * (1 - share)).astype(np.int64)

    def clear(self, rows: Bools) -> None:
        """Make edges take no time."""
        self.lag_ns[rows & (self.lag_ns != DROPPED)] = 0
        self.extra_ns[rows] = 0

    def drop(self, rows: Bools) -> None:
        """Take edges away."""
        self.lag_ns[rows] = DROPPED
        self.extra_ns[rows] = 0

    def release(self, chosen: Bools) -> None:
        """Let chosen device work start whenever its stream allows."""
        starts = 2 * np.flatnonzero(chosen)
        self.release_ns[self.replay.places[starts]] = self.replay.first_ns

    def take_out(self, chosen: Bools) -> None:
        """Make chosen events take no time, and neither wait nor need a launch.

        What was launched before the capture is not among them: work that it holds up still is.
        """
        kind, into = self.replay.kind, self.into(chosen)
        self.is_out |= chosen
        self.spare(self.share(chosen))
        if (frames := self.frames(chosen)) is not None:
            self.drop(frames.waited_in(self.replay))
        is_contention = kind == EdgeKind.CONTENTION
        self.drop(is_contention & gather(chosen, self.replay.event, default=False))
        on_device = chosen & self.dag.events.is_device
        starts = into & self.replay.into_start_of(on_device)
        self.drop(starts & np.isin(kind, (EdgeKind.LAUNCH, EdgeKind.CONTENTION)))
        self.clear(starts & (kind != EdgeKind.SOURCE))
        waits = (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC, EdgeKind.QUEUE)
        self.drop(into & ~starts & np.isin(kind, waits))
        ended = chosen[self.replay.node[self.replay.head] >> 1]
        self.extra_ns[ended & (self.replay.kind == EdgeKind.THREAD)] = 0

    def no_waits(self, rows: Bools) -> None:
        """Take away edges that make the host wait; its calls take what they usually take."""
        self.drop(rows)
        freed = np.zeros(len(self.replay.node), dtype=bool)
        freed[self.replay.head[rows]] = True
        self.extra_ns[freed[self.replay.head] & (self.replay.kind == EdgeKind.THREAD)] = 0

    def add(self, more: EdgeTable) -> None:
        """Add edges; those against the order of time are left out."""
        self.replay, self.lag_ns, self.extra_ns = self.replay.with_edges(
            more, self.lag_ns, self.extra_ns
        )

    def is_labelled(self, label: str) -> Bools | None:
        """Whether each edge is of a kind or rule of this name; None if there is no such name.

        ``sync`` are the waits of the host; a stream that waits for another needs what it waits for.
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


def _same_events(one: Dag, other: Dag) -> bool:
    """Whether two graphs are of one trace: a graph that is opened again is another object."""
    return one is other or (
        len(one.events) == len(other.events)
        and np.array_equal(one.events.ts_ns, other.events.ts_ns)
        and np.array_equal(one.events.name, other.events.name)
    )
