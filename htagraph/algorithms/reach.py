"""Parts of a graph as graphs of rustworkx."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from rustworkx import PyDiGraph, transitive_reduction

from htagraph.model.arrays import Bools

__all__ = ["PyDiGraph", "is_implied", "to_rustworkx"]


def to_rustworkx(
    tail: npt.NDArray[np.integer],
    head: npt.NDArray[np.integer],
    nodes: Iterable[Any],
    payload: Iterable[Any],
) -> PyDiGraph:
    """A rustworkx graph of labelled nodes and edges; about 0.5 us an edge.

    Parameters
    ----------
    tail, head : ndarray of shape (n_edges,)
        Positions in `nodes`.
    nodes, payload : iterable
        What each node, and each edge, carries.

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


def is_implied(tail: npt.NDArray[np.integer], head: npt.NDArray[np.integer], n_nodes: int) -> Bools:
    """Whether other edges of a graph without cycles imply each edge.

    The rest is the transitive reduction. It takes time and memory proportional to nodes times
    edges: for drawings only.

    Examples
    --------
    >>> is_implied(np.array([0, 1, 0]), np.array([1, 2, 2]), 3).tolist()
    [False, False, True]
    """
    graph = PyDiGraph(multigraph=False)
    graph.add_nodes_from(range(n_nodes))
    graph.add_edges_from_no_data(list(zip(tail.tolist(), head.tolist(), strict=True)))
    reduced, number = transitive_reduction(graph)
    place = np.array([number[node] for node in range(n_nodes)], dtype=np.int64)
    kept = np.array(reduced.edge_list(), dtype=np.int64).reshape(-1, 2)
    needed = np.isin(place[tail] * n_nodes + place[head], kept[:, 0] * n_nodes + kept[:, 1])
    return ~needed
