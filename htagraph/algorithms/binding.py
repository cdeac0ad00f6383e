"""The exact critical path: of all edges into a node, the one that arrives last is binding.

With ``arrival(u, v) = ts(u) + lag(u, v)``, the residual of a node is ``ts(v) - max arrival >= 0``.
A walk back along binding edges (`htagraph.algorithms.walks`) covers every instant exactly once:
consecutive edges share a node.

This is the forward pass of the critical path method (Kelley and Walker, "Critical-path planning and
scheduling", 1959) on measured times. Textbook lengths add up lags alone and so miss the time that
no lag explains; with the residual, the length of the path is the measured time, to the nanosecond.
"""

from __future__ import annotations

import numpy as np

from htagraph.algorithms.gather import ranges
from htagraph.model.arrays import I8, I32, I64, Bools
from htagraph.native.passes import compiled


@compiled
def _bind(
    edges: tuple[I32, I32, I8, I64],
    node_ts: I64,
    tiebreak: I64,
    shift: int,
    binding: I32,
) -> None:
    """Keep the edge with the largest (arrival, time of tail, kind, tiebreak of tail) per head."""
    tail, head, kind, lag = edges
    for edge in range(len(tail)):
        node = head[edge]
        arrival = node_ts[tail[edge]] + lag[edge]
        best = binding[node]
        if best >= 0:
            latest = node_ts[tail[best]] + lag[best]
            if arrival < latest:
                continue
            if arrival == latest:
                ts, best_ts = node_ts[tail[edge]], node_ts[tail[best]]
                if ts < best_ts or (ts == best_ts and kind[edge] < kind[best]):
                    continue
                if (
                    ts == best_ts
                    and kind[edge] == kind[best]
                    and tiebreak[tail[edge] >> shift] <= tiebreak[tail[best] >> shift]
                ):
                    continue
        binding[node] = edge


def bind(tail: I32, head: I32, kind: I8, lag: I64, node_ts: I64, tiebreak: I64) -> I32:
    """Binding edge of every node, -1 where no edge leads.

    Ties go to the later tail, then the larger kind, then the larger tiebreak of the tail.

    Parameters
    ----------
    tail, head : ndarray of shape (n_edges,), dtype=int32
    kind : ndarray of shape (n_edges,), dtype=int8
    lag : ndarray of shape (n_edges,), dtype=int64, unit=ns
        ``node_ts[tail] + lag <= node_ts[head]``.
    node_ts : ndarray of shape (n_nodes,), dtype=int64
    tiebreak : ndarray of shape (n_nodes,) or (n_nodes / 2,), dtype=int64
        Of nodes, or of events, which have two nodes each.

    Examples
    --------
    >>> tail, head = np.array([0, 1], np.int32), np.array([2, 2], np.int32)
    >>> ts = np.array([0, 4, 10])
    >>> bind(tail, head, np.zeros(2, np.int8), np.array([7, 1]), ts, ts).tolist()
    [-1, -1, 0]
    """
    binding = np.full(len(node_ts), -1, dtype=np.int32)
    shift = int(len(tiebreak) < len(node_ts))
    _bind((tail, head, kind, lag), node_ts, tiebreak, shift, binding)
    return binding


@compiled
def _instant(tail: I32, head: I32, node_ts: I64, out: I32) -> int:
    """Fill edges that take no time, as many as there is room for; return the number of all."""
    n = 0
    for edge in range(len(tail)):
        if node_ts[tail[edge]] == node_ts[head[edge]]:
            if n < len(out):
                out[n] = edge
            n += 1
    return n


@compiled
def _levels(head: I32, offsets: I64, indegree: I64, level: I32, queue: I32) -> int:
    """Fill the depth of each node over some edges; return how many edges lie on or behind cycles.

    Edges lie in the order of their tails. Kahn, "Topological sorting of large networks", 1962.
    """
    filled = 0
    for node in range(len(level)):
        if indegree[node] == 0:
            queue[filled] = node
            filled += 1
    done = 0
    seen = 0
    while seen < filled:
        node = queue[seen]
        seen += 1
        for edge in range(offsets[node], offsets[node + 1]):
            done += 1
            follower = head[edge]
            level[follower] = max(level[follower], level[node] + 1)
            indegree[follower] -= 1
            if indegree[follower] == 0:
                queue[filled] = follower
                filled += 1
    for node in range(len(level)):
        if indegree[node] > 0:
            level[node] = -1
    return len(head) - done


def topological_order(
    tail: I32, head: I32, node_ts: I64, is_node: Bools | None = None
) -> tuple[I32, Bools]:
    """Nodes in a topological order, and the edges that contradict every such order.

    Time orders all edges but those that take no time; these are ordered by depth (Kahn, 1962).

    Parameters
    ----------
    tail, head : ndarray of shape (n_edges,), dtype=int32
        Edges forward in time: ``node_ts[tail] <= node_ts[head]``.
    node_ts : ndarray of shape (n_nodes,), dtype=int64
    is_node : ndarray of shape (n_nodes,), dtype=bool, optional
        Nodes to be ordered; all by default.

    Returns
    -------
    order : ndarray of shape (k,), dtype=int32
    cyclic : ndarray of shape (n_edges,), dtype=bool
        Edges into a node that lies on, or behind, a cycle of edges that take no time; all False in
        a sound graph.

    Examples
    --------
    >>> tail, head, times = np.array([2], np.int32), np.array([0], np.int32), np.array([5, 1, 5])
    >>> order, cyclic = topological_order(tail, head, times)
    >>> order.tolist(), cyclic.tolist()
    ([1, 2, 0], [False])
    """
    by_time = np.argsort(node_ts, kind="stable")
    cyclic = np.zeros(len(tail), dtype=bool)
    if n_instant := _instant(tail, head, node_ts, np.empty(0, dtype=np.int32)):
        instant = np.empty(n_instant, dtype=np.int32)
        _instant(tail, head, node_ts, instant)
        touched, compact = np.unique(
            np.concatenate([tail[instant], head[instant]]), return_inverse=True
        )
        before, after = compact[: len(instant)], compact[len(instant) :]
        by_tail = after[np.argsort(before, kind="stable")].astype(np.int32)
        offsets = np.append(0, np.cumsum(np.bincount(before, minlength=len(touched))))
        indegree = np.bincount(after, minlength=len(touched))
        depth, queue = np.zeros((2, len(touched)), dtype=np.int32)
        left = _levels(by_tail, offsets, indegree, depth, queue)
        if left:
            cyclic[instant] = (depth[after] < 0) & (depth[before] < 0)
        if depth.any():
            _deepen(by_time, node_ts, touched, depth)
    order: I32 = by_time.astype(np.int32)
    del by_time
    return order if is_node is None else order[is_node[order]], cyclic


def _deepen(order: I64, node_ts: I64, touched: I64, depth: I32) -> None:
    """Put nodes of one time in the order of their depth; those that are not touched have none."""
    times = np.unique(node_ts[touched[depth != 0]])
    first, behind = (np.searchsorted(node_ts, times, side, order) for side in ("left", "right"))
    rows = ranges(first, behind - first)
    nodes = order[rows]
    place = np.minimum(np.searchsorted(touched, nodes), len(touched) - 1)
    level = np.where(touched[place] == nodes, depth[place], 0)
    order[rows] = nodes[np.lexsort((nodes, level, node_ts[nodes]))]
