"""HIDDEN_SYNC: a host thread waits for device work without a call that waits.

A kernel writes a counter to memory of the host, which spins on it (DeepEP's ``notify_dispatch``);
an operator reads a value off the device, and its synchronization was not recorded; the host queries
an event again and again. ``cudaEventElapsedTime`` needs completed events, so its caller waited for
them, though some profilers leave ``cudaEventSynchronize`` out::

    thread 1   [launch]                         [aten::empty]
    stream 7        [notify_dispatch              ]
                    '-------------------------->                  ran until the gap ended

A gap that ends with a kernel may be chance. It is a wait only if the kernel was launched before, by
any thread, and one of these is known to wait there. Of several kernels, the one with the nearest
end is waited for.

PyTorch's caching allocator waits, too, before it gives memory back: what another stream used is
free once its work there has ended. Old profilers recorded no call for this wait::

    thread 1   [cudaMalloc]                         [cudaFree][cudaFree][cudaMalloc]
    stream 20       [ncclDevKernel_SendRecv     ]
                                                '-->

An operator that allocates, is silent, frees and allocates again has that allocator. What it waited
for is the work that ended right before. If work of several streams did, nothing tells which.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from htagraph.arrays.codes import gather, is_in, take
from htagraph.arrays.matching import group_starts, last_before
from htagraph.compiler.late_starts import ended_before
from htagraph.compiler.stretches import Stretches, explained_ends, long_stretches, usual_wait_ns
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.api_calls import ALLOCATION, ALLOCATOR_WALK_NS, POLLS, CallMeaning
from htagraph.model.arrays import I64, Bools
from htagraph.model.edges import EdgeTable, Inferred
from htagraph.model.kinds import EdgeKind, EventKind, among
from htagraph.model.rules import Rule

_POLLING_OPERATOR = re.compile(
    r"(?i)deep_?ep\b|^Buffer\.\w*(dispatch|notify)"
    r"|^aten::(item|_local_scalar_dense|is_nonzero|nonzero|masked_select)$"
)
"""Operators that do not end before the device has given them a value."""

_POLLED_KERNEL = re.compile(r"(?<!cached_)notify_dispatch")
"""Kernels that write what their host spins on."""

_PART_OF_WAIT = 8
"""What waits continues so near to the end of the work, before or after: within as small a part of
its wait (chosen). What a host spins on is written in the kernel, not at its end (27 to 67 us before
it, where waits of 20 to 28 ms on H800 ended)."""

_FEWEST_QUERIES = 20
"""A loop of queries is as many in a row: each may be of another event, but hardly of so many
(chosen)."""


class _Beside(NamedTuple):
    """Stretches, each with work of the device that may have ended it; all of shape (n,)."""

    stretch: I64  # Row of the stretch
    work: I64
    distance_ns: I64  # From end to end; negative if the work ran on


def _quiet(structure: Structure, known: EdgeTable) -> Stretches:
    """Long stretches in no call whose end is not explained yet."""
    events, steps = structure.events, long_stretches(structure)
    in_call = gather(events.kind, steps.inside, EventKind.OP) == EventKind.RUNTIME
    queries = events.searched(POLLS)
    between = queries[steps.since >> 1] & queries[steps.until >> 1]
    return take(steps, ~in_call & ~between & ~is_in(steps.until, explained_ends(known)))


def _query_loops(structure: Structure) -> tuple[Stretches, I64]:
    """Runs of queries from the first to the last, and the time of the last but one.

    Those below an operator are none: the caching allocator queries each event that it keeps once.
    """
    events, between = structure.events, structure.boundaries
    queries = events.searched(POLLS) & (events.kind == EventKind.RUNTIME)
    is_query = queries[between.node >> 1]
    rows = np.flatnonzero(is_query[:-1] & is_query[1:] & between.is_followed[:-1])
    run = np.cumsum(np.diff(rows, prepend=-2) > 1) - 1
    n_runs = int(run[-1]) + 1 if len(run) else 0
    first = np.searchsorted(run, np.arange(n_runs))
    last = np.searchsorted(run, np.arange(n_runs), side="right") - 1
    # A query has two boundaries, and the first of a run is no row's end.
    long = np.flatnonzero(last - first >= 2 * _FEWEST_QUERIES - 2)
    begins, ends = rows[first[long]], rows[last[long]]
    # The last query is the one that was answered; the gap before it is the last interval.
    found = Stretches.at(between, begins, ends)
    since_ns, until_ns = between.ts_ns[ends - 2], between.ts_ns[ends]
    ok = structure.is_idle[ends - 1]
    ok &= until_ns - between.ts_ns[begins] > usual_wait_ns(structure)
    return take(found, ok), since_ns[ok]


def _beside(structure: Structure, stretches: Stretches) -> _Beside:
    """Work that was launched before a stretch and that ended in it, or runs at its end.

    Of each stream the last that had started, and the one before. A thread that launches nothing, as
    a watchdog, waits for none.
    """
    events, queue = structure.events, structure.queue
    times = events.node_ts_ns
    since_ns, until_ns = times[stretches.since], times[stretches.until]
    launches = is_in(events.lane[stretches.until >> 1], events.lane[structure.is_launch])
    bounds = np.append(np.flatnonzero(structure.queue_starts), len(queue))
    parts = [(np.empty(0, dtype=np.int64),) * 2]
    for begin, end in pairwise(bounds.tolist()):
        last = np.searchsorted(events.ts_ns[queue[begin:end]], until_ns) - 1
        for position in (last, last - 1):
            work = gather(queue[begin:end], position)
            call = gather(structure.launch, work)
            fits = launches & (call >= 0) & (gather(events.ts_ns, call) <= since_ns)
            fits &= gather(events.end_ns, work) > since_ns
            rows = np.flatnonzero(fits)
            parts.append((rows, work[rows]))
    stretch, work = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return _Beside(stretch, work, until_ns[stretch] - events.end_ns[work])


def _polling_operator(structure: Structure, stretches: Stretches) -> I64:
    """Outermost operator around each stretch that is known to poll, -1 for none."""
    events = structure.events
    polls = events.searched(_POLLING_OPERATOR)
    found = np.full(len(stretches.since), -1, dtype=np.int64)
    current = stretches.inside.copy()
    while (current >= 0).any():
        hit = gather(polls, current, False)
        found[hit] = current[hit]
        current = gather(structure.parent, current)
    return found


def _waited_ns(structure: Structure, known: EdgeTable, until: I64) -> I64:
    """Time of the last wait of each node's thread up to the node; long ago for none."""
    events, times = structure.events, structure.events.node_ts_ns
    syncs = known.head[among(known.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC))]
    syncs = syncs[events.is_host[syncs >> 1]]
    syncs = syncs[np.lexsort((times[syncs], events.lane[syncs >> 1]))]
    lane = events.lane.astype(np.int64)
    last = last_before(lane[syncs >> 1], times[syncs], lane[until >> 1], times[until] + 1)
    return gather(times, gather(syncs, last), np.iinfo(np.int64).min)


