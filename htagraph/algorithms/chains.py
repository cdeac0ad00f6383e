"""Chains of nodes that are equally far from being critical, each found once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.model.arrays import I32, I64, Bools
from htagraph.native.passes import compiled


class Chains(NamedTuple):
    """Chains of nodes, in the order in which they were found."""

    chain: I32
    """Number of the chain of each node, -1 for none."""
    first: I64
    """Node at which each chain begins."""
    last: I64
    """Node at which each chain ends."""


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


def chains(float_ns: I64, is_near: Bools, binding: I32, tail: I32) -> Chains:
    """Chains along binding edges, least float first; each ends at nodes of another, or before.

    A node has at most the float of what it binds. Chains are found by ascending float, so all nodes
    of one have the same float: its last node leads back along all of it, to nodes of less float.

    Parameters
    ----------
    float_ns : ndarray of shape (n_nodes,), dtype=int64, unit=ns
        Nodes in a topological order.
    is_near : ndarray of shape (n_nodes,), dtype=bool
        Nodes that chains may contain.
    binding : ndarray of shape (n_nodes,), dtype=int32
        Edge into each node, -1 for none.

    Examples
    --------
    >>> binding, tail = np.array([-1, 0, 1, 0, 2], np.int32), np.array([0, 1, 3], np.int32)
    >>> float_ns = np.array([0, 5, 5, 9, 9])
    >>> found = chains(float_ns, float_ns > 0, binding, tail)
    >>> found.chain.tolist(), found.first.tolist(), found.last.tolist()
    ([-1, 0, 0, 1, 1], [1, 3], [2, 4])
    """
    near = np.flatnonzero(is_near)[::-1]
    order = near[np.argsort(float_ns[near], kind="stable")]
    chain = np.full(len(float_ns), -1, dtype=np.int32)
    ends = np.empty((len(order), 2), dtype=np.int64)
    count = _chains(order, is_near, binding, tail, chain, ends)
    return Chains(chain, ends[:count, 0], ends[:count, 1])
