"""FLOW between Python threads, as a tracer of function calls shows them.

A thread that waits for a lock, a queue, a condition or another thread goes on once another thread
releases what it waits for. Which lock that is no trace records, but calls tell its sort: a wait in
``Queue.get`` ends with a release in ``Queue.put``, of this queue or another::

    MainThread   [Queue.get [lock.acquire                                    ]  ]
                                                                             ^
    producer     [load                ][Queue.put [Condition.notify [lock.release]]]

So a wait ends with the last release of its sort, if only one thread has any while it lasts. Where
several have, either may have ended it, and none is said to. A wait in ``Thread.join`` ends with a
thread, in the same way; a function that starts threads and joins as many joins them in that order,
if times allow it. A thread begins with the call that starts it. A wait that ends without any of
these (a time limit) is time of its own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts, last_before
from htagraph.compiler.structure import Structure, start_node
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule

__all__ = ["python_thread_edges"]

I64 = npt.NDArray[np.int64]
Rows = npt.NDArray[np.integer]
Bool = npt.NDArray[np.bool_]

_WAKES_WITHIN_NS = 50_000_000
"""A woken thread also waits for the interpreter's lock, which changes hands every 5 ms, maybe to
other threads first."""

_JOINED_WITHIN_NS = 1_000_000
"""Of threads joined in the order of their starts, each is known to have ended so soon before."""

_STARTS = re.compile(r"^(_thread\.start_(new|joinable)_thread\b|Thread\.start \(.*threading\.py)")
_OF_C = re.compile(
    r"^(_?thread\.)?R?[lL]ock\.(acquire|__enter__|release|__exit__|_release_save)$"
    r"|^_thread\._ThreadHandle\.join$|^_queue\.SimpleQueue\.(get|put)$"
)
_OF_PYTHON = re.compile(
    r"^(Condition\.(wait|notify)|Thread\.(join|_wait_for_tstate_lock)) \(.*threading\.py"
)
"""Calls that wait and calls that release, where functions of C are traced and where not."""

_WAITS = re.compile(r"^[\w.]+\.(acquire|__enter__|join|get|wait|_wait_for_tstate_lock)\b")
_OF_QUEUES = re.compile(r"^_queue\.")
_START = re.compile(r"^Thread\.start \(.*threading\.py")
_JOIN = re.compile(r"^Thread\.join \(.*threading\.py")
_JOINS = re.compile(r"^Thread\.(join|_wait_for_tstate_lock) \(.*threading\.py|_ThreadHandle\.join$")
_CONDITION = re.compile(r"^Condition\.\w+ \(.*threading\.py")
_NOTIFIED = re.compile(r"^Condition\.wait \(.*threading\.py")
_NOTIFIES = re.compile(r"^Condition\.notify \(.*threading\.py")
_GIVES_UP = re.compile(r"^collections\.deque\.remove$")
"""Within ``Condition.wait``: whom nobody notified in time is no longer to be notified."""
_BEGINS = re.compile(r"^Thread\.(start|_bootstrap_inner) \(.*threading\.py")
"""Who waits until a thread has begun, and the thread, which says so."""

_LIBRARY = re.compile(
    r"^(?:Bounded)?(Event|Queue|Semaphore|Barrier|Future)(\.\w+) "
    r"\(.*(?:threading|queue|futures.*_base)\.py"
)
_NOTIFIED_BY = {"Queue.get": "Queue.put", "Queue.put": "Queue.get", "Queue.join": "Queue.task_done"}
"""Of a class that has several conditions, the method that notifies those who wait in another."""

_BEGIN, _END, _ITEM, _MORE = range(4)
"""Sorts that are the same in each trace: begin and end of a thread, an item of a ``SimpleQueue``;
and the first of those that are not."""


class _Calls(NamedTuple):
    """What calls are that wait, or release; those of one `sort` may belong together."""

    sort: I64
    is_wait: Bool
    is_lock: Bool
    """Whether who waits gets something that it gives back."""


class _Points(NamedTuple):
    """Nodes of some sorts."""

    node: I64
    sort: I64


def python_thread_edges(structure: Structure) -> EdgeTable:
    """Edges from releases of locks, and ends of threads, to waits; from starts to threads."""
    events = structure.events
    ops = structure.host[events.kind[structure.host] == EventKind.OP]
    named = _named(structure, ops, _OF_C)
    if not len(named):
        named = _named(structure, ops, _OF_PYTHON)
    starts = _named(structure, ops, _STARTS)
    if not len(named) and not len(starts):
        return EdgeTable()
    node = structure.boundaries.node.astype(np.int64)
    is_first = group_starts(structure.boundaries.lane)
    first, last = node[is_first], node[np.roll(is_first, -1)]
    begins = _Points(first, np.full(len(first), _BEGIN))
    started = _Points(start_node(starts), np.full(len(starts), _BEGIN))
    begun = _last_of_one_thread(structure, started, begins)
    calls, ends = _calls(structure, named), np.full(len(last), _END)
    joins, threads = _joined(structure, ops, begun, last)
    pair, more = _around(structure, named, joins), 1 + calls.sort.max(initial=_MORE)
    calls.sort[pair >= 0], ends[threads] = more + pair[pair >= 0], more + np.arange(len(threads))
    is_ended = calls.is_wait & ~_gives_up(structure, ops, named) & _gets(structure, named, calls)
    since, until = _longest_stretch(structure, named[is_ended])
    released = ~calls.is_wait
    sources = _Points(
        np.concatenate([start_node(named[released]), begins.node, last]),
        np.concatenate([calls.sort[released], begins.sort, ends]),
    )
    woken = _last_of_one_thread(structure, sources, _Points(until, calls.sort[is_ended]), since)
    rows, lanes = np.flatnonzero(woken >= 0), np.flatnonzero(begun >= 0)
    waits = named[is_ended][rows]
    return EdgeTable.concat(
        [
            EdgeTable.of(Rule.LOCK_RELEASED, woken[rows], until[rows], event=waits),
            EdgeTable.of(Rule.THREAD_STARTED, begun[lanes], first[lanes]),
        ]
    )


def _is_named(structure: Structure, events: Rows, pattern: re.Pattern[str]) -> Bool:
    """Whether the name of each event matches; that of none does not."""
    table = structure.events
    is_named: Bool = gather(
        table.symbols.searched(pattern), gather(table.name, events), default=False
    )
    return is_named


def _named(structure: Structure, events: I64, pattern: re.Pattern[str]) -> I64:
    """Those of some events whose name matches."""
    return events[_is_named(structure, events, pattern)]


def _calls(structure: Structure, calls: I64) -> _Calls:
    """What sort of wait, or release, each call is, by its name and those of what it is within."""
    parent = structure.parent
    within = owner = parent[calls]
    while (is_within := _is_named(structure, owner, _CONDITION)).any():
        owner = np.where(is_within, gather(parent, owner), owner)
    is_wait = _is_named(structure, calls, _WAITS)
    notifies = np.where(
        is_wait,
        _is_named(structure, calls, _NOTIFIED) | _is_named(structure, within, _NOTIFIED),
        _is_named(structure, calls, _NOTIFIES) | _is_named(structure, within, _NOTIFIES),
    )
    joins = _is_named(structure, calls, _JOINS) | _is_named(structure, within, _JOINS)
    begins = notifies & _is_named(structure, gather(parent, owner), _BEGINS)
    is_item = _is_named(structure, calls, _OF_QUEUES)
    names, which = np.unique(gather(structure.events.name, owner), return_inverse=True)
    texts = [structure.events.symbols.texts[name] if name >= 0 else "" for name in names.tolist()]
    sorts = [_notified_by(text) for text in texts]
    sorts += [_method(text) for text in texts] + [_file(text) for text in texts]
    _, codes = np.unique(sorts, return_inverse=True)
    notified, notifier, locked = _MORE + codes.reshape(3, -1)
    sort = np.where(notifies, np.where(is_wait, notified[which], notifier[which]), locked[which])
    sort[begins], sort[is_item], sort[joins & is_wait] = _BEGIN, _ITEM, _END
    return _Calls(sort, is_wait, ~notifies & ~joins & ~is_item)


def _notified_by(owner: str) -> str:
    """Who notifies those that wait for a condition in a function: a class, or one method of it."""
    method = _method(owner)
    return _NOTIFIED_BY.get(method, method)


def _method(owner: str) -> str:
    """Class of Python's library that a function belongs to, and the method where that matters."""
    library = _LIBRARY.match(owner)
    if library is None:
        return ""
    return library[1] + library[2] if library[1] == "Queue" else library[1]


