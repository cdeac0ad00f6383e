"""What a graph reaches: descendants, ancestors, chains equally far from critical, components."""

from __future__ import annotations

import numpy as np

from htagraph.arrays.passes import compiled
from htagraph.model.arrays import I32, I64, Bools


@compiled
def _forward(order: I32, offsets: I64, tail: I32, allowed: Bools, marked: Bools) -> None:
    """Mark every node that an allowed edge leads to from a marked node."""
    for node in order:
        for edge in range(offsets[node], offsets[node + 1]):
            if allowed[edge] and marked[tail[edge]]:
                marked[node] = True
                break


@compiled
def _backward(order: I32, offsets: I64, tail: I32, allowed: Bools, marked: Bools) -> None:
    """Mark every node from which an allowed edge leads to a marked node."""
    for position in range(len(order) - 1, -1, -1):
        node = order[position]
        if marked[node]:
            for edge in range(offsets[node], offsets[node + 1]):
                if allowed[edge]:
                    marked[tail[edge]] = True


def descendants(order: I32, offsets: I64, tail: I32, allowed: Bools, seeds: Bools) -> Bools:
    """Nodes that can be reached from the seeds, the seeds included, over the allowed edges.

    Edges into node ``v`` are ``offsets[v]:offsets[v + 1]``; `order` is topological.
    """
    marked = seeds.copy()
    _forward(order, offsets, tail, allowed, marked)
    return marked


def ancestors(order: I32, offsets: I64, tail: I32, allowed: Bools, seeds: Bools) -> Bools:
    """Nodes from which the seeds can be reached, the seeds included."""
    marked = seeds.copy()
    _backward(order, offsets, tail, allowed, marked)
    return marked


@compiled
def _chains(last: I64, is_near: Bools, binding: I32, tail: I32, chain: I32, ends: I64) -> int:
    """Number the nodes of chains back from each node, and fill first and last nodes."""
    count = 0
    for place in range(len(last)):
        node = last[place]
        if chain[node] >= 0:
            continue
        ends[count, 1] = node
        while True:
            chain[node] = count
            ends[count, 0] = node
            if binding[node] < 0:
                break
            node = tail[binding[node]]
            if not is_near[node] or chain[node] >= 0:
                break
        count += 1
    return count


def chains(float_ns: I64, is_near: Bools, binding: I32, tail: I32) -> tuple[I32, I64, I64]:
    """Chains along binding edges, least float first; each ends at nodes of another, or before.

    A node has at most the float of what it binds. Chains are found by ascending float, so all nodes
    of one have the same float: its last node leads back along all of it, to nodes of less float.
    Nodes are in a topological order, and chains contain those that are near. Returns the chain of
    each node, -1 for none, and the first and the last node of each chain.
    """
    near = np.flatnonzero(is_near)[::-1]
    order = near[np.argsort(float_ns[near], kind="stable")]
    chain = np.full(len(float_ns), -1, dtype=np.int32)
    ends = np.empty((len(order), 2), dtype=np.int64)
    count = _chains(order, is_near, binding, tail, chain, ends)
    return chain, ends[:count, 0], ends[:count, 1]


@compiled
def _join(tail: I32, head: I32, root: I32) -> None:
    """Point each node to the root of its component: its smallest node."""
    for edge in range(len(tail)):
        a, b = tail[edge], head[edge]
        while root[a] != a:
            root[a] = root[root[a]]
            a = root[a]
        while root[b] != b:
            root[b] = root[root[b]]
            b = root[b]
        if a < b:
            root[b] = a
        else:
            root[a] = b
    for node in range(len(root)):
        root[node] = root[root[node]]


def components(tail: I32, head: I32, n_nodes: int) -> I32:
    """Weakly connected component of each node, named by its smallest node.

    Union and find with path halving (Tarjan and van Leeuwen, "Worst-case analysis of set union
    algorithms", 1984).
    """
    root = np.arange(n_nodes, dtype=np.int32)
    _join(tail, head, root)
    return root
