"""THREAD: a host thread does one thing after another.

Threads of a pool do the same work, and are idle until something gives one of them work (a request).
That is often not recorded, and such a gap is not the thread's own time::

    exec#1   [request]            [request]          a gap: waits for work
    exec#2             [request]
    exec#3        [request]
"""

from __future__ import annotations

import re

import numpy as np

from htagraph.arrays.by_head import InOrder
from htagraph.arrays.codes import distinct, gather
from htagraph.arrays.passes import compiled
from htagraph.compiler.flows import worker_lanes
from htagraph.compiler.stretches import plain_names, usual_wait_ns
from htagraph.compiler.structure import Structure
from htagraph.model.arrays import I8, I32, I64, Bools
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, EventKind, among
from htagraph.model.names import PROFILER_STEP
from htagraph.model.rules import Rule

_DIGITS = re.compile(r"\d+")
_FEWEST = 3
"""Threads that make a pool; two may do the same work by accident (chosen)."""
_NEARLY_ALL = 0.9
"""Share of what a thread of a pool runs that others of the pool run, too (chosen)."""


def _pools(structure: Structure) -> list[list[int]]:
    """Lanes whose threads have one name but for numbers, and neither step, launch nor call."""
    events = structure.events
    launches = structure.is_launch
    steps = events.searched(PROFILER_STEP) & events.is_host
    busy = {*distinct(events.lane[launches]).tolist(), *distinct(events.lane[steps]).tolist()}
    busy |= set(worker_lanes(structure).values())
    pools: dict[tuple[int | str, str], list[int]] = {}
    for lane in distinct(events.lane[structure.host]).tolist():
        name = _DIGITS.sub("#", events.lanes.thread[lane])
        if name and lane not in busy:
            pools.setdefault((events.lanes.pid[lane], name), []).append(lane)
    return [lanes for lanes in pools.values() if len(lanes) >= _FEWEST]


def pool_lanes(structure: Structure) -> Bools:
    """Whether each lane is a thread of a pool: nearly all that it runs, two others run, too."""
    events, host = structure.events, structure.host
    is_member = np.zeros(max(len(events.lanes), 1), dtype=bool)
    if not len(structure.queue):
        return is_member
    pools = _pools(structure)
    if not pools:
        return is_member
    top = host[structure.parent[host] < 0]
    names = plain_names(events)[top]
    for lanes in pools:
        rows = np.flatnonzero(np.isin(events.lane[top], lanes))
        pairs = np.unique(np.stack([names[rows], events.lane[top[rows]]]), axis=1)
        shared = np.flatnonzero(np.bincount(pairs[0]) >= _FEWEST)
        n_lanes = len(is_member)
        n_all = np.bincount(events.lane[top[rows]], minlength=n_lanes)
        alike = rows[np.isin(names[rows], shared)]
        n_alike = np.bincount(events.lane[top[alike]], minlength=n_lanes)
        is_member |= (n_all > 0) & (n_alike >= _NEARLY_ALL * n_all)
    return is_member


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

    `waits`: SYNC, QUEUE, HIDDEN_SYNC and FLOW edges. `infer`: whether gaps of threads of a pool are
    told from time of their own.
    """
    events, between = structure.events, structure.boundaries
    rule = np.full(len(between), Rule.PROGRAM_ORDER, dtype=np.int8)
    into_end = waits.head[among(waits.kind, (EdgeKind.SYNC, EdgeKind.QUEUE))]
    into_end = into_end[into_end & 1 == 1] >> 1
    blocked = np.zeros(len(events), dtype=bool)
    blocked[into_end[events.is_host[into_end]]] = True
    waits_there = among(waits.rule, (Rule.HANDOFF, Rule.WORKER_CALLED))
    waits_there |= waits.kind == EdgeKind.HIDDEN_SYNC
    rule_into = np.full(2 * len(events), Rule.PROGRAM_ORDER, dtype=np.int8)
    rule_into[waits.head[waits_there]] = Rule.BLOCKING_CALL
    _fill_rules((between.node, between.inside, between.first), rule_into, blocked, rule)
    rule[_arrives(structure, waits)] = Rule.BLOCKING_CALL
    if infer:
        gaps = np.flatnonzero(
            (between.inside < 0) & (rule == Rule.PROGRAM_ORDER) & between.is_followed
        )
        gap_ns = between.ts_ns[gaps + 1] - between.ts_ns[gaps]
        gaps = gaps[gap_ns > usual_wait_ns(structure)]
        if len(gaps):
            rule[gaps[pool_lanes(structure)[between.lane[gaps]]]] = Rule.WAITS_FOR_WORK
    return InOrder(
        between.node,
        between.inside,
        rule,
        between.first,
        events.node_ts_ns,
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
