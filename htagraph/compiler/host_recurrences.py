"""Stretches of host time without a call, and what recurs beside their ends.

That a stretch ends beside something else may be chance. It is a dependency only if the pair of
places recurs: nearly all stretches of a place end at one distance from such an instant, far more
tightly than chance would have it, while the stretches themselves differ in length far more than
that. (A sleep of one length beside a kernel of one length looks the same as a wait for it.)

Chance is the share of random instants of the stretches that would lie at that distance as well.
That as many do is a binomial tail, times the number of pairs of places that were tried.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.chance import log_chance
from htagraph.algorithms.codes import distinct, is_in
from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts, last_before
from htagraph.compiler.boundaries import Boundaries
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.edges import EdgeTable
from htagraph.model.events import EventTable
from htagraph.model.inference import Support
from htagraph.model.kinds import EdgeKind, among
from htagraph.model.rules import Rule

__all__ = [
    "Learnt",
    "Pairs",
    "Sources",
    "Stretches",
    "explained_ends",
    "long_stretches",
    "plain_names",
    "recurring",
    "usual_wait_ns",
]

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NUMBER = re.compile(r"#?(?<![a-zA-Z0-9])\d+")
_USUAL_FACTOR = 2
_NEARLY_ALL = 0.9
_FEWEST = 3
_NEAR_FACTOR = 10
_WAIT_FACTOR = 2
_VARIES_FACTOR = 4
_BULK = (10, 90)
_MOST_CHANCE = 0.2
_FALSE_PAIRS = 1e-4
"""Pairs that chance would yield in a trace, as an expectation."""


class Stretches(NamedTuple):
    """Stretches of the time of host threads.

    Parameters
    ----------
    since, until : ndarray of shape (n,), dtype=int64
        Nodes.
    inside : ndarray of shape (n,), dtype=int64
        Host event that is innermost, -1 for none.
    end : ndarray of shape (n,), dtype=int64
        Position of `until` among the boundaries of host events.
    """

    since: I64
    until: I64
    inside: I64
    end: I64

    @classmethod
    def at(cls, between: Boundaries, first: I64, last: I64 | None = None) -> Stretches:
        """From boundaries, by position, to the next ones of their lanes, or to the last given."""
        end = first + 1 if last is None else last
        columns = (between.node[first], between.node[end], between.inside[end - 1], end)
        return cls(*(column.astype(np.int64) for column in columns))

    def take(self, rows: I64 | Bools) -> Stretches:
        """Some of them."""
        return Stretches(*(column[rows] for column in self))


class Pairs(NamedTuple):
    """Stretches, each with a node that may have ended it.

    Parameters
    ----------
    stretch, source : ndarray of shape (n,), dtype=int64
        Position of the stretch, and the node.
    distance_ns : ndarray of shape (n,), dtype=int64
        From the node to the end of the stretch; negative if the node is later.
    """

    stretch: I64
    source: I64
    distance_ns: I64

    def take(self, rows: I64 | Bools) -> Pairs:
        """Some of them."""
        return Pairs(*(column[rows] for column in self))


class Sources(NamedTuple):
    """All that may end stretches, whether near one or not.

    Parameters
    ----------
    event : ndarray of shape (n,), dtype=int64
        Events whose ends may end stretches.
    name : ndarray of shape (n_events,), dtype=int32
        Code of the name of each event of the trace.
    starts : bool, default=False
        Whether their starts may as well.
    """

    event: I64
    name: I32
    starts: bool = False

    def place(self, node: I64) -> I64:
        """Number of the place of each node: what starts, or ends, there."""
        place: I64 = 2 * self.name[node >> 1].astype(np.int64)
        place += node & 1
        return place

    def at(self, places: I64) -> I64:
        """Nodes at some places."""
        if not len(places):
            return np.empty(0, dtype=np.int64)
        events = self.event[is_in(self.name[self.event], places >> 1)]
        nodes = end_node(events)
        if self.starts:
            nodes = np.concatenate([start_node(events), nodes])
        return nodes[np.isin(self.place(nodes), places)]


class Learnt(NamedTuple):
    """Pairs that recur, at most one for each stretch."""

    pairs: Pairs
    support: tuple[Support, ...]


class _Evidence(NamedTuple):
    """What says that one pair of places recurs, and its rows."""

    rows: I64
    width_ns: int
    chance: float


def usual_wait_ns(structure: Structure) -> int:
    """Time below which a stretch is no wait, and a return from one is prompt."""
    calibration = structure.calibration
    return _USUAL_FACTOR * max(calibration.launch_usual_ns, calibration.stream_usual_ns)


def explained_ends(known: EdgeTable) -> I64:
    """Nodes at which a wait ends that is explained: by the device, or by a hand-over."""
    waits = among(known.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC))
    ends: I64 = known.head[waits | (known.rule == Rule.HAND_OVER)].astype(np.int64)
    return ends


def long_stretches(structure: Structure) -> Stretches:
    """From each boundary of a host thread to the next, if that is long enough for a wait."""
    between = structure.boundaries
    return Stretches.at(between, between.longer_than(usual_wait_ns(structure)))


def plain_names(events: EventTable) -> I32:
    """Code of each host event's name without numbers, which steps and threads have; else -1."""
    texts, codes = events.symbols.texts, dict[str, int]()
    of_symbol = np.full(len(texts), -1, dtype=np.int32)
    for symbol in distinct(events.name[events.is_host]).tolist():
        of_symbol[symbol] = codes.setdefault(_NUMBER.sub("#", texts[symbol]), len(codes))
    return gather(of_symbol, events.name)