def _waits(structure: Structure, known: EdgeTable, quiet: Stretches, beside: _Beside) -> Bools:
    """Which pairs are waits, by what runs there."""
    events, usual = structure.events, usual_wait_ns(structure)
    until = quiet.until[beside.stretch]
    is_prompt = (beside.distance_ns >= 0) & (beside.distance_ns <= usual)
    operator = _polling_operator(structure, quiet)[beside.stretch]
    # A call below the operator that waits has got its value already.
    reads = (operator >= 0) & (_waited_ns(structure, known, until) < gather(events.ts_ns, operator))
    elapsed = (structure.meanings[until >> 1] == CallMeaning.ELAPSED_TIME) & (until & 1 == 0)
    elapsed &= gather(structure.may_idle, quiet.inside, default=True)[beside.stretch]
    # The counter is written while the kernel runs: the host may continue before it ends.
    length_ns = (events.node_ts_ns[quiet.until] - events.node_ts_ns[quiet.since])[beside.stretch]
    polled = events.searched(_POLLED_KERNEL)[beside.work]
    spins = polled & (np.abs(beside.distance_ns) <= length_ns // _PART_OF_WAIT)
    # What spins on one kernel does not wait for another that happens to end there.
    reads &= ~np.isin(beside.stretch, beside.stretch[polled])
    waits: Bools = spins | (is_prompt & (reads | elapsed))
    return waits


def _edges(structure: Structure, stretches: Stretches, found: _Beside) -> EdgeTable:
    """One edge into the end of each stretch, from the nearest work."""
    events = structure.events
    keys = (events.dur_ns[found.work], np.abs(found.distance_ns), found.stretch)
    found = take(found, np.lexsort(keys))
    found = take(found, group_starts(found.stretch))
    until, work = stretches.until[found.stretch], found.work
    runs_on = found.distance_ns < 0
    return EdgeTable.of(
        Rule.HOST_POLLS,
        np.where(runs_on, start_node(work), end_node(work)),
        until,
        lag_ns=np.where(runs_on, events.node_ts_ns[until] - events.ts_ns[work], 0),
        event=np.where(runs_on, work, until >> 1),
    )


def host_poll_edges(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges from device work to the end of a stretch in which its thread waited for it.

    From its end, or from its start if it ran on: the lag is how long it ran until then. Stretches
    are gaps, own time of operators, and loops of queries; those that `known` edges explain are not.
    """
    if not len(structure.host) or not len(structure.queue):
        return Inferred()
    quiet = _quiet(structure, known)
    beside = _beside(structure, quiet)
    waits = take(beside, _waits(structure, known, quiet, beside))
    loops, since_ns = _query_loops(structure)
    polled = _beside(structure, loops)
    # What a loop waited for ended between its last two queries.
    ended_ns = structure.events.end_ns[polled.work]
    answered = ended_ns >= since_ns[polled.stretch]
    answered &= ended_ns <= structure.events.end_ns[loops.until >> 1][polled.stretch]
    edges = [_edges(structure, quiet, waits), _edges(structure, loops, take(polled, answered))]
    return Inferred(EdgeTable.concat(edges))


def _retries(structure: Structure) -> Stretches:
    """Long stretches from an allocation to a call that frees, in an operator that then allocates.

    All three calls are of one operator, and nothing is recorded in between.
    """
    events, parent = structure.events, structure.parent
    frees = structure.meanings == CallMeaning.FREE
    allocates = events.searched(ALLOCATION) & ~frees
    calls = np.flatnonzero(allocates & (events.kind == EventKind.RUNTIME))
    calls = calls[np.lexsort((events.ts_ns[calls], events.lane[calls]))]
    again = np.full(len(events), -1, dtype=np.int64)
    again[calls[:-1]] = calls[1:]
    steps = long_stretches(structure)
    failed, freed = steps.since >> 1, steps.until >> 1
    fits = (steps.since & 1 == 1) & (steps.until & 1 == 0) & frees[freed] & (again[failed] >= 0)
    fits &= gather(events.kind, parent[failed], EventKind.ANNOTATION) == EventKind.OP
    for call in (freed, again[failed]):
        fits &= (parent[call] == parent[failed]) & (events.lane[call] == events.lane[failed])
    times = events.node_ts_ns
    return take(steps, fits & (times[steps.until] - times[steps.since] > ALLOCATOR_WALK_NS))


def _ended_last(structure: Structure, steps: Stretches) -> I64:
    """Work that ended right before the end of each stretch, -1 for none or on several streams."""
    events, times = structure.events, structure.events.node_ts_ns
    since_ns, until_ns = times[steps.since], times[steps.until]
    found = np.full(len(until_ns), -1, dtype=np.int64)
    n_streams = np.zeros(len(until_ns), dtype=np.int64)
    for queue in range(len(structure.enqueued_bounds) - 1):
        work, end_ns = ended_before(structure, queue, until_ns)
        ended = until_ns - end_ns <= ALLOCATOR_WALK_NS
        found[ended] = work[ended]
        n_streams += ended
    left_ns = until_ns - gather(events.end_ns, found)
    waited = (n_streams == 1) & (_PART_OF_WAIT * left_ns <= until_ns - since_ns)
    waited &= structure.launched_ns(found) <= since_ns
    return np.where(waited, found, -1)


def allocator_wait_edges(structure: Structure) -> EdgeTable:
    """Edges from the work that an allocator waited for to its first call that frees memory."""
    if not len(structure.queue) or not (structure.meanings == CallMeaning.FREE).any():
        return EdgeTable()
    steps = _retries(structure)
    work = _ended_last(structure, steps)
    rows = np.flatnonzero(work >= 0)
    until = steps.until[rows]
    return EdgeTable.of(Rule.ALLOCATOR_WAITS, end_node(work[rows]), until, event=until >> 1)
