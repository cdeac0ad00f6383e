"""FLOW: a worker thread of the host runs a collective for its caller (gloo).

The caller queues the collective and continues; the range ``gloo:…`` on a worker lasts until the
collective has ended. Which call it belongs to, and who waits for it, is not recorded. Workers take
from the queue in order, so the n-th call of an operation is the n-th range. The caller waits where
it records nothing until a range has ended::

    thread 1   [c10d::allreduce_]                     [optimizer]     caller: a gap, or a wait
               |-->.                               .->|
    thread 2       [gloo:all_reduce                ]                  worker
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from htagraph.arrays.codes import distinct, gather, is_in
from htagraph.compiler.structure import Structure, end_node, examine, once, start_node
from htagraph.model.arrays import I64, Texts
from htagraph.model.collective_names import (
    HOST_CALLER,
    HOST_COLLECTIVE,
    HOST_VIEW,
    HOST_WAIT,
    NCCL_ANNOTATION,
    operation_of,
)
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule

_AS = {"reduce_scatter": "all_reduce"}
"""Operations that a backend runs as another one: gloo's ``_reduce_scatter_base_``."""

_OVERHANG_FACTOR = 10
"""A caller waited for a range if it continues within this part of its gap after the range ended, or
within this part of the range before (chosen)."""

_HELD_PART = 2
"""A caller that continues before its range ends waited for at least this part of it (chosen)."""


def _callers(structure: Structure) -> I64:
    """Operators that give a collective to a backend of the host: they enclose no launch of it."""
    events = structure.events
    elsewhere = structure.is_launch | events.searched(NCCL_ANNOTATION)
    above = np.zeros(len(events), dtype=bool)
    around = structure.parent[elsewhere]
    while len(current := distinct(around[around >= 0])):
        current = current[~above[current]]
        above[current] = True
        around = structure.parent[current]
    called = events.searched(HOST_CALLER) & (events.kind == EventKind.OP)
    return np.flatnonzero(called & ~above)


def _operations(structure: Structure, rows: I64) -> Texts:
    """What each call or range does, as the backend runs it."""
    codes, place = np.unique(structure.events.name[rows], return_inverse=True)
    names = [operation_of(structure.events.symbols.texts[code]) for code in codes.tolist()]
    return np.array([*(_AS.get(name, name) for name in names), ""], dtype=object)[place]


def _in_order(structure: Structure, calls: I64, ranges: I64) -> tuple[I64, I64]:
    """Calls and ranges of one operation, paired by order.

    Ranges before the first call belong to calls before the profile; no range begins before its
    call.
    """
    starts = structure.events.ts_ns
    calls = calls[np.argsort(starts[calls], kind="stable")]
    ranges = ranges[np.argsort(starts[ranges], kind="stable")]
    first = np.searchsorted(starts[ranges], starts[calls])
    known = first < len(ranges)
    skipped = int((first - np.arange(len(calls)))[known].max(initial=0))
    n_pairs = min(len(calls), len(ranges) - skipped)
    return calls[:n_pairs], ranges[skipped : skipped + n_pairs]


@once
def _pairs(structure: Structure) -> tuple[I64, I64]:
    """Calls, and the range of a worker that each one has."""
    events = structure.events
    none = np.empty(0, dtype=np.int64)
    named = events.searched(HOST_COLLECTIVE)
    ranges = structure.host[named[structure.host]]
    calls = _callers(structure) if len(ranges) else none
    ranges = ranges[~is_in(events.lane[ranges], events.lane[calls])]
    of_call, of_range = _operations(structure, calls), _operations(structure, ranges)
    parts = [
        _in_order(structure, calls[of_call == name], ranges[of_range == name])
        for name in sorted({*of_call.tolist()} & {*of_range.tolist()} - {""})
    ]
    return (
        np.concatenate([none, *(call for call, _ in parts)]),
        np.concatenate([none, *(found for _, found in parts)]),
    )


