"""FLOW between Python threads, as a tracer of function calls shows them.

A thread that waits for a lock, a queue, a condition or another thread goes on once a lock is
released. What it waited for has no record of its own, but the call of the thread that released it
has: the last one, of another thread of its process, before the wait ended::

    MainThread   [Queue.get [lock.acquire                    ]  ]
                                                             ^
    producer     [load                ][Queue.put [lock.release]]

A thread also goes on when another one ends, and it begins with the call that starts it. A wait that
ends without either (a time limit) is time of its own.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.matching import group_starts
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule

__all__ = ["python_thread_edges"]

I64 = npt.NDArray[np.int64]

_WAKES_WITHIN_NS = 10_000_000
"""A woken thread also waits for the interpreter's lock, which changes hands every 5 ms."""

_STARTS = re.compile(r"^(_thread\.start_(new|joinable)_thread\b|Thread\.start \(.*threading\.py)")
_FINE = (
    re.compile(
        r"^(_?thread\.)?R?[lL]ock\.(acquire|__enter__)$|^_thread\._ThreadHandle\.join$"
        r"|^_queue\.SimpleQueue\.get$"
    ),
    re.compile(
        r"^(_?thread\.)?R?[lL]ock\.(release|__exit__|_release_save)$|^_queue\.SimpleQueue\.put$"
    ),
)
_COARSE = (
    re.compile(r"^(Condition\.wait|Thread\.join|Thread\._wait_for_tstate_lock) \("),
    re.compile(r"^(Condition\.notify|Event\.set|Queue\.(put|get)) \("),
)
"""Calls that wait and calls that release, where functions of C are traced and where not."""


def python_thread_edges(structure: Structure) -> EdgeTable:
    """Edges from releases of locks, and ends of threads, to waits; from starts to threads."""
    events = structure.events
    ops = structure.host[events.kind[structure.host] == EventKind.OP]
    waits = _named(structure, ops, _FINE[0])
    released = _named(structure, ops, _FINE[1])
    if not len(waits):
        waits, released = (_named(structure, ops, pattern) for pattern in _COARSE)
    starts = _named(structure, ops, _STARTS)
    if not len(waits) and not len(starts):
        return EdgeTable()
    node = structure.boundaries.node.astype(np.int64)
    is_first = group_starts(structure.boundaries.lane)
    first, last = node[is_first], node[np.roll(is_first, -1)]
    sources = np.concatenate([start_node(released), last])
    woken = _last_elsewhere(structure, sources, end_node(waits), events.ts_ns[waits])
    begun = _last_elsewhere(structure, start_node(starts), first)
    rows, threads = np.flatnonzero(woken >= 0), np.flatnonzero(begun >= 0)
    return EdgeTable.concat(
        [
            EdgeTable.of(Rule.LOCK_RELEASED, woken[rows], end_node(waits[rows]), event=waits[rows]),
            EdgeTable.of(Rule.THREAD_STARTED, begun[threads], first[threads]),
        ]
    )


def _named(structure: Structure, events: I64, pattern: re.Pattern[str]) -> I64:
    """Those of some events whose name matches."""
    table = structure.events
    return events[table.symbols.searched(pattern)[table.name[events]]]


def _last_elsewhere(
    structure: Structure, sources: I64, targets: I64, since_ns: I64 | None = None
) -> I64:
    """For each node the last of some nodes before it, of another thread of its process; or -1.

    No longer before than a woken thread may take, and after a time.
    """
    events, times = structure.events, structure.events.node_ts_ns
    pids = events.lanes.pid
    _, of_lane = np.unique([str(pid) for pid in pids] or [""], return_inverse=True)
    lane, own = events.lane[sources >> 1], events.lane[targets >> 1]
    until = times[targets]
    best_ns = until - _WAKES_WITHIN_NS
    if since_ns is not None:
        best_ns = np.maximum(best_ns, since_ns)
    best = np.full(len(targets), -1, dtype=np.int64)
    for thread in np.unique(lane).tolist():
        mine = sources[lane == thread]
        mine = mine[np.argsort(times[mine], kind="stable")]
        found = mine[np.searchsorted(times[mine], until, side="right") - 1]
        fits = (times[mine[0]] <= until) & (own != thread) & (of_lane[own] == of_lane[thread])
        fits &= times[found] > best_ns
        best[fits], best_ns[fits] = found[fits], times[found[fits]]
    return best
