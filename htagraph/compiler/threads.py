"""THREAD: a host thread does one thing after another."""

from __future__ import annotations

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.compiler.idle_workers import waits_for_work
from htagraph.compiler.structure import Structure
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, among
from htagraph.model.rules import Rule

__all__ = ["thread_edges"]


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
    events, nesting, host = structure.events, structure.nesting, structure.host
    node = structure.boundaries
    lane = structure.boundary_lane
    same = np.flatnonzero(lane[:-1] == lane[1:]) if len(lane) else np.empty(0, dtype=np.int64)
    tail, head, inner = node[same], node[same + 1], nesting.innermost[same]
    owner = gather(host, inner)
    blocked, in_gap, handed_over = _waiting(structure, waits)
    is_blocked = gather(blocked, owner, default=False) | in_gap[head]
    is_handed_over = handed_over[head]
    lag = np.where(
        is_blocked | is_handed_over, 0, events.node_ts_ns[head] - events.node_ts_ns[tail]
    )
    rule = np.full(len(tail), Rule.PROGRAM_ORDER, dtype=np.int8)
    rule[is_handed_over] = Rule.HANDED_OVER
    rule[is_blocked] = Rule.BLOCKING_CALL
    if infer:
        gaps = np.flatnonzero((owner < 0) & (rule == Rule.PROGRAM_ORDER))
        rule[gaps[waits_for_work(structure, tail[gaps], head[gaps])]] = Rule.WAITS_FOR_WORK
    return EdgeTable.of(rule, tail, head, lag_ns=lag, event=owner)


def _waiting(structure: Structure, waits: EdgeTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether each event is a call that waits, and each node the end of a gap that does.

    A gap waits for the device, or for another thread.
    """
    n_events = len(structure.events)
    blocked = np.zeros(n_events, dtype=bool)
    in_gap = np.zeros(2 * n_events, dtype=bool)
    handed_over = np.zeros(2 * n_events, dtype=bool)
    into_end = (
        waits.head[
            (waits.head & 1).astype(bool) & among(waits.kind, (EdgeKind.SYNC, EdgeKind.QUEUE))
        ]
        >> 1
    )
    blocked[into_end[structure.events.is_host[into_end]]] = True
    in_gap[waits.head[waits.kind == EdgeKind.HIDDEN_SYNC]] = True
    handed_over[waits.head[among(waits.rule, (Rule.HAND_OVER, Rule.WORKER_CALLED))]] = True
    return blocked, in_gap, handed_over