def _file(owner: str) -> str:
    """File of a function; a lock is rarely released in another one than it is taken in."""
    place, colon, line = owner.removesuffix(")").rpartition(":")
    file = place.partition("(")[2] if owner.endswith(")") and colon and line.isdecimal() else ""
    return f"lock of {file}"


def _joined(structure: Structure, ops: I64, begun: I64, last: I64) -> tuple[I64, I64]:
    """Calls of ``Thread.join``, and the thread that each waits for, by the order of starts.

    Where one call makes as many calls of either kind, the n-th join is of the n-th thread, if each
    ends right after its thread does, or does not wait.
    """
    events, parent = structure.events, structure.parent
    threads = np.flatnonzero(begun >= 0)
    starts = begun[threads] >> 1
    starts = np.where(_is_named(structure, starts, _START), starts, gather(parent, starts))
    calls = np.concatenate([starts, _named(structure, ops, _JOIN)])
    is_join = np.arange(len(calls)) >= len(starts)
    callers, caller = np.unique(gather(parent, calls), return_inverse=True)
    is_even = np.bincount(caller, np.where(is_join, 1, -1), len(callers)) == 0
    order = np.lexsort([events.ts_ns[calls], caller])
    order = order[(is_even & (callers >= 0))[caller[order]]]
    of, threads = order[is_join[order]], threads[order[~is_join[order]]]
    joins, ended_ns = calls[of], events.node_ts_ns[last[threads]]
    since_ns = events.end_ns[joins] - np.maximum(ended_ns, events.ts_ns[joins])
    is_other = np.abs(since_ns) > _JOINED_WITHIN_NS
    fits = (np.bincount(caller[of], is_other, len(callers)) == 0)[caller[of]]
    return joins[fits], threads[fits]


