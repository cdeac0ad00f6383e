"""HIDDEN_SYNC: a host thread polls what the device writes, and no call says so.

A kernel writes a counter to memory of the host, which spins on it (DeepEP's ``notify_dispatch``),
or the host asks for an event again and again. The kernel may run on for a moment.

::

    thread 1   [launch]                         [aten::empty]     a gap of another length each time
    stream 7        [notify_dispatch              ]
                    '-------------------------->                  ran until the gap ended

That a gap ends beside the end of a kernel may be chance. It is a wait only if the thread launched
the kernel before, and the pair of places recurs (see `htagraph.compiler.host_recurrences`). What is
known to poll needs no recurrence.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.codes import is_in
from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts, last_before
from htagraph.compiler.host_recurrences import (
    Pairs,
    Sources,
    Stretches,
    explained_ends,
    long_stretches,
    plain_names,
    recurring,
    usual_wait_ns,
)
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.api_calls import POLLS
from htagraph.model.edges import EdgeTable
from htagraph.model.inference import Inferred
from htagraph.model.kinds import EdgeKind, EventKind, among
from htagraph.model.rules import Rule

__all__ = ["host_poll_edges"]

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_POLLING_OPERATOR = re.compile(
    r"(?i)deep_?ep\b|^Buffer\.\w*(dispatch|notify)"
    r"|^aten::(item|_local_scalar_dense|is_nonzero|nonzero|masked_select)$"
)
"""Operators that do not end before the device has given them a value."""

_POLLED_KERNEL = re.compile(r"(?<!cached_)notify_dispatch")
"""Kernels that write what their host spins on."""

_NEAR_POLLER_FACTOR = 20
_FEWEST_QUERIES = 3


def _quiet(structure: Structure, explained: I64) -> Stretches:
    """Long stretches in no call, on threads that launch, whose end is not explained yet."""
    events = structure.events
    launching, steps = events.lane[structure.is_launch], long_stretches(structure)
    in_call = gather(events.kind, steps.inside, EventKind.OP) == EventKind.RUNTIME
    queries = events.named(events.symbols.searched(POLLS))
    between = queries[steps.since >> 1] & queries[steps.until >> 1]
    keep = ~in_call & ~between
    keep &= is_in(events.lane[steps.until >> 1], launching) & ~is_in(steps.until, explained)
    return steps.take(keep)


def _query_loops(structure: Structure) -> tuple[Stretches, I64]:
    """Runs of queries from the first to the last, and the time of the last but one.

    Those below an operator are none: the caching allocator asks for each event that it keeps once.
    """
    events, between = structure.events, structure.boundaries
    queries = events.named(events.symbols.searched(POLLS)) & (events.kind == EventKind.RUNTIME)
    asks = queries[between.node >> 1]
    rows = np.flatnonzero(asks[:-1] & asks[1:] & between.is_followed[:-1])
    run = np.cumsum(np.diff(rows, prepend=-2) > 1) - 1
    n_runs = int(run[-1]) + 1 if len(run) else 0
    first = np.searchsorted(run, np.arange(n_runs))
    last = np.searchsorted(run, np.arange(n_runs), side="right") - 1
    long = np.flatnonzero(last - first >= 2 * _FEWEST_QUERIES - 2)
    begins, ends = rows[first[long]], rows[last[long]]
    # The last query is the one that was answered; the gap before it is the last interval.
    found = Stretches.at(between, begins, ends)
    since_ns, until_ns = between.ts_ns[ends - 2], between.ts_ns[ends]
    whole_ns = until_ns - between.ts_ns[begins]
    ok = structure.is_idle[ends - 1] & (whole_ns > usual_wait_ns(structure))
    ok &= _NEAR_POLLER_FACTOR * (until_ns - since_ns) <= whole_ns
    return found.take(ok), since_ns[ok]


def _beside(structure: Structure, stretches: Stretches) -> Pairs:
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
    return Pairs(stretch, end_node(work), until_ns[stretch] - events.end_ns[work])


def _most_telling(structure: Structure, pairs: Pairs) -> Pairs:
    """Where a kernel that is known to be polled is beside a stretch, only that."""
    events = structure.events
    polled = events.named(events.symbols.searched(_POLLED_KERNEL))[pairs.source >> 1]
    return pairs.take(polled | ~np.isin(pairs.stretch, pairs.stretch[polled]))


def _places(structure: Structure, stretches: Stretches) -> I64:
    """Number of the place of each stretch: the operator around, and what begins or ends after."""
    events = structure.events
    names = plain_names(events)
    is_op = gather(events.kind, stretches.inside) == EventKind.OP
    around = np.where(is_op, gather(names, stretches.inside), -1)
    after = names[stretches.until >> 1]
    columns = np.stack([around, after, stretches.until & 1])
    return np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _polling_operator(structure: Structure, stretches: Stretches) -> I64:
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


def _pollers(structure: Structure, known: EdgeTable, stretches: Stretches, pairs: Pairs) -> Bools:
    """Which pairs need no recurrence: what runs there is known to poll, and no call below waits."""
    events = structure.events
    times = events.node_ts_ns
    length = (times[stretches.until] - times[stretches.since])[pairs.stretch]
    operator = _polling_operator(structure, stretches)[pairs.stretch]
    syncs = known.head[among(known.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC))]
    syncs = syncs[events.is_host[syncs >> 1]]
    syncs = syncs[np.lexsort((times[syncs], events.lane[syncs >> 1]))]
    lane = events.lane.astype(np.int64)
    until = stretches.until[pairs.stretch]
    last = last_before(lane[syncs >> 1], times[syncs], lane[until >> 1], times[until] + 1)
    waited = gather(times, gather(syncs, last), np.iinfo(np.int64).min)
    reads = (operator >= 0) & (waited < gather(events.ts_ns, operator))
    reads &= (pairs.distance_ns >= 0) & (pairs.distance_ns <= usual_wait_ns(structure))
    spins = events.named(events.symbols.searched(_POLLED_KERNEL))[pairs.source >> 1]
    spins &= _NEAR_POLLER_FACTOR * np.abs(pairs.distance_ns) <= length
    spins &= pairs.distance_ns <= usual_wait_ns(structure)
    polls: Bools = reads | spins
    return polls


def _loop_pairs(structure: Structure, loops: Stretches, since_ns: I64) -> Pairs:
    """Loops of queries, with the work that ended between the last two."""
    pairs = _beside(structure, loops)
    ended = structure.events.end_ns[pairs.source >> 1]
    answered = structure.events.end_ns[loops.until >> 1][pairs.stretch]
    return pairs.take((ended >= since_ns[pairs.stretch]) & (ended <= answered))


def _edges(structure: Structure, stretches: Stretches, *found: Pairs) -> EdgeTable:
    """One edge into the end of each stretch: of the first that found it, then of least distance."""
    events = structure.events
    pairs = Pairs(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
    turn = np.repeat(np.arange(len(found)), [len(each.stretch) for each in found])
    keys = (events.dur_ns[pairs.source >> 1], np.abs(pairs.distance_ns), turn, pairs.stretch)
    pairs = pairs.take(np.lexsort(keys))
    pairs = pairs.take(group_starts(pairs.stretch))
    until, work = stretches.until[pairs.stretch], pairs.source >> 1
    runs_on = pairs.distance_ns < 0
    return EdgeTable.of(
        Rule.HOST_POLLS,
        np.where(runs_on, start_node(work), end_node(work)),
        until,
        lag_ns=np.where(runs_on, events.node_ts_ns[until] - events.ts_ns[work], 0),
        event=np.where(runs_on, work, until >> 1),
    )


def host_poll_edges(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges from device work to the end of a stretch in which its thread polled for it.

    From its end, or from its start if it ran on: the lag is how long it ran until then. Stretches
    are gaps and own time of operators, and loops of queries.

    Parameters
    ----------
    known : EdgeTable
        What ends with a SYNC, HIDDEN_SYNC or hand-over edge is explained.
    """
    if not len(structure.host) or not len(structure.queue):
        return Inferred()
    quiet = _quiet(structure, explained_ends(known))
    pairs = _most_telling(structure, _beside(structure, quiet))
    place = _places(structure, quiet)
    learnt = recurring(
        structure,
        Rule.HOST_POLLS,
        (quiet, place),
        pairs,
        Sources(structure.queue, structure.events.name),
    )
    certain = pairs.take(_pollers(structure, known, quiet, pairs))
    certain = certain.take(~np.isin(place[certain.stretch], place[learnt.pairs.stretch]))
    loops, since_ns = _query_loops(structure)
    found = [
        _edges(structure, quiet, certain, learnt.pairs),
        _edges(structure, loops, _loop_pairs(structure, loops, since_ns)),
    ]
    return Inferred(EdgeTable.concat(found), learnt.support)
