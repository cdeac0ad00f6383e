"""Edges as a table, and as the arrows of a timeline."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.model.arrays import I32
from htagraph.model.dag import Dag
from htagraph.model.frames import EDGES
from htagraph.model.kinds import EdgeKind
from htagraph.model.rules import Rule
from htagraph.model.schema import categorical


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
        }
    )


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
