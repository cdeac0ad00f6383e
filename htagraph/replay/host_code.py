"""Untraced code: the share of each edge that runs in Python frames, or the code at a place.

Frames are not nodes of the graph; a share of an edge is theirs if it overlaps them. The place of
code that no operator covers is what runs before or after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import Cover, union
from htagraph.errors import QueryError
from htagraph.lookup.attribution import gap_places, innermost
from htagraph.model.arrays import F64, I64, Bools, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.rules import Rule
from htagraph.model.symbols import SymbolTable
from htagraph.replay.replay import Replay


@dataclass(frozen=True)
class Code:
    """Untraced code, by place."""

    place: str | re.Pattern[str]

    def __repr__(self) -> str:
        """Write it."""
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
