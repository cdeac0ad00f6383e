"""What of a graph is in a window: its edges with a source and a sink, and its events, cut."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.errors import QueryError
from htagraph.model.arrays import I32, I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.frames import EDGES
from htagraph.model.kinds import EdgeKind
from htagraph.model.rules import Rule
from htagraph.model.schema import categorical
from htagraph.model.window import Window


def windowed_edges(dag: Dag, window: Window) -> tuple[I64, I64, I64, dict[str, npt.NDArray[Any]]]:
    """Nodes of a window, and its edges with a source and a sink: tails, heads and columns.

    Tails and heads are positions among the nodes, which ascend; those after the last are the source
    and the sink. Columns: row of the edge table, -1 for new edges; kind; lag; and residual of the
    head: the longest path over both is the window.

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
    tails = [np.where(from_inside, place[edges.tail[rows]], source), np.full_like(roots, source)]
    head = np.concatenate([place[edges.head[rows]], roots, np.full(len(ends), sink)])
    n_new = len(roots) + len(ends)
    columns = {
        "edge": np.concatenate([rows, np.full(n_new, -1)]),
        "kind": np.concatenate(
            [edges.kind[rows], [EdgeKind.SOURCE] * len(roots), [EdgeKind.SINK] * len(ends)]
        ).astype(np.int8),
        "lag_ns": np.concatenate([arrival - tail_time, np.zeros(n_new, dtype=np.int64)]),
        "residual_ns": residual[head],
    }
    return nodes, np.concatenate([*tails, ends]), head, columns


class Clipped(NamedTuple):
    """Events and the part of each that is in a window."""

    event: I64
    start_ns: I64
    end_ns: I64

    @property
    def dur_ns(self) -> I64:
        """Time of each event in the window."""
        return self.end_ns - self.start_ns

    def take(self, rows: npt.NDArray[np.integer] | Bools) -> Clipped:
        """Some rows (positions or a mask)."""
        return Clipped(self.event[rows], self.start_ns[rows], self.end_ns[rows])


def clipped(dag: Dag, events: I64, window: Window) -> Clipped:
    """Events that overlap a window, cut at its bounds; empty ones, if they begin in it."""
    start, end = dag.events.ts_ns[events], dag.events.end_ns[events]
    inside = (start < window.end_ns) & ((end > window.start_ns) | (start >= window.start_ns))
    if not inside.all():
        events, start, end = events[inside], start[inside], end[inside]
    return Clipped(events, np.maximum(start, window.start_ns), np.minimum(end, window.end_ns))


def device_work(dag: Dag, window: Window) -> Clipped:
    """Kernels, copies and fills that overlap a window, cut at its bounds."""
    return clipped(dag, np.flatnonzero(dag.events.is_device), window)


def host_work(dag: Dag, window: Window) -> Clipped:
    """Operators, calls and annotations that overlap a window, cut at its bounds."""
    return clipped(dag, np.flatnonzero(dag.events.is_host), window)


MOST_ARROWS = 100_000
"""Arrows of a file for Perfetto, chosen: its UI draws so many without a pause."""


def edge_frame(dag: Dag, rows: npt.NDArray[np.integer]) -> pd.DataFrame:
    """Rows of the edge table with their times and slack."""
    edges, times = dag.edges, dag.events.node_ts_ns
    tail, head = edges.tail[rows].astype(np.int64), edges.head[rows].astype(np.int64)
    return EDGES.frame(
        {
            "edge": rows.astype(np.int64),
            "kind": categorical(edges.kind[rows], EdgeKind.labels()),
            "tail_event": tail >> 1,
            "tail_is_end": (tail & 1).astype(bool),
            "head_event": head >> 1,
            "head_is_end": (head & 1).astype(bool),
            "tail_ns": times[tail],
            "dur_ns": times[head] - times[tail],
            "lag_ns": edges.lag_ns[rows],
            "slack_ns": dag.slack_ns[rows],
            "is_binding": dag.binding[head] == rows,
            "rule": categorical(edges.rule[rows], Rule.labels()),
        },
        copy=False,
    )


def edges_in(dag: Dag, window: Window) -> I64:
    """Edges that overlap a window, ascending; all of them for the whole trace."""
    edges, times = dag.edges, dag.events.node_ts_ns
    if window == dag.span:
        return np.arange(len(edges))
    inside = (times[edges.tail] < window.end_ns) & (times[edges.head] > window.start_ns)
    return np.flatnonzero(inside)


def edge_arrows(dag: Dag, window: Window) -> tuple[I64, int]:
    """Tails and heads of the edges of a window that join two events, each pair once.

    Also how many edges viewers would draw backward: they lead to the end of what began before, such
    as a call that waited.
    """
    rows = edges_in(dag, window)
    tail, head = (nodes[rows].astype(np.int64) >> 1 for nodes in (dag.edges.tail, dag.edges.head))
    tail, head = tail[tail != head], head[tail != head]
    forward = dag.events.ts_ns[tail] < dag.events.ts_ns[head]
    pairs = np.unique(np.stack([tail[forward], head[forward]]), axis=1)
    if pairs.shape[1] > MOST_ARROWS:
        raise QueryError(
            f"{window.name} has {pairs.shape[1]:,} arrows, more than {MOST_ARROWS:,}.",
            hint="take a shorter window: a step, or a time range.",
        )
    return pairs, int(np.count_nonzero(~forward))


def work_links(dag: Dag) -> tuple[I32, I32]:
    """Pairs of events of which one passed work to the other.

    A launch leads to its device work, and FLOW edges from one host thread to another: forward to
    backward, and a caller to the autograd thread that works for it.
    """
    launched = np.flatnonzero(dag.launch >= 0)
    flows = dag.edges.take(dag.edges.kind == EdgeKind.FLOW)
    return (
        np.concatenate([dag.launch[launched], flows.tail >> 1]).astype(np.int32),
        np.concatenate([launched, flows.head >> 1]).astype(np.int32),
    )
