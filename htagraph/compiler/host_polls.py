"""HIDDEN_SYNC: a host thread polls what the device writes, and no call says so.

A kernel writes a counter to memory of the host, which spins on it (DeepEP's ``notify_dispatch``),
or the host asks for an event again and again. The kernel may run on for a moment.

::

    thread 1   [launch]                         [aten::empty]     a gap of another length each time
    stream 7        [notify_dispatch              ]
                    '-------------------------->                  ran until the gap ended

That a gap ends beside the end of a kernel may be chance. It is a wait only if the thread launched
the kernel before, and the pair of places recurs: nearly all gaps of the place end at one distance
from such an end, far more tightly than chance would have it, while the gaps themselves differ in
length far more than that. (A sleep of one length beside kernels of one length looks the same.) What
is known to poll needs no recurrence.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts, last_before
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.edges import EdgeTable
from htagraph.model.events import EventTable
from htagraph.model.inference import Inferred, Support
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.rules import Rule

__all__ = ["host_poll_edges"]

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_POLLING_OPERATOR = re.compile(
    r"(?i)deep_?ep\b|^Buffer\.\w*(dispatch|notify)"
    r"|^aten::(item|_local_scalar_dense|is_nonzero|nonzero|masked_select)$"
)
"""Operators that do not end before the device has given them a value."""

_POLLED_KERNEL = re.compile(r"(?<!cached_)notify_dispatch")
"""Kernels that write what their host spins on."""

_QUERY = re.compile(r"^(cuda|hip|cu)(Event|Stream)Query")

_USUAL_FACTOR = 2
_NEARLY_ALL = 0.9
_FEWEST = 3
_NEAR_FACTOR = 10
_NEAR_POLLER_FACTOR = 20
_VARIES_FACTOR = 4
_BULK = (10, 90)
_MOST_CHANCE = 0.2
_SIGNIFICANCE = 1e-4
_FEWEST_QUERIES = 3


class _Stretches(NamedTuple):
    """Stretches of host time without a call, in order of nothing.

    Parameters
    ----------
    since, until : ndarray of shape (n,), dtype=int64
        Nodes.
    inside : ndarray of shape (n,), dtype=int64
        Operator or range that is innermost, -1 for none.
    """

    since: I64
    until: I64
    inside: I64

    def take(self, rows: I64 | Bools) -> _Stretches:
        """Some of them."""
        return _Stretches(*(column[rows] for column in self))


class _Pairs(NamedTuple):
    """Stretches, each with work of its thread that may have ended it.

    Parameters
    ----------
    stretch, work : ndarray of shape (n,), dtype=int64
        Position of the stretch, and the device event.
    distance_ns : ndarray of shape (n,), dtype=int64
        From the end of the work to that of the stretch; negative if the work ran on.
    """

    stretch: I64
    work: I64
    distance_ns: I64

    def take(self, rows: I64 | Bools) -> _Pairs:
        """Some of them."""
        return _Pairs(*(column[rows] for column in self))


def _usual_ns(structure: Structure) -> int:
    """Time below which a stretch is no wait, and a return from one is prompt."""
    calibration = structure.calibration
    return _USUAL_FACTOR * max(calibration.launch_usual_ns, calibration.stream_usual_ns)


def _steps(structure: Structure) -> _Stretches:
    """From each boundary of a host thread to the next."""
    nesting, host, events = structure.nesting, structure.host, structure.events
    owner = host[nesting.boundary >> 1]
    node = 2 * owner + (nesting.boundary & 1)
    same = np.flatnonzero(events.lane[owner[:-1]] == events.lane[owner[1:]])
    return _Stretches(node[same], node[same + 1], gather(host, nesting.innermost[same]))


def _quiet(structure: Structure, steps: _Stretches, explained: I64) -> _Stretches:
    """Long stretches in no call, on threads that launch, whose end is not explained yet."""
    events = structure.events
    launching = np.unique(events.lane[structure.launch[structure.launch >= 0]])
    times = events.node_ts_ns
    in_call = gather(events.kind, steps.inside, EventKind.OP) == EventKind.RUNTIME
    queries = events.named(events.symbols.searched(_QUERY))
    between = queries[steps.since >> 1] & queries[steps.until >> 1]
    keep = ~in_call & ~between & (times[steps.until] - times[steps.since] > _usual_ns(structure))
    keep &= np.isin(events.lane[steps.until >> 1], launching) & ~np.isin(steps.until, explained)
    return steps.take(keep)


def _query_loops(structure: Structure, steps: _Stretches) -> tuple[_Stretches, I64]:
    """Runs of queries from the first to the last, and the time of the last but one.

    Those below an operator are none: the caching allocator asks for each event that it keeps once.
    """
    events = structure.events
    times = events.node_ts_ns
    queries = events.named(events.symbols.searched(_QUERY)) & (events.kind == EventKind.RUNTIME)
    joins = queries[steps.since >> 1] & queries[steps.until >> 1]
    opens = joins & ~np.concatenate([[False], joins[:-1] & (steps.since[1:] == steps.until[:-1])])
    rows = np.flatnonzero(joins)
    run = np.cumsum(opens)[rows] - 1
    n_runs = int(opens.sum())
    first = np.searchsorted(run, np.arange(n_runs))
    last = np.searchsorted(run, np.arange(n_runs), side="right") - 1
    long = np.flatnonzero(last - first >= 2 * _FEWEST_QUERIES - 2)
    begins, ends = rows[first[long]], rows[last[long]]
    # The last query is the one that was answered; the gap before it is the last interval.
    gap = ends - 1
    found = _Stretches(steps.since[begins], steps.until[gap], steps.inside[gap])
    since_ns = times[steps.since[np.maximum(gap - 1, 0)]]
    whole_ns = times[found.until] - times[found.since]
    ok = gather(events.kind, found.inside, EventKind.ANNOTATION) == EventKind.ANNOTATION
    ok &= (whole_ns > _usual_ns(structure)) & (
        _NEAR_POLLER_FACTOR * (times[found.until] - since_ns) <= whole_ns
    )
    return found.take(ok), since_ns[ok]


def _beside(structure: Structure, stretches: _Stretches) -> _Pairs:
    """Work that the thread of a stretch launched before and that ended in it, or runs at its end.

    Of each stream the last that had started, and the one before.
    """
    events, queue = structure.events, structure.queue
    times = events.node_ts_ns
    since_ns, until_ns = times[stretches.since], times[stretches.until]
    lane = events.lane[stretches.until >> 1]
    bounds = np.append(np.flatnonzero(structure.queue_starts), len(queue))
    parts = []
    for begin, end in pairwise(bounds.tolist()):
        last = np.searchsorted(events.ts_ns[queue[begin:end]], until_ns) - 1
        for position in (last, last - 1):
            work = gather(queue[begin:end], position)
            call = gather(structure.launch, work)
            fits = (call >= 0) & (gather(events.lane, call) == lane)
            fits &= gather(events.ts_ns, call) <= since_ns
            fits &= gather(events.end_ns, work) > since_ns
            rows = np.flatnonzero(fits)
            parts.append((rows, work[rows]))
    none = np.empty(0, dtype=np.int64)
    stretch = np.concatenate([none, *(rows for rows, _ in parts)])
    work = np.concatenate([none, *(found for _, found in parts)])
    return _Pairs(stretch, work, until_ns[stretch] - events.end_ns[work])


def _plain_names(events: EventTable) -> I64:
    """Code of each event's name without numbers: steps and threads are numbered."""
    plain = [re.sub(r"\d+", "0", text) for text in events.symbols.texts]
    codes: dict[str, int] = {}
    of_symbol = np.array([codes.setdefault(text, len(codes)) for text in plain], dtype=np.int64)
    return of_symbol[events.name] if plain else np.empty(0, dtype=np.int64)


