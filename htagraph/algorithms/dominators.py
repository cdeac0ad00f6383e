"""Dominators in an order of events: nodes that come before or after each other node."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["dominators"]


def dominators(
    tail: npt.NDArray[np.integer], head: npt.NDArray[np.integer], n_nodes: int
) -> npt.NDArray[np.bool_]:
    """Whether each node of a graph without cycles comes before or after every other node.

    Of the transitive reduction of the graph, these are the nodes that every way from its roots to
    its leaves leads through; that edges are implied by others makes no difference here.

    All earlier nodes lead to a node if each of them leads to another one no later than it; all
    later nodes come after it if each of them comes after another one no earlier. So it takes two
    running extremes, and no tree.

    Parameters
    ----------
    tail, head : ndarray of shape (n_edges,), dtype=int
        Positions in a topological order: ``tail < head``.

    Returns
    -------
    ndarray of shape (n_nodes,), dtype=bool

    Notes
    -----
    ``O(nodes + edges)``. Lengauer and Tarjan, "A fast algorithm for finding dominators in a
    flowgraph", 1979, is for graphs with cycles.

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
