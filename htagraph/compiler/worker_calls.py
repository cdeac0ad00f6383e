"""FLOW: a worker thread does nothing until another thread calls it.

Autograd threads, and those of a pool (stages of a server), record bursts. Between two of them a
worker waits to be called, so its gap is no Python time of its own: it is its caller's, or that of
what the caller waited for.

::

    thread 1   [aten::mm]    [aten::item]                 the caller: what it did until it called
                                        |-.
    thread 2   [MmBackward0]              '->[MmBackward0]

Who calls an autograd thread is known, and so is who calls a thread that is named as a worker of
PyTorch (``pt_data_pin``): the thread that steps. Elsewhere it is learnt: a burst begins, again and
again, at one distance from the same boundary of another thread (see
`htagraph.compiler.host_recurrences`). So is what a thread waits for that stands still inside a
range until a worker answers.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.codes import distinct, is_in
from htagraph.algorithms.gather import gather
from htagraph.compiler.flows import last_boundaries, worker_lanes
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
from htagraph.compiler.structure import Structure
from htagraph.model.edges import EdgeTable
from htagraph.model.inference import Inferred
from htagraph.model.rules import Rule
from htagraph.model.step_markers import PROFILER_STEP

__all__ = ["worker_call_edges"]

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_WORKER_NAME = re.compile(r"pt_data_(pin|worker)|pin_?memory", re.IGNORECASE)
_MOST_THREADS = 1_000
_MOST_COMPARED = 2_000_000
"""Stretches times threads: real traces have 150,000 at most."""

_NEAREST_BOUNDARIES = 4
_BOUNDARIES_OF_PLACE = 4
_BURST_FACTOR = 10


def _is_idle(structure: Structure, inside: I64) -> Bools:
    """Whether nothing but ranges, or a wait, is around."""
    idle: Bools = gather(structure.may_idle, inside, default=True)
    return idle


def _called_by_known(structure: Structure, quiet: Stretches, callers: dict[int, int]) -> EdgeTable:
    """Edges into the bursts of autograd threads, from what their caller did last.

    The caller has done something since the worker was idle, and is idle itself when the burst
    begins. Else it goes on with something else, or still waits for the burst before.
    """
    events, between = structure.events, structure.boundaries
    times = events.node_ts_ns
    shortest = _inside_burst_ns(structure)
    idle = _is_idle(structure, quiet.inside) & structure.goes_on(quiet.until)
    idle &= times[quiet.until] - times[quiet.since] > shortest
    parts = [EdgeTable()]
    for worker, caller in callers.items():
        mine = quiet.take(idle & (events.lane[quiet.until >> 1] == worker))
        last = between.last(np.full(len(mine.until), caller), times[mine.until])
        calls = gather(structure.is_idle, last, default=False)
        calls &= gather(between.ts_ns, last) >= times[mine.since]
        parts.append(EdgeTable.of(Rule.WORKER_CALLED, between.node[last[calls]], mine.until[calls]))
    return EdgeTable.concat(parts)


def _named_workers(structure: Structure, callers: dict[int, int]) -> dict[int, int]:
    """Lanes that are named as workers, each with the thread that steps, or that launches most."""
    events = structure.events
    lanes = distinct(events.lane[structure.host]).tolist()
    named = [lane for lane in lanes if _WORKER_NAME.search(events.lanes.thread[lane])]
    steps = events.named(events.symbols.searched(PROFILER_STEP)) & events.is_host
    acting = events.lane[steps] if steps.any() else events.lane[structure.launch]
    acting = acting[~np.isin(acting, [*named, *callers])]
    if not named or not len(acting):
        return {}
    return dict.fromkeys(set(named) - set(callers), int(np.bincount(acting).argmax()))


def _called_by_name(structure: Structure, quiet: Stretches, callers: dict[int, int]) -> EdgeTable:
    """Edges into the bursts of named workers, from what their caller did last.

    A caller that has done nothing since the worker was idle did not call it.
    """
    events, times = structure.events, structure.events.node_ts_ns
    begins = _is_idle(structure, quiet.inside) & structure.goes_on(quiet.until)
    parts = [EdgeTable()]
    for worker, caller in callers.items():
        mine = quiet.take(begins & (events.lane[quiet.until >> 1] == worker))
        last = last_boundaries(structure, caller, times[mine.until])
        calls = (last >= 0) & (times[last] >= times[mine.since])
        parts.append(EdgeTable.of(Rule.WORKER_CALLED, last[calls], mine.until[calls]))
    return EdgeTable.concat(parts)


def _openings(structure: Structure) -> Stretches:
    """From the first host event of the trace to the first of each thread."""
    between = structure.boundaries
    first = between.openings
    node = between.node[first].astype(np.int64)
    begin = node[np.argmin(between.ts_ns[first])]
    return Stretches(np.full(len(first), begin), node, np.full(len(first), -1), first)


def _side_stretches(structure: Structure, quiet: Stretches, callers: dict[int, int]) -> Stretches:
    """Those of threads whose caller is not known and that do not step, and of no operator."""
    events = structure.events
    steps = events.named(events.symbols.searched(PROFILER_STEP)) & events.is_host
    others = np.concatenate([events.lane[steps], np.array([*callers], dtype=np.int32)])
    side = ~is_in(events.lane[quiet.until >> 1], others)
    return quiet.take(side & _is_idle(structure, quiet.inside))


def _places(structure: Structure, targets: Stretches) -> I64:
    """Number of the place of each stretch: the range around, and the next boundaries.

    Where the thread's record ends before, the commonest place that begins alike.
    """
    names, between = plain_names(structure.events), structure.boundaries
    columns, end = [gather(names, targets.inside)], targets.end
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


def _threads_with_most(first: I64) -> I64:
    """Threads that may call others: of thousands, those that did most."""
    n_boundaries = np.diff(first)
    busy = np.flatnonzero(n_boundaries)
    most = np.argsort(-n_boundaries[busy], kind="stable")[:_MOST_THREADS]
    return np.sort(busy[most])


def _longest(structure: Structure, targets: Stretches) -> Stretches:
    """As many stretches as can be compared with what each thread did: the longest."""
    n_threads = min(len(structure.boundaries.openings), _MOST_THREADS)
    most = _MOST_COMPARED // max(n_threads, 1)
    if len(targets.until) <= most:
        return targets
    times = structure.events.node_ts_ns
    dur_ns = times[targets.until] - times[targets.since]
    kept = np.zeros(len(dur_ns), dtype=bool)
    kept[np.argsort(-dur_ns, kind="stable")[:most]] = True
    return targets.take(kept)


def _elsewhere(structure: Structure, targets: Stretches) -> Pairs:
    """Stretches, each with the last boundaries of every other thread before its end."""
    events = structure.events
    times = events.node_ts_ns
    between, node = structure.boundaries, structure.boundaries.node
    until_ns, own = times[targets.until], events.lane[targets.until >> 1]
    since_ns = times[targets.since]
    parts = []
    bounds = list(pairwise(between.first.tolist()))
    for lane in _threads_with_most(between.first).tolist():
        begin, end = bounds[lane]
        last = np.searchsorted(between.ts_ns[begin:end], until_ns, side="right") - 1
        for back in range(_NEAREST_BOUNDARIES):
            source = gather(node[begin:end], last - back).astype(np.int64)
            fits = (source >= 0) & (own != lane) & (gather(times, source) > since_ns)
            rows = np.flatnonzero(fits)
            parts.append((rows, source[rows]))
    none = np.empty(0, dtype=np.int64)
    stretch = np.concatenate([none, *(rows for rows, _ in parts)])
    source = np.concatenate([none, *(found for _, found in parts)])
    return Pairs(stretch, source, until_ns[stretch] - times[source])


def _learnt_calls(structure: Structure, targets: Stretches) -> Inferred:
    """Edges into the ends of stretches, from the boundary of another thread that recurs beside."""
    if not len(targets.until):
        return Inferred()
    targets = _longest(structure, targets)
    found = recurring(
        structure,
        Rule.WORKER_CALLED,
        (targets, _places(structure, targets)),
        _elsewhere(structure, targets),
        Sources(structure.host, plain_names(structure.events), starts=True),
    )
    until = targets.until[found.pairs.stretch]
    return Inferred(EdgeTable.of(Rule.WORKER_CALLED, found.pairs.source, until), found.support)


def _inside_burst_ns(structure: Structure) -> int:
    """Time that a worker may take between two events of one burst."""
    between = structure.boundaries
    idle = np.diff(between.ts_ns)[structure.is_idle[:-1] & between.is_followed[:-1]]
    idle = idle[idle > 0]
    usual = int(np.median(idle)) if len(idle) else 0
    return max(_BURST_FACTOR * usual, usual_wait_ns(structure))


def worker_call_edges(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges from what another thread did to where a worker goes on.

    Parameters
    ----------
    known : EdgeTable
        What ends with a SYNC, HIDDEN_SYNC or hand-over edge is explained.
    """
    events, host = structure.events, structure.host
    if not len(host) or (events.lane[host] == events.lane[host[0]]).all():
        return Inferred()
    times, openings = events.node_ts_ns, _openings(structure)
    is_long = times[openings.until] - times[openings.since] > usual_wait_ns(structure)
    both = zip(long_stretches(structure), openings.take(is_long), strict=True)
    quiet = Stretches(*(np.concatenate(columns) for columns in both))
    quiet = quiet.take(~is_in(quiet.until, explained_ends(known)))
    callers = worker_lanes(structure)
    called = _called_by_known(structure, quiet, callers)
    named = _named_workers(structure, callers)
    by_name = _called_by_name(structure, quiet, named)
    side = _side_stretches(structure, quiet, callers | named)
    learnt = _learnt_calls(structure, side)
    return Inferred(EdgeTable.concat([called, by_name, learnt.edges]), learnt.support)