def _places(structure: Structure, stretches: _Stretches) -> I64:
    """Number of the place of each stretch: the operator around, and what begins or ends after."""
    events = structure.events
    names = _plain_names(events)
    is_op = gather(events.kind, stretches.inside) == EventKind.OP
    around = np.where(is_op, gather(names, stretches.inside), -1)
    after = names[stretches.until >> 1]
    columns = np.stack([around, after, stretches.until & 1])
    return np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _nearest(pairs: _Pairs, place: I64, name: I64) -> tuple[_Pairs, I64]:
    """Of each stretch and kernel name the work that ended nearest; by place and name, and which.

    Returns
    -------
    pairs : _Pairs
    starts : ndarray of shape (n_groups + 1,), dtype=int64
        Where each pair of a place and a name begins, and the end.
    """
    order = np.lexsort(
        (
            pairs.work,
            np.abs(pairs.distance_ns),
            pairs.stretch,
            name[pairs.work],
            place[pairs.stretch],
        )
    )
    pairs = pairs.take(order)
    at, of = place[pairs.stretch], name[pairs.work]
    pairs = pairs.take(group_starts(at, of, pairs.stretch))
    at, of = place[pairs.stretch], name[pairs.work]
    return pairs, np.append(np.flatnonzero(group_starts(at, of)), len(at))


