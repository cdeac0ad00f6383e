"""Descendants and ancestors of nodes: marks spread over a graph in topological order."""

from __future__ import annotations

from htagraph.model.arrays import I32, I64, Bools
from htagraph.native.passes import compiled


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

    Parameters
    ----------
    order : ndarray of shape (k,), dtype=int32
        Nodes in topological order.
    offsets : ndarray of shape (n_nodes + 1,), dtype=int64
        Edges into node ``v`` are ``offsets[v]:offsets[v + 1]``.

    Examples
    --------
    >>> import numpy as np
    >>> offsets, tail = np.array([0, 0, 1, 2]), np.array([0, 1], np.int32)
    >>> order, every = np.arange(3, dtype=np.int32), np.ones(2, bool)
    >>> descendants(order, offsets, tail, every, np.array([False, True, False])).tolist()
    [False, True, True]
    """
    marked = seeds.copy()
    _forward(order, offsets, tail, allowed, marked)
    return marked


def ancestors(order: I32, offsets: I64, tail: I32, allowed: Bools, seeds: Bools) -> Bools:
    """Nodes from which the seeds can be reached, the seeds included.

    Parameters as for `descendants`.

    Examples
    --------
    >>> import numpy as np
    >>> offsets, tail = np.array([0, 0, 1, 2]), np.array([0, 1], np.int32)
    >>> order, every = np.arange(3, dtype=np.int32), np.ones(2, bool)
    >>> ancestors(order, offsets, tail, every, np.array([False, True, False])).tolist()
    [True, True, False]
    """
    marked = seeds.copy()
    _backward(order, offsets, tail, allowed, marked)
    return marked