def _around(structure: Structure, calls: I64, outer: I64) -> I64:
    """Which of some calls each call is, or is within, by two levels; or -1."""
    position = np.full(len(structure.events), -1, dtype=np.int64)
    position[outer] = np.arange(len(outer))
    found = position[calls]
    for _ in range(2):
        calls = gather(structure.parent, calls)
        found = np.maximum(found, gather(position, calls))
    return found


def _gives_up(structure: Structure, ops: I64, calls: I64) -> Bool:
    """Whether each call is a wait for a condition that nobody notified in time."""
    parent, gave_up = structure.parent, np.zeros(len(structure.events), dtype=bool)
    by = parent[_named(structure, ops, _GIVES_UP)]
    gave_up[by[by >= 0]] = True
    within = parent[calls]
    is_out: Bool = _is_named(structure, within, _NOTIFIED) & gather(gave_up, within, default=False)
    return is_out


def _gets(structure: Structure, events: I64, calls: _Calls) -> Bool:
    """Whether each call gets what it waits for: if a lock, then its thread releases one next."""
    lane = structure.events.lane[events]
    order = np.lexsort((structure.events.ts_ns[events], calls.sort, lane))
    is_last = np.roll(group_starts(lane[order], calls.sort[order]), -1)
    releases = np.empty(len(events), dtype=bool)
    releases[order] = ~np.roll(calls.is_wait[order], -1) & ~is_last
    releases[~calls.is_lock] = True
    return releases


def _longest_stretch(structure: Structure, events: I64) -> tuple[I64, I64]:
    """Nodes between which each event is innermost for the longest time: there it waits."""
    between = structure.boundaries
    position = np.full(len(structure.events), -1, dtype=np.int64)
    position[events] = np.arange(len(events))
    which = gather(position, between.inside[:-1])
    at = np.flatnonzero(which >= 0)
    order = at[np.lexsort([np.diff(between.ts_ns)[at], which[at]])]
    longest = order[np.roll(group_starts(which[order]), -1)]
    return between.node[longest].astype(np.int64), between.node[longest + 1].astype(np.int64)


def _last_of_one_thread(
    structure: Structure, sources: _Points, targets: _Points, since: I64 | None = None
) -> I64:
    """For each target the last source before it, if all that could be are of one thread; or -1.

    Those could be that are of its process and of its sort, and no earlier than `since`.
    """
    events, times = structure.events, structure.events.node_ts_ns
    _, process = np.unique([str(pid) for pid in events.lanes.pid] or [""], return_inverse=True)
    n_sorts = 1 + max(sources.sort.max(initial=0), targets.sort.max(initial=0))

    def group(points: _Points) -> I64:
        of: I64 = process[events.lane[points.node >> 1]] * n_sorts + points.sort
        return of

    groups = group(sources)
    order = np.lexsort([times[sources.node], groups])
    node, groups = sources.node[order], groups[order]
    lane, at_ns = events.lane[node >> 1], times[node]
    begins = group_starts(groups, lane)
    since_one_thread = np.maximum.accumulate(np.where(begins, np.arange(len(node)), 0))
    until_ns = times[targets.node]
    since_ns = until_ns - _WAKES_WITHIN_NS
    if since is not None:
        since_ns = np.maximum(since_ns, times[since])
    of = group(targets)
    last = last_before(groups, at_ns, of, until_ns + 1)
    before = last_before(groups, at_ns, of, since_ns)
    first = np.where(before < 0, np.searchsorted(groups, of), before + 1)
    is_one = (last >= first) & (gather(since_one_thread, last, 0) <= first)
    is_one &= gather(lane, last) != events.lane[targets.node >> 1]
    return np.where(is_one, gather(node, last), -1)
