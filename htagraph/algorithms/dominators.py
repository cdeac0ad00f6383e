"""Dominators in an order of events: nodes that come before or after each other node."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["dominators"]


def dominators(
    tail: npt.NDArray[np.integer], head: npt.NDArray[np.integer], n_nodes: int
) -> npt.NDArray[np.bool_]:
    """Whether each node of a graph without cycles comes before or after every other node.

    In the transitive reduction of the graph, every path from a root to a leaf passes these nodes;
    implied edges make no difference here.

    All earlier nodes lead to a node if each has an edge to a node no later than it, and all later
    nodes follow it if each has an edge from a node no earlier. Two running extremes tell, no tree.

    ``O(nodes + edges)``; graphs with cycles would need Lengauer and Tarjan, "A fast algorithm for
    finding dominators in a flowgraph", 1979.

    Parameters
    ----------
    tail, head : ndarray of shape (n_edges,), dtype=int
        Positions in a topological order: ``tail < head``.

    Examples
    --------
    Two ways lead from 0 to 3, by 1 and by 2; the edge from 0 to 4 is implied.

    >>> tail, head = np.array([0, 0, 1, 2, 3, 0]), np.array([1, 2, 3, 3, 4, 4])
    >>> dominators(tail, head, 5).tolist()
    [True, False, False, True, True]
    """
    first_after, last_before = np.full(n_nodes, n_nodes), np.full(n_nodes, -1)
    np.minimum.at(first_after, tail, head)
    np.maximum.at(last_before, head, tail)
    earlier_lead_to = np.concatenate([[0], np.maximum.accumulate(first_after)])[:n_nodes]
    later_come_after = np.append(np.minimum.accumulate(last_before[::-1])[::-1], n_nodes)[1:]
    number = np.arange(n_nodes)
    out: npt.NDArray[np.bool_] = (earlier_lead_to <= number) & (later_come_after >= number)
    return out