def _log_tail(n_matched: int, n_all: int, chance: float) -> float:
    """Bound on the logarithm of the binomial probability of as many matches or more (Chernoff)."""
    share = n_matched / n_all
    if share <= chance:
        return 0.0
    missed = (1 - share) * np.log((1 - share) / (1 - chance)) if share < 1 else 0.0
    return float(-n_all * (share * np.log(share / chance) + missed))


class _Learnt(NamedTuple):
    """A pair of places that recurs: its rows, how many stretches there are, and how likely that is.

    Parameters
    ----------
    rows : ndarray of shape (n_matched,), dtype=int64
    n_all : int
    width_ns : int, unit=ns
    chance : float
    """

    rows: I64
    n_all: int
    width_ns: int
    chance: float


def _ends_between(structure: Structure, work: I64, since_ns: I64, until_ns: I64) -> I64:
    """Number of ends of work of the same name, at least 1, in some intervals."""
    events = structure.events
    same = structure.queue[events.name[structure.queue] == events.name[work[0]]]
    ends = np.sort(events.end_ns[same])
    n_ends: I64 = np.searchsorted(ends, until_ns) - np.searchsorted(ends, since_ns)
    return np.maximum(n_ends, 1)


def _recurs(
    structure: Structure, stretches: _Stretches, pairs: _Pairs, n_all: int, n_tested: int
) -> _Learnt | None:
    """A pair of places if its distances are far tighter than chance, and than its lengths."""
    times = structure.events.node_ts_ns
    n_matched = int(np.ceil(_NEARLY_ALL * n_all))
    order = np.argsort(pairs.distance_ns, kind="stable")
    distance = pairs.distance_ns[order]
    begin = int(np.argmin(distance[n_matched - 1 :] - distance[: len(distance) - n_matched + 1]))
    rows = order[begin : begin + n_matched]
    width = int(distance[begin + n_matched - 1] - distance[begin])
    width = max(width, structure.calibration.launch_floor_ns, 1)
    since_ns, until_ns = (
        times[column[pairs.stretch[rows]]] for column in (stretches.since, stretches.until)
    )
    length = until_ns - since_ns
    n_ends = _ends_between(structure, pairs.work[rows], since_ns, until_ns + width)
    chance = float(np.minimum(width * n_ends / length, 1.0).mean())
    low, high = np.percentile(length, _BULK, method="nearest").tolist()
    near = max(_usual_ns(structure), int(np.median(length)) // _NEAR_FACTOR)
    # One of the distances fixes where the others have to be.
    tail = _log_tail(n_matched - 1, n_all - 1, chance) + np.log(n_tested)
    recurs = (
        tail <= np.log(_SIGNIFICANCE)
        and chance <= _MOST_CHANCE
        and high - low >= _VARIES_FACTOR * width
        and abs(int(np.median(pairs.distance_ns[rows]))) <= near
    )
    around = np.abs(2 * pairs.distance_ns - distance[begin] - distance[begin + n_matched - 1])
    return _Learnt(np.flatnonzero(around <= 2 * width), n_all, width, chance) if recurs else None


def _learn(
    structure: Structure, stretches: _Stretches, pairs: _Pairs
) -> tuple[_Pairs, F64, tuple[Support, ...]]:
    """Pairs that recur, how wide the distances of each one's places are, and what says so."""
    place = _places(structure, stretches)
    counts = np.bincount(place) if len(place) else np.empty(0, dtype=np.int64)
    pairs, starts = _nearest(pairs, place, structure.events.name.astype(np.int64))
    at = place[pairs.stretch[starts[:-1]]] if len(pairs.stretch) else np.empty(0, dtype=np.int64)
    n_all = counts[at]
    often = (n_all >= _FEWEST) & (np.diff(starts) >= _NEARLY_ALL * n_all)
    found, supports = [], []
    for group in np.flatnonzero(often).tolist():
        rows = np.arange(starts[group], starts[group + 1])
        members = pairs.take(rows)
        learnt = _recurs(structure, stretches, members, int(n_all[group]), int(often.sum()))
        if learnt is not None:
            found.append((rows[learnt.rows], learnt.width_ns))
            supports.append(_support(structure, stretches, members.take(learnt.rows), learnt))
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(rows for rows, _ in found)])
    width = np.concatenate([np.empty(0), *(np.full(len(rows), width) for rows, width in found)])
    return pairs.take(rows), width, tuple(supports)


def _support(
    structure: Structure, stretches: _Stretches, pairs: _Pairs, learnt: _Learnt
) -> Support:
    """What a learnt pair rests on."""
    events = structure.events
    until = int(stretches.until[pairs.stretch[0]])
    source, target = events.names([pairs.work[0], until >> 1]).tolist()
    return Support(
        Rule.HOST_POLLS,
        source,
        f"inside {target}" if until & 1 else f"before {target}",
        len(pairs.work),
        learnt.n_all,
        int(np.median(pairs.distance_ns)),
        int(np.ptp(pairs.distance_ns)),
        learnt.chance,
    )


