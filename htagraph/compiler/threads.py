"""THREAD: a host thread does one thing after another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.compiler.idle_workers import waits_for_work
from htagraph.compiler.structure import Structure
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, EventKind, among
from htagraph.model.rules import Rule
from htagraph.native.passes import compiled

__all__ = ["thread_edges"]

I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_PROGRAM_ORDER, _BLOCKING_CALL = int(Rule.PROGRAM_ORDER), int(Rule.BLOCKING_CALL)


def thread_edges(structure: Structure, waits: EdgeTable, *, infer: bool = True) -> EdgeTable:
    """Edges from each boundary of a host thread to the next; their lag is the time between.

    The time belongs to the event that is innermost there, or to none in a gap. A thread that waits
    needs no time of its own: the lag is 0 inside a call that waits for the device, and across a gap
    in which it waits for the device or another thread works for it.

    ::

        thread 1   [op   [call]   ]      [op]
                   |====>|===>|==>|=====>|==>|
                     op   call  op  (gap) op

    Parameters
    ----------
    waits : EdgeTable
        SYNC, QUEUE, HIDDEN_SYNC and FLOW edges; those into host nodes say who waits.
    infer : bool, default=True
        Whether gaps of threads of a pool are told from time of their own.
    """
    between = structure.boundaries
    n = len(between) - len(between.openings)
    tail, head, owner = (np.empty(n, dtype=np.int32) for _ in range(3))
    lag, rule = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int8)
    _in_order(
        (between.node, between.inside, between.first),
        structure.events.node_ts_ns,
        _rules_into(structure, waits),
        _is_blocked(structure, waits),
        (tail, head, owner, lag, rule),
    )
    arrives = _arrives(structure, waits, tail, head, owner)
    rule[arrives], lag[arrives] = Rule.BLOCKING_CALL, 0
    if infer:
        gaps = np.flatnonzero((owner < 0) & (rule == Rule.PROGRAM_ORDER))
        rule[gaps[waits_for_work(structure, tail[gaps], head[gaps])]] = Rule.WAITS_FOR_WORK
    return EdgeTable.of(rule, tail, head, lag_ns=lag, event=owner)


@compiled
def _in_order(
    between: tuple[I32, I32, I64],
    node_ts: I64,
    rule_into: I8,
    is_blocked: Bools,
    edges: tuple[I32, I32, I32, I64, I8],
) -> None:
    """Fill tail, head, event, lag and rule from each boundary of a lane to the next."""
    node, inside, first = between
    tail, head, event, lag, rule = edges
    edge = 0
    for lane in range(len(first) - 1):
        for position in range(first[lane], first[lane + 1] - 1):
            before, after, owner = node[position], node[position + 1], inside[position]
            tail[edge] = before
            head[edge] = after
            event[edge] = owner
            rule[edge] = rule_into[after]
            if owner >= 0 and is_blocked[owner]:
                rule[edge] = _BLOCKING_CALL
            lag[edge] = node_ts[after] - node_ts[before] if rule[edge] == _PROGRAM_ORDER else 0
            edge += 1


def _arrives(structure: Structure, waits: EdgeTable, tail: I32, head: I32, owner: I32) -> I64:
    """Gaps that end with what a recorded arrow leads to, where the arrow begins in the gap."""
    arrows = waits.take(among(waits.rule, (Rule.RECORDED_FLOW, Rule.TENSOR_DEPENDENCY)))
    if not len(arrows):
        return np.empty(0, dtype=np.int64)
    times = structure.events.node_ts_ns
    sent_ns = np.full(len(times), np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(sent_ns, arrows.head, times[arrows.tail])
    kind = gather(structure.events.kind, owner, EventKind.ANNOTATION)
    return np.flatnonzero((kind == EventKind.ANNOTATION) & (sent_ns[head] >= times[tail]))


def _is_blocked(structure: Structure, waits: EdgeTable) -> Bools:
    """Whether each event is a call in which a thread waits."""
    is_blocked = np.zeros(len(structure.events), dtype=bool)
    into_end = waits.head[among(waits.kind, (EdgeKind.SYNC, EdgeKind.QUEUE))]
    into_end = into_end[into_end & 1 == 1] >> 1
    is_blocked[into_end[structure.events.is_host[into_end]]] = True
    return is_blocked


def _rules_into(structure: Structure, waits: EdgeTable) -> I8:
    """Rule of the edge into each node in a gap: whether a thread waits there, and for what.

    It waits for the device, or for another thread.
    """
    rule = np.full(2 * len(structure.events), Rule.PROGRAM_ORDER, dtype=np.int8)
    waits_there = among(waits.rule, (Rule.HANDOFF, Rule.WORKER_CALLED))
    waits_there |= waits.kind == EdgeKind.HIDDEN_SYNC
    rule[waits.head[waits_there]] = Rule.BLOCKING_CALL
    return rule
