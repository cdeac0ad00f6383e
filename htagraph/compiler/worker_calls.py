"""FLOW: a thread does nothing until another thread gives it work, or the answer to its own.

Threads of a pool (stages of a server) and workers (pinned memory) record bursts. Between two of
them a worker waits to be called, so its gap is not its own Python time: it belongs to its caller,
or to what the caller waited for. A caller that waits for the answer does nothing either.

::

    thread 1   [take request][            ][take request]     the caller: until it called, and since
                             |-.       .-->                   the answer
    thread 2   [run stage]     '->[run  ]     [run stage]

Who calls, or answers, is learnt: a thread continues, again and again, soon after the same boundary
of another thread (see `htagraph.compiler.recurrences`). Of many operators of one name, the boundary
after which the other thread did nothing counts. Threads that work at a rhythm of their own are
called by none. Autograd threads need no learning (`htagraph.compiler.flows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from htagraph.arrays.codes import as_narrow, gather, is_in
from htagraph.arrays.matching import group_starts, last_before
from htagraph.compiler.boundaries import Boundaries
from htagraph.compiler.flows import worker_lanes
from htagraph.compiler.recurrences import (
    MOST_CHANCE,
    Candidates,
    Sources,
    Waits,
    recurring,
)
from htagraph.compiler.stretches import (
    NUMBER,
    Stretches,
    explained_ends,
    long_stretches,
    plain_names,
    usual_wait_ns,
)
from htagraph.compiler.structure import Structure
from htagraph.model.arrays import I32, I64
from htagraph.model.edges import EdgeTable, Inferred, Support
from htagraph.model.rules import Rule

_MOST_THREADS = 1_000
"""A limit of time: threads that may call others; of more, those that did most."""
_MOST_COMPARED = 500_000
"""A limit of memory: stretches times threads. Real traces have 150,000 at most."""
_NEAREST_BOUNDARIES = 4
"""Last boundaries of another thread that may have called: it may do more before the worker
wakes."""
_NEXT_SCALE = 4
"""From one scale of waits to the next (chosen; 2 finds 1% more of the waits of simulated servers, 8
2% less)."""
_AT_ONCE = 1 << 16
"""Boundaries whose places are in memory at once. A limit of memory, not of the answer."""
_BOUNDARIES_OF_PLACE = 4
"""Boundaries after a wait that tell its place: stages of a server begin the same way."""


def _openings(structure: Structure) -> Stretches:
    """From the first host event of the trace to the first of each thread."""
    between = structure.boundaries
    first = between.openings
    node = between.node[first].astype(np.int64)
    begin = node[np.argmin(between.ts_ns[first])]
    return Stretches(np.full(len(first), begin), node, np.full(len(first), -1), first)


def _quiet(structure: Structure, known: EdgeTable) -> Stretches:
    """Long stretches in no operator that nothing explains, of threads that do not step.

    Other rules find who calls autograd threads; where they do not, the gaps are the threads' own.
    """
    events, times = structure.events, structure.events.node_ts_ns
    openings = _openings(structure)
    is_long = times[openings.until] - times[openings.since] > usual_wait_ns(structure)
    both = zip(long_stretches(structure), openings.take(is_long), strict=True)
    quiet = Stretches(*(np.concatenate(columns) for columns in both))
    others = np.array([*worker_lanes(structure)], np.int32)
    fits = ~is_in(events.lane[quiet.until >> 1], others)
    fits &= ~is_in(quiet.until, explained_ends(known))
    return quiet.take(fits & gather(structure.may_idle, quiet.inside, default=True))


def _places(structure: Structure, quiet: Stretches, names: I32) -> I64:
    """Number of the place of each stretch: the range around, and the next boundaries.

    Where the thread's record ends before, the commonest place that begins the same way.
    """
    between = structure.boundaries
    columns, end = [gather(names, quiet.inside)], quiet.end
    for _ in range(_BOUNDARIES_OF_PLACE):
        node = gather(between.node, end)
        columns.append(np.where(node >= 0, 2 * gather(names, node >> 1) + (node & 1), -1))
        end = np.where(gather(between.is_followed, end, default=False), end + 1, -1)
    order = np.lexsort(columns[::-1])
    starts = group_starts(*(column[order] for column in columns))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.cumsum(starts) - 1
    found = np.stack([column[order[starts]] for column in columns])
    counts = np.bincount(place, minlength=found.shape[1])
    same = np.arange(found.shape[1])
    for cut in np.flatnonzero(found[-1] < 0).tolist():
        n_known = 1 + int((found[1:, cut] >= 0).sum())
        alike = np.flatnonzero((found[:n_known] == found[:n_known, [cut]]).all(axis=0))
        same[cut] = alike[np.lexsort((alike, counts[alike]))[-1]]
    places: I64 = same[place]
    return places


def _busiest_threads(structure: Structure) -> list[int]:
    """Threads that may call others: of thousands, those that did most."""
    n_boundaries = np.diff(structure.boundaries.first)
    busy = np.flatnonzero(n_boundaries)
    most = np.argsort(-n_boundaries[busy], kind="stable")[:_MOST_THREADS]
    threads: list[int] = np.sort(busy[most]).tolist()
    return threads


def _longest(structure: Structure, quiet: Stretches, n_threads: int) -> Stretches:
    """As many stretches as can be compared with what each thread did: the longest."""
    most = _MOST_COMPARED // max(n_threads, 1)
    if len(quiet.until) <= most:
        return quiet
    times = structure.events.node_ts_ns
    dur_ns = times[quiet.until] - times[quiet.since]
    return quiet.take(np.sort(np.argsort(-dur_ns, kind="stable")[:most]))


def _elsewhere(structure: Structure, quiet: Stretches, threads: list[int]) -> Candidates:
    """The last boundaries of every other thread in each stretch."""
    times, between = structure.events.node_ts_ns, structure.boundaries
    since_ns, until_ns = times[quiet.since], times[quiet.until]
    order = np.argsort(until_ns, kind="stable")
    last = np.empty((len(threads), len(order)), dtype=np.int64)
    until = np.tile(until_ns[order] + 1, len(threads))
    last[:, order] = last_before(
        between.lane, between.ts_ns, np.repeat(threads, len(order)), until
    ).reshape(last.shape)
    last[structure.events.lane[quiet.until >> 1] == np.array(threads)[:, None]] = -1
    thread, row = np.nonzero(last >= 0)
    source, first = last[thread, row], between.first[threads][thread]
    parts = []
    for _ in range(_NEAREST_BOUNDARIES):
        fits = np.flatnonzero(source >= first)
        fits = fits[between.ts_ns[source[fits]] >= since_ns[row[fits]]]
        thread, row, source, first = (column[fits] for column in (thread, row, source, first))
        parts.append((thread, row, source))
        source = source - 1
    thread, row, source = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    by_thread = np.argsort(as_narrow(thread), kind="stable")
    wait, source = row[by_thread], source[by_thread]
    return Candidates(wait, source, until_ns[wait] - between.ts_ns[source])


class _Done(NamedTuple):
    """What threads did, by place: boundaries, and again as the last that a thread did so far.

    Of many operators of one name, only one is followed by no other while a thread waits for them.
    The position of a boundary is one as the last if the number of boundaries is added to it.
    """

    between: Boundaries
    names: I32
    n_places: int

    @classmethod
    def of(cls, structure: Structure, names: I32) -> _Done:
        """What the threads of a trace did."""
        return cls(structure.boundaries, names, 2 * (int(names.max(initial=-1)) + 1))

    def place(self, position: I64) -> I64:
        """Place of boundaries."""
        as_last, row = np.divmod(position, len(self.between))
        node = self.between.node[row]
        place: I64 = 2 * gather(self.names, node >> 1) + (node & 1) + as_last * self.n_places
        return place

    def until_next_ns(self, row: I64) -> I64:
        """Time until the next boundary of the thread."""
        ts_ns = self.between.ts_ns
        next_ns = ts_ns[np.minimum(row + 1, len(ts_ns) - 1)] - ts_ns[row]
        return np.where(self.between.is_followed[row], next_ns, np.iinfo(np.int64).max)

    def and_last(self, found: Candidates) -> Candidates:
        """Candidates, and again those that are the last that their thread did so far."""
        last = found.take(self.until_next_ns(found.source) >= found.distance_ns)
        last = last._replace(source=last.source + len(self.between))
        return Candidates(*(np.concatenate(columns) for columns in zip(found, last, strict=True)))

    def at(self, places: I64) -> Sources:
        """All that was done at some places."""
        begins, wanted = range(0, len(self.between), _AT_ONCE), places % self.n_places
        blocks = (np.arange(begin, min(begin + _AT_ONCE, len(self.between))) for begin in begins)
        rows = np.concatenate([block[is_in(self.place(block), wanted)] for block in blocks])
        place, n = self.place(rows), self.n_places
        ever, last = is_in(place, places), is_in(place + n, places)
        return Sources(
            self.between.ts_ns[np.concatenate([rows[ever], rows[last]])],
            np.concatenate([place[ever], place[last] + n]),
            np.append(
                np.full(np.count_nonzero(ever), np.iinfo(np.int64).max),
                self.until_next_ns(rows[last]),
            ),
        ).only(places)


def _looks(dur_ns: I64) -> Iterator[tuple[int, int]]:
    """Shortest wait and longest distance of each look: all waits, then long ones, scale by scale.

    At the place of a wait, a thread may also pause for code of its own. That is shorter, so there
    is a scale at which waits are alone; and there they end as promptly.
    """
    yield 0, np.iinfo(np.int64).max
    scale_ns = max(int(dur_ns.min()), 1)
    while scale_ns <= dur_ns.max():
        yield scale_ns, int(MOST_CHANCE * scale_ns)
        scale_ns *= _NEXT_SCALE


def _late_ones(found: Candidates, pair: I64, learnt: I64) -> Candidates:
    """Of each wait the nearest candidate of a pair that was learnt, however far."""
    late = found.take(np.isin(pair, learnt))
    late = late.take(np.lexsort((late.distance_ns, late.wait)))
    return late.take(group_starts(late.wait))


def worker_call_edges(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges from what another thread did to where a thread that waited for it continues.

    Where a thread nearly always continues soon after another one, it waited for that one also when
    it continued late. `known`: what ends with a SYNC or HIDDEN_SYNC edge, or of a wait for another
    thread, is explained.
    """
    events, host = structure.events, structure.host
    if not len(host) or (events.lane[host] == events.lane[host[0]]).all():
        return Inferred()
    threads = _busiest_threads(structure)
    quiet = _longest(structure, _quiet(structure, known), len(threads))
    found = _elsewhere(structure, quiet, threads)
    if not len(found.wait):
        return Inferred()
    times, names = events.node_ts_ns, plain_names(events)
    thread = events.lane[quiet.until >> 1]
    since_ns, until_ns = times[quiet.since], times[quiet.until]
    done, node = _Done.of(structure, names), structure.boundaries.node
    waits = Waits(quiet.end, since_ns, until_ns, _places(structure, quiet, names))
    dur_ns = until_ns - since_ns

    def label(position: int) -> str:
        place = int(node[position % len(node)])
        text = NUMBER.sub("#", events.symbols.texts[events.name[place >> 1]])
        return f"{'end' if place & 1 else 'start'} of {text}"

    near = done.and_last(found.take(found.distance_ns < dur_ns[found.wait]))
    caller = np.full(len(dur_ns), -1)
    support: tuple[Support, ...] = ()
    for least_ns, most_ns in _looks(dur_ns):
        is_open = (caller < 0) & (dur_ns >= least_ns)
        left = np.flatnonzero(is_open)
        near = near.take(is_open[near.wait])
        prompt = near.take(near.distance_ns <= most_ns)
        calls, more = recurring(
            Rule.WORKER_CALLED,
            waits.take(left),
            prompt._replace(wait=(np.cumsum(is_open) - 1)[prompt.wait]),
            (done.at, done.place(prompt.source)),
            label,
            n_ways=2,
            thread=thread[left],
        )
        if more:
            found = found.take(caller[found.wait] < 0)
            is_near = found.distance_ns <= MOST_CHANCE * dur_ns[found.wait]
            late = done.and_last(found.take(is_near | is_open[found.wait]))
            pair, learnt = (
                2 * done.n_places * waits.place[wait] + done.place(source)
                for wait, source in (late[:2], (left[calls.wait], calls.source))
            )
            for some in (_late_ones(late, pair, learnt), calls._replace(wait=left[calls.wait])):
                caller[some.wait] = node[some.source % len(node)]
            support += more
        if not least_ns:
            near = near.take(near.distance_ns <= MOST_CHANCE * dur_ns[near.wait])
    called = caller >= 0
    edges = EdgeTable.of(Rule.WORKER_CALLED, caller[called], quiet.until[called])
    return Inferred(edges, support)