def _held(structure: Structure, calls: I64, ranges: I64) -> I64:
    """Position of the boundary after which the caller of each range waits for its end, -1 for none.

    A caller waits where it records nothing while a range ends, if it has just called, or continues
    right after, or what it does next needs the result. Else the time may be its own.
    """
    events, between = structure.events, structure.boundaries
    ended = events.end_ns[ranges]
    at = between.last(events.lane[calls], ended - 1)
    at = np.where(gather(between.is_followed, at, default=False), at, -1)
    uses = events.searched(HOST_WAIT)
    # What begins or ends next, views of tensors aside.
    views = gather(events.searched(HOST_VIEW), between.node >> 1)
    others = np.flatnonzero(~(views & between.is_followed))
    following = between.node[others[np.searchsorted(others, at + 1)]] >> 1
    soon = _OVERHANG_FACTOR * (between.ts_ns[at + 1] - ended) <= ended - between.ts_ns[at]
    waits = between.node[at] == end_node(calls)
    waits |= gather(uses, between.inside[at], default=False)
    waits |= structure.is_idle[at] & (soon | uses[following])
    return np.where(waits, at, -1)


def _waits(structure: Structure, calls: I64, ranges: I64) -> tuple[I64, I64]:
    """Ranges that a caller waits for, the last of each wait, and the nodes at which waits end."""
    at = _held(structure, calls, ranges)
    rows = np.flatnonzero(at >= 0)
    rows = rows[np.lexsort((structure.events.end_ns[ranges[rows]], at[rows]))]
    rows = rows[np.append(np.diff(at[rows]) > 0, True)[: len(rows)]]
    return ranges[rows], structure.boundaries.node[at[rows] + 1].astype(np.int64)


def _resumed(structure: Structure, calls: I64, ranges: I64) -> tuple[I64, I64]:
    """Ranges that end after the wait of their caller, and when that ended.

    The caller waited for most of such a range, and for no other one, and does not wait again for
    most of the time that is left.
    """
    events, between = structure.events, structure.boundaries
    since, dur = events.ts_ns[ranges], events.dur_ns[ranges]
    held = _held(structure, calls, ranges)
    at = between.last(events.lane[calls], since + dur // 2)  # half of a range holds its middle
    late = (at >= 0) & ~is_in(np.maximum(at, 0), held[held >= 0])
    late &= gather(structure.is_idle & between.is_followed, at, default=False)
    ranges, since, dur, held, at = (each[late] for each in (ranges, since, dur, held, at))
    until, ended = between.ts_ns[at + 1], since + dur
    again = np.where(held >= 0, np.maximum(between.ts_ns[held], until), ended)
    late = _HELD_PART * (until - np.maximum(between.ts_ns[at], since)) >= dur
    late &= (until < ended) & (_OVERHANG_FACTOR * (ended - until) <= dur)
    late &= _HELD_PART * (ended - again) < ended - until
    late &= between.ts_ns[between.last(events.lane[ranges], ended - 1)] <= until
    return ranges[late], until[late]


def until_resumed(structure: Structure) -> Structure:
    """Structure in which ranges of collectives end when their callers continue.

    A caller continues as soon as the collective is done. The worker ends its range when it runs
    again, which is later on a busy host::

        thread 1   [c10d::allreduce_]                   [optimizer]
        thread 2       [gloo:all_reduce                 |  ]
    """
    if not len(structure.host):
        return structure
    calls, ranges = _pairs(structure)
    if not len(calls):
        return structure
    ranges, until = _resumed(structure, calls, ranges)
    if not len(ranges):
        return structure
    events, dur_ns = structure.events, structure.events.dur_ns.copy()
    dur_ns[ranges] = until - events.ts_ns[ranges]
    return examine(replace(events, dur_ns=dur_ns)).calibrated(
        structure.calibration, structure.learnt
    )


def host_collective_edges(structure: Structure) -> EdgeTable:
    """Edges from each call to the range of its collective, and from there to where it is waited.

    Neither the worker before the range nor the caller that waits needs time of its own (see
    `htagraph.compiler.threads`).
    """
    if not len(structure.host):
        return EdgeTable()
    calls, ranges = _pairs(structure)
    if not len(calls):
        return EdgeTable()
    waited, until = _waits(structure, calls, ranges)
    return EdgeTable.concat(
        [
            EdgeTable.of(Rule.HANDOFF, start_node(calls), start_node(ranges), event=ranges),
            EdgeTable.of(Rule.HANDOFF, end_node(waited), until),
        ]
    )