def _polling_operator(structure: Structure, stretches: _Stretches) -> I64:
    """Outermost operator around each stretch that is known to poll, -1 for none."""
    events = structure.events
    polls = events.named(events.symbols.searched(_POLLING_OPERATOR))
    found = np.full(len(stretches.since), -1, dtype=np.int64)
    current = stretches.inside.copy()
    while (current >= 0).any():
        hit = gather(polls, current, False)
        found[hit] = current[hit]
        current = gather(structure.parent, current)
    return found


def _pollers(structure: Structure, known: EdgeTable, stretches: _Stretches, pairs: _Pairs) -> Bools:
    """Which pairs need no recurrence: what runs there is known to poll, and no call below waits."""
    events = structure.events
    times = events.node_ts_ns
    length = (times[stretches.until] - times[stretches.since])[pairs.stretch]
    operator = _polling_operator(structure, stretches)[pairs.stretch]
    syncs = known.head[np.isin(known.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC))]
    syncs = syncs[events.is_host[syncs >> 1]]
    syncs = syncs[np.lexsort((times[syncs], events.lane[syncs >> 1]))]
    lane = events.lane.astype(np.int64)
    until = stretches.until[pairs.stretch]
    last = last_before(lane[syncs >> 1], times[syncs], lane[until >> 1], times[until] + 1)
    waited = gather(times, gather(syncs, last), np.iinfo(np.int64).min)
    reads = (operator >= 0) & (waited < gather(events.ts_ns, operator))
    reads &= (pairs.distance_ns >= 0) & (pairs.distance_ns <= _usual_ns(structure))
    spins = events.named(events.symbols.searched(_POLLED_KERNEL))[pairs.work]
    spins &= _NEAR_POLLER_FACTOR * np.abs(pairs.distance_ns) <= length
    return reads | spins


def _loop_pairs(structure: Structure, loops: _Stretches, since_ns: I64) -> _Pairs:
    """Loops of queries, with the work that ended between the last two."""
    pairs = _beside(structure, loops)
    ended = structure.events.end_ns[pairs.work]
    answered = structure.events.end_ns[loops.until >> 1][pairs.stretch]
    return pairs.take((ended >= since_ns[pairs.stretch]) & (ended <= answered))


def _edges(structure: Structure, stretches: _Stretches, pairs: _Pairs, rank: F64) -> EdgeTable:
    """One edge into the end of each stretch: of the pair of least rank, then of least distance."""
    events = structure.events
    order = np.lexsort((pairs.work, np.abs(pairs.distance_ns), rank, pairs.stretch))
    pairs = pairs.take(order)
    pairs = pairs.take(group_starts(pairs.stretch)) if len(order) else pairs
    until = stretches.until[pairs.stretch]
    runs_on = pairs.distance_ns < 0
    return EdgeTable.of(
        Rule.HOST_POLLS,
        np.where(runs_on, start_node(pairs.work), end_node(pairs.work)),
        until,
        lag_ns=np.where(runs_on, events.node_ts_ns[until] - events.ts_ns[pairs.work], 0),
        event=np.where(runs_on, pairs.work, until >> 1),
    )


def host_poll_edges(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges from device work to the end of a stretch in which its thread polled for it.

    From its end, or from its start if it ran on: the lag is how long it ran until then. Stretches
    are gaps and own time of operators, and loops of queries.

    Parameters
    ----------
    structure : Structure
    known : EdgeTable
        What ends with a SYNC, HIDDEN_SYNC or hand-over edge is explained.

    Returns
    -------
    Inferred
    """
    if not len(structure.host) or not len(structure.queue):
        return Inferred()
    waits = np.isin(known.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC))
    explained = known.head[waits | (known.rule == Rule.HAND_OVER)]
    steps = _steps(structure)
    quiet = _quiet(structure, steps, explained)
    pairs = _beside(structure, quiet)
    learnt, width, support = _learn(structure, quiet, pairs)
    certain = pairs.take(_pollers(structure, known, quiet, pairs))
    both = _Pairs(*(np.concatenate(columns) for columns in zip(certain, learnt, strict=True)))
    rank = np.concatenate([np.zeros(len(certain.work)), width])
    loops, since_ns = _query_loops(structure, steps)
    asked = _loop_pairs(structure, loops, since_ns)
    return Inferred(
        EdgeTable.concat(
            [
                _edges(structure, quiet, both, rank),
                _edges(structure, loops, asked, np.zeros(len(asked.work))),
            ]
        ),
        support,
    )
