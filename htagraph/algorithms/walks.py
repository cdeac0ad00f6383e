"""Many walks back along binding edges at once: from each node to a time of its own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.errors import TraceLimitError
from htagraph.native.passes import compiled

__all__ = ["Walks", "walks_back"]

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


MOST_STEPS = 10_000_000
MOST_STEPS_PER_EDGE = 32
"""Edges that walks may take together: so many, and so often each edge. Walks of one stream do not
overlap; only those of very many streams exceed it."""


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
        If the walks together take more edges than stated above.

    Examples
    --------
    >>> binding, tail = np.array([-1, 0, 1], np.int32), np.array([0, 1], np.int32)
    >>> found = walks_back(np.array([2, 2]), np.array([0, 5]), binding, tail, np.array([0, 4, 9]))
    >>> found.walk.tolist(), found.edge.tolist(), found.last.tolist()
    ([0, 0, 1], [1, 0, 1], [0, 1])
    """
    node, until_ns = np.asarray(node, dtype=np.int64), np.asarray(until_ns, dtype=np.int64)
    length = np.zeros(len(node), dtype=np.int64)
    last = node.copy()
    _count(node, until_ns, binding, tail, node_ts, length, last)
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
