"""The graph of a window, closed by one source and one sink."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htagraph.model.arrays import I8, I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind
from htagraph.model.window import Window


@dataclass(frozen=True)
class WindowedEdges:
    """Edges among the nodes of a window, its source and its sink.

    Parameters
    ----------
    nodes : ndarray of shape (n,), dtype=int64
        Nodes of the graph in the window, ascending. Position ``n`` is the source, ``n + 1`` the
        sink.
    tail, head : ndarray of shape (m,), dtype=int64
        Positions.
    residual_ns : ndarray of shape (n + 2,), dtype=int64, unit=ns
        Residual of each position; the longest path over ``lag_ns[edge] + residual_ns[head]`` is the
        window.
    edge : ndarray of shape (m,), dtype=int64
        Row of the edge table, -1 for new edges of the source and the sink.
    """

    nodes: I64
    tail: I64
    head: I64
    kind: I8
    lag_ns: I64
    residual_ns: I64
    edge: I64


def windowed_edges(dag: Dag, window: Window) -> WindowedEdges:
    """Graph of a window with its source and sink.

    An edge from before the window comes from the source, with the rest of its lag. The source leads
    to nodes without such edges, and nodes whose followers are beyond the window lead to the sink.
    """
    times, edges = dag.events.node_ts_ns, dag.edges
    inside = np.zeros(len(times), dtype=bool)
    ordered = times[dag.order]
    inside[dag.order[(ordered >= window.start_ns) & (ordered <= window.end_ns)]] = True
    nodes = np.flatnonzero(inside)
    n = len(nodes)
    place = np.full(len(times) + 1, -1, dtype=np.int64)
    place[nodes] = np.arange(n)
    rows = np.flatnonzero(inside[edges.head])
    arrival = np.maximum(dag.arrival_ns[rows], window.start_ns)
    from_inside = inside[edges.tail[rows]]
    tail_time = np.where(from_inside, times[edges.tail[rows]], window.start_ns)
    latest = np.full(n, window.start_ns, dtype=np.int64)
    np.maximum.at(latest, place[edges.head[rows]], arrival)
    fed = np.zeros(n, dtype=bool)
    fed[place[edges.head[rows]]] = True
    roots = np.flatnonzero(~fed)
    feeds = np.zeros(n, dtype=bool)
    feeds[place[edges.tail[rows[from_inside]]]] = True
    leaves = np.flatnonzero(~feeds)
    source, sink = n, n + 1
    last = int(times[nodes].max()) if n else window.start_ns
    ends = np.concatenate([leaves, [source]]) if not n else leaves
    residual = np.zeros(n + 2, dtype=np.int64)
    residual[:n] = times[nodes] - latest
    residual[sink] = window.end_ns - last
    return WindowedEdges(
        nodes=nodes,
        tail=np.concatenate(
            [
                np.where(from_inside, place[edges.tail[rows]], source),
                np.full(len(roots), source),
                ends,
            ]
        ),
        head=np.concatenate([place[edges.head[rows]], roots, np.full(len(ends), sink)]),
        kind=np.concatenate(
            [
                edges.kind[rows],
                np.full(len(roots), EdgeKind.SOURCE),
                np.full(len(ends), EdgeKind.SINK),
            ]
        ).astype(np.int8),
        lag_ns=np.concatenate(
            [arrival - tail_time, np.zeros(len(roots) + len(ends), dtype=np.int64)]
        ),
        residual_ns=residual,
        edge=np.concatenate([rows, np.full(len(roots) + len(ends), -1)]),
    )
