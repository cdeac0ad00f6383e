"""Parts of a graph as graphs of rustworkx."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from rustworkx import PyDiGraph as PyDiGraph  # noqa: PLC0414  exported
from rustworkx import transitive_reduction

from htagraph.model.arrays import I64, Bools
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind


class Node(NamedTuple):
    """What a node of a rustworkx graph carries."""

    event: int  # Row of the event table; -1 for the source and the sink
    # name, kind: of the event; ``"source"`` and ``"sink"`` are of no kind
    name: str
    kind: str
    at: str  # ``"start"`` or ``"end"`` of the event, empty for all of it
    ts_ns: int  # Of the event: its start


def nodes_of(events: EventTable, rows: I64, at: Iterable[str]) -> Iterator[Node]:
    """Nodes of some events, by their rows."""
    kinds = np.array(EventKind.labels(), dtype=object)[events.kind[rows]]
    columns = (rows, events.names(rows), kinds, events.ts_ns[rows])
    event, name, kind, ts_ns = (column.tolist() for column in columns)
    return map(Node, event, name, kind, at, ts_ns)


def to_rustworkx(
    tail: npt.NDArray[np.integer],
    head: npt.NDArray[np.integer],
    nodes: Iterable[Node],
    edges: Mapping[str, Sequence[Any]],
) -> PyDiGraph:
    """A rustworkx graph of labelled nodes and edges; about 1 us an edge.

    `tail`, `head` of shape (n_edges,): positions in `nodes`. `edges`: what each edge carries, by
    columns.
    """
    graph = PyDiGraph(check_cycle=False, multigraph=True)
    collects = gc.isenabled()
    gc.disable()  # it would look through all that is made here again and again, and free nothing
    try:
        payload = (dict(zip(edges, row, strict=True)) for row in zip(*edges.values(), strict=True))
        graph.add_nodes_from(list(nodes))
        graph.add_edges_from(list(zip(tail.tolist(), head.tolist(), payload, strict=True)))
    finally:
        if collects:
            gc.enable()
    return graph


def is_implied(tail: npt.NDArray[np.integer], head: npt.NDArray[np.integer], n_nodes: int) -> Bools:
    """Whether other edges of a graph without cycles imply each edge.

    The rest is the transitive reduction. It takes time and memory proportional to nodes times
    edges: for drawings only.
    """
    graph = PyDiGraph(multigraph=False)
    graph.add_nodes_from(range(n_nodes))
    graph.add_edges_from_no_data(list(zip(tail.tolist(), head.tolist(), strict=True)))
    reduced, number = transitive_reduction(graph)
    place = np.array([number[node] for node in range(n_nodes)], dtype=np.int64)
    kept = np.array(reduced.edge_list(), dtype=np.int64).reshape(-1, 2)
    needed = np.isin(place[tail] * n_nodes + place[head], kept[:, 0] * n_nodes + kept[:, 1])
    return ~needed
