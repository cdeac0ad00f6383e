"""Weakly connected components: what edges join, whichever way they point."""

from __future__ import annotations

import numpy as np

from htagraph.model.arrays import I32
from htagraph.native.passes import compiled


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

    Examples
    --------
    >>> components(np.array([3, 1], np.int32), np.array([1, 0], np.int32), 4).tolist()
    [0, 0, 2, 0]
    """
    root = np.arange(n_nodes, dtype=np.int32)
    _join(tail, head, root)
    return root