def _nearest(pairs: Pairs, place: I64, sources: Sources) -> tuple[Pairs, I64]:
    """Of each stretch and place of sources the nearest; by both places, and where each begins."""

    def keys(of: Pairs) -> tuple[I64, I64]:
        return place[of.stretch], sources.place(of.source)

    at, source = keys(pairs)
    order = np.lexsort((pairs.distance_ns, np.abs(pairs.distance_ns), pairs.stretch, source, at))
    pairs = pairs.take(order)
    pairs = pairs.take(group_starts(*keys(pairs), pairs.stretch))
    return pairs, np.append(np.flatnonzero(group_starts(*keys(pairs))), len(pairs.stretch))


def _medians(values: I64, starts: I64) -> I64:
    """Median of each group of rows, the lower of two."""
    group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    ordered = values[np.lexsort((values, group))]
    medians: I64 = ordered[(starts[:-1] + starts[1:] - 1) // 2]
    return medians


def _n_longer(targets: Stretches, place: I64, times_ns: I64, wanted: I64, shortest_ns: I64) -> I64:
    """Number of stretches at each of some places that are longer than that.

    A shorter one holds no wait: what is waited for came in its time, long before its end.
    """
    length = times_ns[targets.until] - times_ns[targets.since]
    order = np.lexsort((length, place))
    known = place[order]
    not_longer = last_before(known, length[order], wanted, shortest_ns + 1)
    first = np.searchsorted(known, wanted)
    behind: I64 = np.searchsorted(known, wanted, side="right")
    return behind - np.where(not_longer >= 0, not_longer + 1, first)


class _Beside(NamedTuple):
    """The stretches of one place that have a source of another beside their ends.

    Parameters
    ----------
    length_ns, until_ns, distance_ns : ndarray of shape (n,), dtype=int64, unit=ns
    n_all : int
        Stretches of the place that are long enough, with such a source or without.
    """

    length_ns: I64
    until_ns: I64
    distance_ns: I64
    n_all: int


def _judge(
    structure: Structure, beside: _Beside, sources_ns: I64, n_tried: int
) -> _Evidence | None:
    """Evidence of one pair of places of several that were tried, if it is enough."""
    n_all, distance_ns = beside.n_all, beside.distance_ns
    n_matched = int(np.ceil(_NEARLY_ALL * n_all))
    order = np.argsort(distance_ns, kind="stable")
    ordered = distance_ns[order]
    begin = int(np.argmin(ordered[n_matched - 1 :] - ordered[: len(ordered) - n_matched + 1]))
    rows = order[begin : begin + n_matched]
    first, last = int(ordered[begin]), int(ordered[begin + n_matched - 1])
    width = max(last - first, structure.calibration.launch_floor_ns, 1)
    length, until_ns = beside.length_ns[rows], beside.until_ns[rows]
    others = np.searchsorted(sources_ns, until_ns + width) - np.searchsorted(
        sources_ns, until_ns - length
    )
    chance = float(np.minimum(width * np.maximum(others, 1) / length, 1.0).mean())
    low, high = np.percentile(length, _BULK, method="nearest").tolist()
    near = max(usual_wait_ns(structure), int(np.median(length)) // _NEAR_FACTOR)
    if (
        chance > _MOST_CHANCE
        or high - low < _VARIES_FACTOR * width
        or abs(int(np.median(ordered[begin : begin + n_matched]))) > near
        # One of the distances fixes where the others have to be.
        or log_chance(n_matched - 1, n_all - 1, chance) > np.log(_FALSE_PAIRS / n_tried)
    ):
        return None
    around = np.flatnonzero(np.abs(2 * distance_ns - first - last) <= 2 * width)
    return _Evidence(around, width, chance)


def recurring(
    structure: Structure,
    rule: Rule,
    stretches: tuple[Stretches, I64],
    pairs: Pairs,
    sources: Sources,
) -> Learnt:
    """Pairs of places that recur.

    Parameters
    ----------
    rule : Rule
        That will make edges of them; for the support.
    stretches : tuple of Stretches and ndarray of shape (n_stretches,), dtype=int64
        And the number of the place of each.
    """
    events, (targets, place) = structure.events, stretches
    times = events.node_ts_ns
    pairs, starts = _nearest(pairs, place, sources)
    until_ns = times[targets.until[pairs.stretch]]
    length_ns = until_ns - times[targets.since[pairs.stretch]]
    shortest = _WAIT_FACTOR * _medians(np.abs(pairs.distance_ns), starts)
    n_all = _n_longer(targets, place, times, place[pairs.stretch[starts[:-1]]], shortest)
    is_long = length_ns > np.repeat(shortest, np.diff(starts))
    n_long = np.add.reduceat(is_long, starts[:-1]) if len(is_long) else n_all
    often = np.flatnonzero((n_all >= _FEWEST) & (n_long >= _NEARLY_ALL * n_all))
    at = sources.place(pairs.source[starts[often]])
    known = sources.at(np.unique(at))
    known = known[np.lexsort((times[known], sources.place(known)))]
    bounds = np.searchsorted(sources.place(known), at + np.array([[0], [1]]))
    rows, width, support = [np.empty(0, dtype=np.int64)], [0], []
    for group, begin, end in zip(often.tolist(), *bounds.tolist(), strict=True):
        members = np.arange(starts[group], starts[group + 1])
        members = members[is_long[members]]
        columns = (length_ns[members], until_ns[members], pairs.distance_ns[members])
        beside = _Beside(*columns, int(n_all[group]))
        found = _judge(structure, beside, times[known[begin:end]], len(often))
        if found is not None:
            rows.append(members[found.rows])
            width.append(found.width_ns)
            matched = pairs.take(rows[-1])
            until = int(targets.until[matched.stretch[0]])
            support.append(
                Support(
                    rule,
                    _place_text(events, int(matched.source[0])),
                    _place_text(events, until),
                    len(matched.stretch),
                    beside.n_all,
                    int(np.median(matched.distance_ns)),
                    int(np.ptp(matched.distance_ns)),
                    found.chance,
                )
            )
    of = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    pairs = pairs.take(np.concatenate(rows))
    order = np.lexsort((np.abs(pairs.distance_ns), np.array(width)[of], pairs.stretch))
    best = order[group_starts(pairs.stretch[order])]
    used = np.unique(of[best]) - 1
    return Learnt(pairs.take(best), tuple(support[number] for number in used.tolist()))


def _place_text(events: EventTable, node: int) -> str:
    """A node in words: the start or the end of an event; of device work, its name."""
    name: str = events.symbols.texts[events.name[node >> 1]]
    if events.is_device[node >> 1]:
        return name
    return f"{'end' if node & 1 else 'start'} of {_NUMBER.sub('#', name)}"
