"""The exact critical path: of all edges into a node, the one that arrives last is binding.

With ``arrival(u, v) = ts(u) + lag(u, v)``, the residual of a node is ``ts(v) - max arrival >= 0``.
A walk back along binding edges covers every instant exactly once: consecutive edges share a node.

This is the forward pass of the critical path method (Kelley and Walker, "Critical-path planning and
scheduling", 1959) on measured times. With the residual, which textbooks lack, the length of the
path is the measured time, to the nanosecond.
"""

from __future__ import annotations

import numpy as np

from htagraph.arrays.codes import ranges
from htagraph.arrays.passes import compiled
from htagraph.errors import TraceLimitError
from htagraph.model.arrays import I8, I32, I64, Bools


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

    Ties go to the later tail, then the larger kind, then the larger tiebreak of the tail: of its
    node, or of its event, which has two nodes. No edge arrives after its head.
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
    The others lie on, or behind, a cycle of edges that take no time. `is_node`: nodes to order.
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
    """Put nodes of one time in the order of their depth, which is 0 for all but the touched."""
    times = np.unique(node_ts[touched[depth != 0]])
    first, behind = (np.searchsorted(node_ts, times, side, order) for side in ("left", "right"))
    rows = ranges(first, behind - first)
    nodes = order[rows]
    place = np.minimum(np.searchsorted(touched, nodes), len(touched) - 1)
    level = np.where(touched[place] == nodes, depth[place], 0)
    order[rows] = nodes[np.lexsort((nodes, level, node_ts[nodes]))]


MOST_STEPS = 10_000_000
MOST_STEPS_PER_EDGE = 32
"""Walks together may take this many edges, plus each edge this often. Walks of one stream do not
overlap; only very many streams exceed it. A limit of memory, not of the answer."""


@compiled
def _count(
    node: I64, until: I64, binding: I32, tail: I32, node_ts: I64, length: I64, last: I64
) -> None:
    """Fill the number of edges of each walk, and its last node."""
    for walk in range(len(node)):
        current = node[walk]
        while binding[current] >= 0 and node_ts[current] > until[walk]:
            length[walk] += 1
            current = tail[binding[current]]
        last[walk] = current


@compiled
def _fill(node: I64, length: I64, binding: I32, tail: I32, walks: I64, edges: I64) -> None:
    """Fill the edges of each walk."""
    out = 0
    for walk in range(len(node)):
        current = node[walk]
        for _ in range(length[walk]):
            walks[out] = walk
            edges[out] = binding[current]
            current = tail[binding[current]]
            out += 1


def walks_back(
    node: I64, until_ns: I64, binding: I32, tail: I32, node_ts: I64
) -> tuple[I64, I64, I64]:
    """Binding edges that lead to each of some nodes, back to a time of its own.

    Each walk ends at the first tail at or before its time. Returns the number of the walk of each
    edge, and the edges, walk by walk, the latest first; and the node at which each walk ended.
    """
    node, until_ns = np.asarray(node, dtype=np.int64), np.asarray(until_ns, dtype=np.int64)
    length, last = walk_lengths(node, until_ns, binding, tail, node_ts)
    n_steps, limit = int(length.sum()), MOST_STEPS + MOST_STEPS_PER_EDGE * len(tail)
    if n_steps > limit:
        raise TraceLimitError(
            f"{len(node):,} waits go back over {n_steps:,} edges; {limit:,} are the most.",
            hint="ask for a shorter window.",
        )
    walks = np.empty(n_steps, dtype=np.int64)
    edges = np.empty(len(walks), dtype=np.int64)
    _fill(node, length, binding, tail, walks, edges)
    return walks, edges, last


def walk_lengths(
    node: I64, until_ns: I64, binding: I32, tail: I32, node_ts: I64
) -> tuple[I64, I64]:
    """Number of edges of the walk back from each node, -1 for none, and the node where it ends."""
    length, last = np.zeros(len(node), dtype=np.int64), node.copy()
    known = np.flatnonzero(node >= 0)
    n_edges, ends = length[known], last[known]
    _count(node[known], until_ns[known], binding, tail, node_ts, n_edges, ends)
    length[known], last[known] = n_edges, ends
    return length, last


def walk_back(node: int, binding: I32, tail: I32, node_ts: I64, *, until_ns: int) -> I32:
    """Binding edges that lead to one node, earliest first."""
    length, _ = walk_lengths(np.array([node]), np.array([until_ns]), binding, tail, node_ts)
    edges = np.empty(int(length[0]), dtype=np.int32)
    _fill_backward(node, binding, tail, edges)
    return edges


@compiled
def _fill_backward(node: int, binding: I32, tail: I32, edges: I32) -> None:
    """Fill the edges of one walk, the first one last."""
    for place in range(len(edges) - 1, -1, -1):
        edges[place] = binding[node]
        node = tail[binding[node]]


@compiled
def _origins(order: I32, binding: I32, tail: I32, is_anchor: Bools, out: I32) -> None:
    """Fill the anchor that the walk back from each node meets first."""
    for node in order:
        if is_anchor[node]:
            out[node] = node
        elif binding[node] >= 0:
            out[node] = out[tail[binding[node]]]


def origins(order: I32, binding: I32, tail: I32, is_anchor: Bools) -> I32:
    """Anchor that the walk back from each node meets first, -1 for none; an anchor meets itself."""
    out = np.full(len(binding), -1, dtype=np.int32)
    _origins(order, binding, tail, is_anchor, out)
    return out
