"""Nodes of CUDA and HIP graphs: duration and start of each, over all replays."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.distribution import distribution
from htagraph.lookup.clipping import device_work
from htagraph.lookup.graph_nodes import graph_nodes as nodes_of
from htagraph.model.answers import GRAPH_NODES
from htagraph.model.dag import Dag
from htagraph.model.schema import categorical
from htagraph.model.window import Window

_FOUND_BY = ("position", "node id")


def graph_nodes(dag: Dag, window: Window) -> pd.DataFrame:
    """Nodes of CUDA and HIP graphs, with their time over the replays that overlap the window.

    Returns
    -------
    DataFrame, schema `answers.GRAPH_NODES`
        By graph and node. Times are not clipped to the window.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     cpu 1    |[graph >a][graph >b]
    ...     stream 7 |       [k <a]  [m <a]   [k <b][m <b  ]
    ... '''))
    >>> graph_nodes(dag, dag.span)[["node", "name", "n_replays", "mean_ns", "offset_ns", "gap_ns"]]
       node name  n_replays  mean_ns  offset_ns  gap_ns
    0     0    k          2   6000.0          0       0
    1     1    m          2   7000.0       6000       0
    """
    nodes, events = nodes_of(dag), dag.events
    replay = nodes.replay
    _, first, row = np.unique(replay, return_index=True, return_inverse=True)
    begin = events.ts_ns[nodes.event[first]]
    offset = events.ts_ns[nodes.event] - begin[row]
    until = offset + events.dur_ns[nodes.event]
    # An offset per replay keeps them apart, so that one pass finds the latest end in each.
    apart = np.cumsum(np.diff(replay, prepend=-1) != 0) * (int(until.max(initial=0)) + 1)
    ended = np.maximum.accumulate(until + apart) - apart
    before = np.concatenate([[0], ended[:-1]])[: len(ended)]
    gap = np.where(offset > 0, np.maximum(offset - before, 0), 0)
    inside = np.isin(nodes.event, device_work(dag, window).event)
    nodes, offset, gap = nodes.take(inside), offset[inside], gap[inside]
    node = pd.DataFrame({"graph": nodes.graph, "node": nodes.node}).groupby(["graph", "node"])
    group = np.asarray(node.ngroup(), dtype=np.int64)
    of = np.unique(group, return_index=True)[1]
    work, start, idle = (
        distribution(group, values, (0.5,)) for values in (events.dur_ns[nodes.event], offset, gap)
    )
    event = nodes.event[of]
    return GRAPH_NODES.frame(
        {
            "graph": nodes.graph[of],
            "node": nodes.node[of],
            "name": events.names(event),
            "device": events.device[event],
            "stream": events.stream[event],
            "n_replays": work.n,
            "sum_ns": work.total,
            "mean_ns": work.mean,
            "median_ns": work.quantiles[0],
            "min_ns": work.smallest,
            "max_ns": work.largest,
            "offset_ns": start.quantiles[0],
            "offset_spread_ns": start.largest - start.smallest,
            "gap_ns": idle.quantiles[0],
            "found_by": categorical(nodes.is_recorded[of].astype(np.int64), _FOUND_BY),
        }
    )
