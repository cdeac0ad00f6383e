"""rustworkx views of edge tables: made lazily of what is asked for, never the graph itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from rustworkx import PyDiGraph

__all__ = ["PyDiGraph", "to_rustworkx"]


def to_rustworkx(
    tail: npt.NDArray[np.integer],
    head: npt.NDArray[np.integer],
    nodes: Iterable[Any],
    payload: Iterable[Any],
) -> PyDiGraph:
    """A rustworkx graph of labelled nodes and edges.

    Parameters
    ----------
    tail, head : ndarray of shape (n_edges,)
        Positions in `nodes`.
    nodes : iterable
        What each node carries.
    payload : iterable
        What each edge carries, in the order of the edges.

    Returns
    -------
    rustworkx.PyDiGraph

    Notes
    -----
    About 0.5 us an edge.

    Examples
    --------
    >>> import rustworkx
    >>> graph = to_rustworkx(np.array([0]), np.array([1]), ["a", "b"], [{"lag_ns": 3}])
    >>> rustworkx.dag_longest_path_length(graph, lambda u, v, edge: edge["lag_ns"])
    3
    """
    graph = PyDiGraph(check_cycle=False, multigraph=True)
    graph.add_nodes_from(list(nodes))
    graph.add_edges_from(list(zip(tail.tolist(), head.tolist(), payload, strict=True)))
    return graph
