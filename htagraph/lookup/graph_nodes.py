"""Which node of a CUDA graph each piece of its device work is, the same in every replay.

The profiler may record the node's id. Otherwise its position in its stream identifies it, and
replays with the same work at the same positions are replays of one graph.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.lookup.programs import graph_launches
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag


class GraphNodes(NamedTuple):
    """Replayed device work by graph, replay and start."""

    event: I64
    graph: I64  # Number of the graph, in order of first replays
    replay: I64  # Number of the replay in the trace, in order of time
    node: I64  # Number of the node in its graph, in order of first starts
    is_recorded: Bools  # Whether the profiler recorded the node's id

    def take(self, rows: npt.NDArray[np.integer] | Bools) -> GraphNodes:
        """Some of the work, by positions or a mask."""
        return GraphNodes._make(column[rows] for column in self)


def graph_nodes(dag: Dag) -> GraphNodes:
    """Nodes of CUDA graphs in a trace, with all their replays."""
    events = dag.events
    node_id = events.column("graph_node").astype(np.int64)
    launched = (dag.launch >= 0) & graph_launches(dag)[dag.launch]
    rows = np.flatnonzero(events.is_device & (launched | (node_id > 0)))
    # A graph launch from before the profile has a correlation id, but no call.
    launch = dag.launch[rows].astype(np.int64)
    call = np.where(launch >= 0, launch, len(events) + 1 + events.correlation[rows])
    alphabet = np.argsort(np.argsort(events.symbols.array, kind="stable"), kind="stable")
    work = pd.DataFrame(
        {
            "event": rows,
            "call": call,
            "ts_ns": events.ts_ns[rows],
            "dur_ns": events.dur_ns[rows],
            "name": alphabet[events.name[rows]] if len(rows) else rows,
            "device": events.device[rows].astype(np.int64),
            "stream": events.stream[rows],
            "graph_id": events.column("graph_id")[rows].astype(np.int64),
            "node_id": np.maximum(node_id[rows], 0),
        }
    )
    begin = work.groupby("call")["ts_ns"].transform("min")
    order = ["begin", "call", "ts_ns", "name", "dur_ns", "device", "stream"]
    work = work.assign(begin=begin).sort_values(order, kind="stable", ignore_index=True)
    work["replay"] = work.groupby("call", sort=False).ngroup()
    work["place"] = _places(work)
    work["graph"] = _graphs(work)
    work = work.sort_values("graph", kind="stable", ignore_index=True)
    node = work.groupby(["graph", "place"], sort=False).ngroup()
    first = node.groupby(work["graph"]).transform("min")
    return GraphNodes(
        event=work["event"].to_numpy(np.int64),
        graph=work["graph"].to_numpy(np.int64),
        replay=work["replay"].to_numpy(np.int64),
        node=(node - first).to_numpy(np.int64),
        is_recorded=(work["node_id"] > 0).to_numpy(bool),
    )


def _places(work: pd.DataFrame) -> pd.Series[int]:
    """A number for each place in a graph: the node's id, else its position in its stream."""
    is_known = work["node_id"] > 0
    position = work.groupby(["replay", "device", "stream"], sort=False).cumcount()
    parts = (work["device"], work["stream"], work["name"], position)
    keys = [part.where(~is_known, -1) for part in parts]
    return work.groupby([work["node_id"], *keys], sort=False).ngroup()


def _graphs(work: pd.DataFrame) -> pd.Series[int]:
    """Number of the graph of each piece of work: by its recorded id, else by all of its places."""
    of_replay = work.groupby("replay", sort=True)
    graph_id = of_replay["graph_id"].max().to_numpy(np.int64)
    is_known = (graph_id > 0) & (of_replay["node_id"].min().to_numpy() > 0)
    n_work = of_replay.size().to_numpy(np.int64)
    ordered = work.sort_values(["replay", "place"], kind="stable")
    places = ordered["place"].to_numpy(np.int64)
    begins = np.cumsum(n_work) - n_work
    same = np.zeros(len(n_work), dtype=np.int64)
    for length in np.unique(n_work).tolist():
        alike = np.flatnonzero(n_work == length)
        listed = places[begins[alike][:, None] + np.arange(length)]
        _, code = np.unique(listed, axis=0, return_inverse=True)
        same[alike] = code.reshape(-1)
    keys = pd.DataFrame(
        {
            "id": np.where(is_known, graph_id, -1),
            "length": np.where(is_known, -1, n_work),
            "same": np.where(is_known, -1, same),
        }
    )
    graph = keys.groupby(["id", "length", "same"], sort=False).ngroup()
    return work["replay"].map(graph)
