"""FLOW: a worker thread does nothing until another thread calls it.

Threads of a pool (stages of a server) and workers (pinned memory) record bursts. Between two of
them a worker waits to be called, so its gap is not its own Python time: it belongs to its caller,
or to what the caller waited for.

::

    thread 1   [take request]    [take request]           the caller: what it did until it called
                             |-.
    thread 2   [run stage  ]   '->[run stage ]

Who calls is learnt: a burst begins, again and again, soon after the same boundary of another thread
(see `htagraph.compiler.recurrences`). So is what a thread waits for that stands still inside a
range until a worker answers. Autograd threads need no learning (`htagraph.compiler.flows`).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.codes import is_in
from htagraph.algorithms.gather import gather
from htagraph.compiler.flows import worker_lanes
from htagraph.compiler.recurrences import Candidates, Sources, Waits, recurring
from htagraph.compiler.stretches import (
    NUMBER,
    Stretches,
    explained_ends,
    long_stretches,
    plain_names,
    usual_wait_ns,
)
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.edges import EdgeTable
from htagraph.model.inference import Inferred
from htagraph.model.rules import Rule
from htagraph.model.step_markers import PROFILER_STEP

__all__ = ["worker_call_edges"]

I64 = npt.NDArray[np.int64]

_MOST_THREADS = 1_000
"""A limit of time: threads that may call others; of more, those that did most."""
_MOST_COMPARED = 2_000_000
"""A limit of memory: stretches times threads. Real traces have 150,000 at most."""
_NEAREST_BOUNDARIES = 4
"""Last boundaries of another thread that may have called: it may do more before the worker
wakes."""
_BOUNDARIES_OF_PLACE = 4
"""Boundaries after a wait that tell its place: stages of a server begin alike."""


def _openings(structure: Structure) -> Stretches:
    """From the first host event of the trace to the first of each thread."""
    between = structure.boundaries
    first = between.openings
    node = between.node[first].astype(np.int64)
    begin = node[np.argmin(between.ts_ns[first])]
    return Stretches(np.full(len(first), begin), node, np.full(len(first), -1), first)


def _quiet(structure: Structure, known: EdgeTable) -> Stretches:
    """Long stretches in no operator that nothing explains, of threads that do not step.

    Autograd threads are called by handoffs, and where they were not, their gaps are their own.
    """
    events, times = structure.events, structure.events.node_ts_ns
    openings = _openings(structure)
    is_long = times[openings.until] - times[openings.since] > usual_wait_ns(structure)
    both = zip(long_stretches(structure), openings.take(is_long), strict=True)
    quiet = Stretches(*(np.concatenate(columns) for columns in both))
    steps = events.named(events.symbols.searched(PROFILER_STEP)) & events.is_host
    others = np.concatenate([events.lane[steps], np.array([*worker_lanes(structure)], np.int32)])
    fits = ~is_in(events.lane[quiet.until >> 1], others)
    fits &= ~is_in(quiet.until, explained_ends(known))
    return quiet.take(fits & gather(structure.may_idle, quiet.inside, default=True))


def _places(structure: Structure, quiet: Stretches, names: npt.NDArray[np.int32]) -> I64:
    """Number of the place of each stretch: the range around, and the next boundaries.

    Where the thread's record ends before, the commonest place that begins alike.
    """
    between = structure.boundaries
    columns, end = [gather(names, quiet.inside)], quiet.end
    for _ in range(_BOUNDARIES_OF_PLACE):
        node = gather(between.node, end)
        columns.append(np.where(node >= 0, 2 * gather(names, node >> 1) + (node & 1), -1))
        end = np.where(gather(between.is_followed, end, default=False), end + 1, -1)
    found, place, counts = np.unique(
        np.stack(columns), axis=1, return_inverse=True, return_counts=True
    )
    same = np.arange(found.shape[1])
    for cut in np.flatnonzero(found[-1] < 0).tolist():
        n_known = 1 + int((found[1:, cut] >= 0).sum())
        alike = np.flatnonzero((found[:n_known] == found[:n_known, [cut]]).all(axis=0))
        same[cut] = alike[np.lexsort((alike, counts[alike]))[-1]]
    places: I64 = same[place.reshape(-1)]
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
    own = structure.events.lane[quiet.until >> 1]
    none = np.empty(0, dtype=np.int64)
    parts = [(none, none)]
    bounds = list(pairwise(between.first.tolist()))
    for lane in threads:
        begin, end = bounds[lane]
        last = np.searchsorted(between.ts_ns[begin:end], until_ns, side="right") - 1
        for back in range(_NEAREST_BOUNDARIES):
            source = gather(between.node[begin:end], last - back).astype(np.int64)
            fits = (source >= 0) & (own != lane) & (gather(times, source) > since_ns)
            rows = np.flatnonzero(fits)
            parts.append((rows, source[rows]))
    wait, source = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Candidates(wait, source, until_ns[wait] - times[source])


def worker_call_edges(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges from what another thread did to where a worker continues.

    Parameters
    ----------
    known : EdgeTable
        What ends with a SYNC, HIDDEN_SYNC or handoff edge is explained.
    """
    events, host = structure.events, structure.host
    if not len(host) or (events.lane[host] == events.lane[host[0]]).all():
        return Inferred()
    threads = _busiest_threads(structure)
    quiet = _longest(structure, _quiet(structure, known), len(threads))
    if not len(quiet.until):
        return Inferred()
    times, names = events.node_ts_ns, plain_names(events)

    def place(node: I64) -> I64:
        of: I64 = 2 * names[node >> 1].astype(np.int64) + (node & 1)
        return of

    def label(node: int) -> str:
        text = NUMBER.sub("#", events.symbols.texts[events.name[node >> 1]])
        return f"{'end' if node & 1 else 'start'} of {text}"

    nodes = np.concatenate([start_node(host), end_node(host)])
    found = _elsewhere(structure, quiet, threads)
    calls, support = recurring(
        Rule.WORKER_CALLED,
        Waits(
            quiet.until,
            times[quiet.since],
            times[quiet.until],
            _places(structure, quiet, names),
        ),
        found,
        (Sources(nodes, times[nodes], place(nodes)), place(found.source)),
        label,
    )
    return Inferred(
        EdgeTable.of(Rule.WORKER_CALLED, calls.source, quiet.until[calls.wait]), support
    )
