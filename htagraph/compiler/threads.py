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

__all__ = ["thread_edges"]

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


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
    structure : Structure
    waits : EdgeTable
        SYNC, QUEUE, HIDDEN_SYNC and FLOW edges; those into host nodes say who waits.
    infer : bool, default=True
        Whether gaps of threads of a pool are told from time of their own.

    Returns
    -------
    EdgeTable
    """
    between = structure.boundaries
    same = between.is_followed[:-1]
    tail, head = between.node[:-1][same], between.node[1:][same]
    owner, lag = between.inside[:-1][same], np.diff(between.ts_ns)[same]
    rule = _rules(structure, waits, head, owner)
    rule[_arrives(structure, waits, tail, head, owner)] = Rule.BLOCKING_CALL
    lag[rule != Rule.PROGRAM_ORDER] = 0
    if infer:
        gaps = np.flatnonzero((owner < 0) & (rule == Rule.PROGRAM_ORDER))
        rule[gaps[waits_for_work(structure, tail[gaps], head[gaps])]] = Rule.WAITS_FOR_WORK
    return EdgeTable.of(rule, tail, head, lag_ns=lag, event=owner)


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


def _rules(structure: Structure, waits: EdgeTable, head: I32, owner: I32) -> npt.NDArray[np.int8]:
    """Rule of each edge by its head and its event: whether a thread waits there, and for what.

    A call waits for the device; a gap waits for the device, or for another thread.
    """
    is_blocked = np.zeros(len(structure.events), dtype=bool)
    into_end = waits.head[among(waits.kind, (EdgeKind.SYNC, EdgeKind.QUEUE))]
    into_end = into_end[into_end & 1 == 1] >> 1
    is_blocked[into_end[structure.events.is_host[into_end]]] = True
    is_blocked[waits.event[waits.rule == Rule.LOCK_RELEASED]] = True
    at = np.full(2 * len(structure.events), Rule.PROGRAM_ORDER, dtype=np.int8)
    at[waits.head[among(waits.rule, (Rule.HAND_OVER, Rule.WORKER_CALLED))]] = Rule.HANDED_OVER
    at[waits.head[waits.kind == EdgeKind.HIDDEN_SYNC]] = Rule.BLOCKING_CALL
    rule: npt.NDArray[np.int8] = at[head]
    rule[gather(is_blocked, owner, default=False)] = Rule.BLOCKING_CALL
    return rule
