"""FLOW between Python threads, as a tracer of function calls shows them.

A thread that waits for a lock, a queue, a condition or another thread goes on once another thread
releases what it waits for. Which lock that is has no record, but both calls tell its sort: a wait
in ``Queue.get`` ends with a release in ``Queue.put``, and no other::

    MainThread   [Queue.get [lock.acquire                                      ]  ]
                                                                               ^
    producer     [load                ][Queue.put [Condition.notify [lock.release]]]

A wait that is joined with a release of its sort goes on when that release is the only thread's that
released one while it lasted. Where several threads did, any of them may have ended it, and none is
said to. In the same way a wait in ``Thread.join`` goes on when a thread ends, and a thread begins
with the call that starts it. A wait that ends without either (a time limit) is time of its own.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.codes import is_in
from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts, last_before
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule

__all__ = ["python_thread_edges"]

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_WAKES_WITHIN_NS = 50_000_000
"""A woken thread also waits for the interpreter's lock, which changes hands every 5 ms: ten times,
as other threads wait for it too."""

_STARTS = re.compile(r"^(_thread\.start_(new|joinable)_thread\b|Thread\.start \(.*threading\.py)")
_OF_C = re.compile(
    r"^(_?thread\.)?R?[lL]ock\.(acquire|__enter__|release|__exit__|_release_save)$"
    r"|^_thread\._ThreadHandle\.join$|^_queue\.SimpleQueue\.(get|put)$"
)
_OF_PYTHON = re.compile(r"^(Condition\.(wait|notify)|Thread\.join) \(.*threading\.py")
"""Calls that wait and calls that release, where functions of C are traced and where not."""

_WAITS = re.compile(r"\.(acquire|__enter__|join|get|wait)\b")
_GAVE_UP = re.compile(r"^collections\.deque\.remove$")
"""In ``Condition.wait``: who is not notified in time takes its lock from those to be released."""

_JOINS = re.compile(r"^Thread\.(join|_wait_for_tstate_lock) \(.*threading\.py|_ThreadHandle\.join$")
_CONDITION = re.compile(r"^Condition\.\w+ \(.*threading\.py")
_WAIT = re.compile(r"^Condition\.wait \(.*threading\.py")
_NOTIFY = re.compile(r"^Condition\.notify \(.*threading\.py")
_LIBRARY = re.compile(
    r"^(?:Bounded)?((Event|Queue|Semaphore|Barrier|Future)\.\w+) "
    r"\(.*(?:threading|queue|futures.*_base)\.py"
)
_NOTIFIED_BY = {"Queue.get": "Queue.put", "Queue.put": "Queue.get", "Queue.join": "Queue.task_done"}
"""Where a class has several sorts of waits, the method that ends each."""

_END_OF_A_THREAD = "end of a thread"
_BEGIN_OF_A_THREAD = "begin of a thread"
_ITEM = "item"


def python_thread_edges(structure: Structure) -> EdgeTable:
    """Edges from releases of locks, and ends of threads, to waits; from starts to threads."""
    events = structure.events
    ops = structure.host[events.kind[structure.host] == EventKind.OP]
    calls = _named(structure, ops, _OF_C)
    if not len(calls):
        calls = _named(structure, ops, _OF_PYTHON)
    starts = _named(structure, ops, _STARTS)
    if not len(calls) and not len(starts):
        return EdgeTable()
    node = structure.boundaries.node.astype(np.int64)
    is_first = group_starts(structure.boundaries.lane)
    first, last = node[is_first], node[np.roll(is_first, -1)]
    texts = _sorts(structure, calls)
    sorts, sort = np.unique(
        np.concatenate(
            [
                texts,
                np.full(len(first), _BEGIN_OF_A_THREAD, dtype=object),
                np.full(len(last), _END_OF_A_THREAD, dtype=object),
            ]
        ).astype(str),
        return_inverse=True,
    )
    is_wait = _is_named(structure, calls, _WAITS)
    may_end = is_wait & _got(structure, calls, sort[: len(calls)], is_wait)
    may_end &= ~_gave_up(structure, ops, calls)
    released = np.concatenate([~is_wait, np.ones(len(first) + len(last), dtype=bool)])
    waits = calls[may_end]
    woken = _only_one_before(
        structure,
        np.concatenate([start_node(calls), first, last])[released],
        sort[released],
        end_node(waits),
        sort[: len(calls)][may_end],
        events.ts_ns[waits],
    )
    zeros = np.zeros
    begun = _only_one_before(
        structure,
        start_node(starts),
        zeros(len(starts), dtype=np.int64),
        first,
        zeros(len(first), dtype=np.int64),
        events.node_ts_ns[first] - _WAKES_WITHIN_NS,
    )
    rows, threads = np.flatnonzero(woken >= 0), np.flatnonzero(begun >= 0)
    return EdgeTable.concat(
        [
            EdgeTable.of(Rule.LOCK_RELEASED, woken[rows], end_node(waits[rows]), event=waits[rows]),
            EdgeTable.of(Rule.THREAD_STARTED, begun[threads], first[threads]),
        ]
    )


def _is_named(structure: Structure, events: npt.NDArray[np.integer], pattern: re.Pattern[str]) -> Bool:
    """Whether the name of each event matches; no event has none."""
    table = structure.events
    name = gather(table.name, events)
    return gather(table.symbols.searched(pattern), name, default=False)


def _named(structure: Structure, events: I64, pattern: re.Pattern[str]) -> I64:
    """Those of some events whose name matches."""
    return events[_is_named(structure, events, pattern)]


def _sorts(structure: Structure, calls: I64) -> npt.NDArray[np.object_]:
    """What ends each wait, and what each release is."""
    table, parent = structure.events, structure.parent
    within = parent[calls]
    owner = within
    while (is_inside := _is_named(structure, owner, _CONDITION)).any():
        owner = np.where(is_inside, gather(parent, owner), owner)
    starts = _is_named(structure, gather(parent, owner), _STARTS)
    names = np.stack([table.name[calls], gather(table.name, within), gather(table.name, owner), starts])
    distinct, which = np.unique(names, axis=1, return_inverse=True)
    texts = [*table.symbols.texts, ""]
    sorts = [_sort(*(texts[code] for code in codes[:3]), bool(codes[3])) for codes in distinct.T.tolist()]
    return np.array(sorts, dtype=object)[which]


def _sort(call: str, within: str, owner: str, starts: bool) -> str:
    is_wait = bool(_WAITS.search(call))
    library = _LIBRARY.match(owner)
    method, kind = (library[1], library[2]) if library else ("", "")
    if is_wait and (_JOINS.search(call) or _JOINS.search(within)):
        return _END_OF_A_THREAD
    if "SimpleQueue" in call:
        return _ITEM
    pattern = _WAIT if is_wait else _NOTIFY
    if not pattern.match(call) and not pattern.match(within):
        return "lock " + kind
    if is_wait and starts:
        return _BEGIN_OF_A_THREAD
    if kind == "Queue":
        return _NOTIFIED_BY.get(method, "") if is_wait else method
    return "condition " + kind


def _got(structure: Structure, calls: I64, sort: I64, is_wait: Bool) -> Bool:
    """Whether the next of its sort on this thread is a release: who got a lock gives it back."""
    is_lock = np.array([t.startswith("lock ") for t in _sorts(structure, calls)])
    lane = structure.events.lane[calls]
    order = np.lexsort([structure.events.ts_ns[calls], sort, lane])
    nxt = np.zeros(len(calls), dtype=bool)
    same = (lane[order][1:] == lane[order][:-1]) & (sort[order][1:] == sort[order][:-1])
    nxt[order[:-1]] = same & ~is_wait[order[1:]]
    return ~is_lock | nxt


def _gave_up(structure: Structure, ops: I64, calls: I64) -> Bool:
    removed = structure.parent[_named(structure, ops, _GAVE_UP)]
    within = structure.parent[calls]
    return np.isin(within, removed[removed >= 0]) & _is_named(structure, within, _WAIT)


def _only_one_before(
    structure: Structure, sources: I64, sort: I64, targets: I64, wanted: I64, since_ns: I64
) -> I64:
    """For each node the last of some nodes before it, if all since a time are of one thread; or -1.

    Both are of one process and of one sort.
    """
    events, times = structure.events, structure.events.node_ts_ns
    _, process = np.unique([str(pid) for pid in events.lanes.pid] or [""], return_inverse=True)
    n_sorts = int(max(sort.max(initial=0), wanted.max(initial=0))) + 1

    def group(nodes: I64, of: I64) -> I64:
        return process[events.lane[nodes >> 1]] * n_sorts + of

    groups = group(sources, sort)
    order = np.lexsort([times[sources], groups])
    sources, groups = sources[order], groups[order]
    lane, at_ns = events.lane[sources >> 1], times[sources]
    starts = np.flatnonzero(group_starts(groups, lane))
    run = starts[np.searchsorted(starts, np.arange(len(sources)), side="right") - 1] if len(starts) else starts
    of, until = group(targets, wanted), times[targets]
    since_ns = np.maximum(since_ns, until - _WAKES_WITHIN_NS)
    found = last_before(groups, at_ns, of, until + 1)
    too_early = last_before(groups, at_ns, of, since_ns)
    fits = (found >= 0) & (found > too_early)
    out = np.full(len(targets), -1, dtype=np.int64)
    rows = np.flatnonzero(fits)
    rows = rows[(run[found[rows]] <= np.maximum(too_early[rows] + 1, 0))]
    rows = rows[lane[found[rows]] != events.lane[targets[rows] >> 1]]
    out[rows] = sources[found[rows]]
    return out
