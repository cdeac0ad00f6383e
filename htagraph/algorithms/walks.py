"""Walks back along binding edges: from a node to a time, or to an anchor."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.errors import TraceLimitError
from htagraph.model.arrays import I32, I64, Bools
from htagraph.native.passes import compiled

MOST_STEPS = 10_000_000
MOST_STEPS_PER_EDGE = 32
"""Walks together may take this many edges, plus each edge this often. Walks of one stream do not
overlap; only very many streams exceed it. A limit of memory, not of the answer."""


class Walks(NamedTuple):
    """Edges of several walks.

    Parameters
    ----------
    walk : ndarray of shape (n,), dtype=int64
        Number of the walk that each edge belongs to; walk by walk, latest edge first.
    edge : ndarray of shape (n,), dtype=int64
    last : ndarray of shape (n_walks,), dtype=int64
        Node at which each walk ended.
    """

    walk: I64
    edge: I64
    last: I64


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


def walks_back(node: I64, until_ns: I64, binding: I32, tail: I32, node_ts: I64) -> Walks:
    """Binding edges that lead to each of some nodes, back to a time of its own.

    Each walk ends at the first tail at or before its time.

    Parameters
    ----------
    node, until_ns : ndarray of shape (n_walks,), dtype=int64
    binding : ndarray of shape (n_nodes,), dtype=int32
        Edge into each node, -1 for none.
    tail : ndarray of shape (n_edges,), dtype=int32
    node_ts : ndarray of shape (n_nodes,), dtype=int64

    Raises
    ------
    TraceLimitError
        Beyond `MOST_STEPS` and `MOST_STEPS_PER_EDGE`.

    Examples
    --------
    >>> binding, tail = np.array([-1, 0, 1], np.int32), np.array([0, 1], np.int32)
    >>> found = walks_back(np.array([2, 2]), np.array([0, 5]), binding, tail, np.array([0, 4, 9]))
    >>> found.walk.tolist(), found.edge.tolist(), found.last.tolist()
    ([0, 0, 1], [1, 0, 1], [0, 1])
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
    return Walks(walks, edges, last)


def walk_lengths(
    node: I64, until_ns: I64, binding: I32, tail: I32, node_ts: I64
) -> tuple[I64, I64]:
    """Number of edges of the walk back from each of some nodes, and the node at which it ends.

    Arguments as for `walks_back`; -1 is no node, from which nothing is walked.
    """
    length, last = np.zeros(len(node), dtype=np.int64), node.copy()
    known = np.flatnonzero(node >= 0)
    n_edges, ends = length[known], last[known]
    _count(node[known], until_ns[known], binding, tail, node_ts, n_edges, ends)
    length[known], last[known] = n_edges, ends
    return length, last


def walk_back(node: int, binding: I32, tail: I32, node_ts: I64, *, until_ns: int) -> I32:
    """Binding edges that lead to one node, earliest first.

    Examples
    --------
    >>> tail = np.array([0, 1], np.int32)
    >>> walk_back(2, np.array([-1, 0, 1], np.int32), tail, np.array([0, 4, 9]), until_ns=0).tolist()
    [0, 1]
    """
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
    """Anchor that the walk back from each node meets first, -1 for none; anchors meet themselves.

    Parameters
    ----------
    order : ndarray of shape (k,), dtype=int32
        Nodes in topological order.

    Examples
    --------
    >>> binding, tail = np.array([-1, 0, 1], np.int32), np.array([0, 1], np.int32)
    >>> order, is_anchor = np.arange(3, dtype=np.int32), np.array([False, True, False])
    >>> origins(order, binding, tail, is_anchor).tolist()
    [-1, 1, 1]
    """
    out = np.full(len(binding), -1, dtype=np.int32)
    _origins(order, binding, tail, is_anchor, out)
    return out
