"""Edges as a table, and as the arrows of a timeline."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.errors import QueryError
from htagraph.model.arrays import I32, I64
from htagraph.model.dag import Dag
from htagraph.model.frames import EDGES
from htagraph.model.kinds import EdgeKind
from htagraph.model.rules import Rule
from htagraph.model.schema import categorical
from htagraph.model.window import Window

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


class EdgeArrows(NamedTuple):
    """Edges of a window as arrows from event to event, each pair once.

    Parameters
    ----------
    n_without : int
        Edges that viewers would draw backward: they lead to the end of what began before, such as
        a call that waited.
    """

    tail: I64
    head: I64
    n_without: int

    @classmethod
    def of(cls, dag: Dag, window: Window) -> EdgeArrows:
        """Those of the edges of a window that join two events.

        Raises
        ------
        QueryError
            If there are more than `MOST_ARROWS`.
        """
        rows = edges_in(dag, window)
        tail, head = (
            nodes[rows].astype(np.int64) >> 1 for nodes in (dag.edges.tail, dag.edges.head)
        )
        tail, head = tail[tail != head], head[tail != head]
        forward = dag.events.ts_ns[tail] < dag.events.ts_ns[head]
        pairs = np.unique(np.stack([tail[forward], head[forward]]), axis=1)
        if pairs.shape[1] > MOST_ARROWS:
            raise QueryError(
                f"{window.name} has {pairs.shape[1]:,} arrows, more than {MOST_ARROWS:,}.",
                hint="take a shorter window: a step, or a time range.",
            )
        return cls(pairs[0], pairs[1], int(np.count_nonzero(~forward)))


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
