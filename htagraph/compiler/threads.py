"""THREAD: a host thread does one thing after another."""

from __future__ import annotations

import numpy as np

from htagraph.algorithms.by_head import InOrder
from htagraph.algorithms.gather import gather
from htagraph.compiler.idle_workers import waits_for_work
from htagraph.compiler.structure import Structure
from htagraph.model.arrays import I8, I32, I64, Bools
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, EventKind, among
from htagraph.model.rules import Rule
from htagraph.native.passes import compiled

_BLOCKING_CALL = int(Rule.BLOCKING_CALL)


def thread_edges(structure: Structure, waits: EdgeTable, *, infer: bool = True) -> InOrder:
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
    rule = np.full(len(between), Rule.PROGRAM_ORDER, dtype=np.int8)
    blocked = _is_blocked(structure, waits)
    _fill_rules(
        (between.node, between.inside, between.first), _rules_into(structure, waits), blocked, rule
    )
    rule[_arrives(structure, waits)] = Rule.BLOCKING_CALL
    if infer:
        gaps = np.flatnonzero(
            (between.inside < 0) & (rule == Rule.PROGRAM_ORDER) & between.is_followed
        )
        waiting = waits_for_work(structure, between.node[gaps], between.node[gaps + 1])
        rule[gaps[waiting]] = Rule.WAITS_FOR_WORK
    return InOrder(
        between.node,
        between.inside,
        rule,
        between.first,
        structure.events.node_ts_ns,
        kind=int(EdgeKind.THREAD),
        waits=_BLOCKING_CALL,
    )


@compiled
def _fill_rules(between: tuple[I32, I32, I64], rule_into: I8, is_blocked: Bools, rule: I8) -> None:
    """Fill the rule of the edge from each boundary of a lane to the next."""
    node, inside, first = between
    for lane in range(len(first) - 1):
        for position in range(first[lane], first[lane + 1] - 1):
            owner = inside[position]
            rule[position] = rule_into[node[position + 1]]
            if owner >= 0 and is_blocked[owner]:
                rule[position] = _BLOCKING_CALL


def _arrives(structure: Structure, waits: EdgeTable) -> I64:
    """Gaps that end with what a recorded arrow leads to, where the arrow begins in the gap."""
    arrows = waits.take(among(waits.rule, (Rule.RECORDED_FLOW, Rule.TENSOR_DEPENDENCY)))
    if not len(arrows):
        return np.empty(0, dtype=np.int64)
    times, between = structure.events.node_ts_ns, structure.boundaries
    sent_ns = np.full(len(times), np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(sent_ns, arrows.head, times[arrows.tail])
    at = np.flatnonzero(between.is_followed)
    kind = gather(structure.events.kind, between.inside[at], EventKind.ANNOTATION)
    arrived = sent_ns[between.node[at + 1]] >= between.ts_ns[at]
    arrives: I64 = at[(kind == EventKind.ANNOTATION) & arrived]
    return arrives


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
