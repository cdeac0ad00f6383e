"""Replays of captured graphs that lack kernels which other replays of the same graph have.

All replays of a graph do the same work. Where records are lost at random, most replays lack others
of its nodes::

    stream 7   [a][b][c][d]   [a][b]   [d]   [a]   [c][d]   [a][b][c][d]   [a][b][c][d]

A graph that runs once may be a part of another one, such as the last layer of a model. So only
several replays count that each lack something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.lookup.compiled_work import graph_launches
from htagraph.lookup.holes import Hole
from htagraph.model.api_calls import GRAPH_LAUNCH
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag

_FEWEST = 3
"""Replays of a whole graph, and replays that each lack other nodes of it, that show a loss. Chosen:
two graphs that run once, before and after all layers of a model, are parts of the others.
Pinned by `test_lost_nodes.py::test_three_replays_that_lack_nodes_are_a_loss`."""

_FEWEST_UNNAMED = 10
"""If no replay is whole, and no record tells graphs apart: replays of which none is like another.
Chosen: of a program that runs ten graphs once each, some are the same.
Pinned by `test_lost_nodes.py::test_ten_replays_without_ids_are_a_loss`."""

_MOSTLY = 0.5
"""Share of replays that are unlike all others if none is whole (chosen).
Pinned by `test_lost_nodes.py::test_replays_of_several_graphs_are_whole`."""

_VARIES = 0.75
"""Share of kernel names whose number varies from replay to replay, if no record tells graphs apart.
Chosen: graphs for other batch sizes share norms and other kernels, in the same number.
Pinned by `test_lost_nodes.py::test_graphs_for_other_batch_sizes_are_whole`."""


class _Replays(NamedTuple):
    """Work of replays, in order of launches.

    Parameters
    ----------
    call : ndarray of shape (n,), dtype=int64
        The launch of each replay.
    graph : ndarray of shape (n,), dtype=int64
        Recorded id of its graph, -1 if it is unknown.
    kind : ndarray of shape (n,), dtype=int64
        The same number for replays with the same nodes.
    work, of, node : ndarray of shape (m,), dtype=int64
        Device events, the position of their replay, and the number of the node: by its recorded id,
        else by name and stream.
    """

    call: I64
    graph: I64
    kind: I64
    work: I64
    of: I64
    node: I64

    @classmethod
    def of_trace(cls, dag: Dag) -> _Replays:
        """Those whose launch and work were recorded."""
        events = dag.events
        work = np.flatnonzero(events.is_device & (dag.launch >= 0))
        launch = dag.launch[work].astype(np.int64)
        is_replay = graph_launches(dag)[launch]
        work, launch = work[is_replay], launch[is_replay]
        call = np.unique(launch)
        call = call[np.argsort(events.ts_ns[call], kind="stable")]
        place = np.full(len(events), -1, dtype=np.int64)
        place[call] = np.arange(len(call))
        of = place[launch]
        graph_id = events.column("graph_id")[work].astype(np.int64)
        node_id = events.column("graph_node")[work].astype(np.int64)
        is_known = (graph_id > 0) & (node_id > 0)
        graph = np.full(len(call), -1, dtype=np.int64)
        np.maximum.at(graph, of, np.where(is_known, graph_id, -1))
        names = (events.name[work], events.device[work], events.stream[work])
        parts = [np.where(is_known, -1, part) for part in names]
        ids = [np.where(is_known, part, -1) for part in (graph_id, node_id)]
        keys = np.stack([*parts, *ids], axis=1)
        _, node = np.unique(keys, axis=0, return_inverse=True)
        node = node.reshape(-1)
        # Replays with the same nodes have the same sum of random numbers, one for each node.
        weight = np.random.default_rng(0).integers(1 << 62, size=int(node.max(initial=-1)) + 1)
        total = np.zeros(len(call), dtype=np.int64)
        np.add.at(total, of, weight[node])
        _, kind = np.unique(np.stack([graph, total], axis=1), axis=0, return_inverse=True)
        return cls(call, graph, kind.reshape(-1), work, of, node)

    def counts(self, rows: I64) -> I64:
        """How often each node is in some of the replays; shape (len(rows), n_nodes)."""
        place = np.full(len(self.call), -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        mine = place[self.of] >= 0
        _, node = np.unique(self.node[mine], return_inverse=True)
        n_nodes = int(node.max(initial=-1)) + 1
        at = place[self.of[mine]] * n_nodes + node
        return np.bincount(at, minlength=len(rows) * n_nodes).reshape(len(rows), n_nodes)


def lost_nodes(dag: Dag) -> Iterator[Hole]:
    """Yield the replays of each graph that lack nodes; of unknown graphs, those of all.

    The first and the last replay of a trace may be cut, so they show nothing. None of a trace that
    was read in part.
    """
    if dag.notes.get("is_part", 0) or not dag.events.symbols.searched(GRAPH_LAUNCH).any():
        return
    replays = _Replays.of_trace(dag)
    for graph in np.unique(replays.graph).tolist():
        rows = np.flatnonzero(replays.graph == graph)
        is_lossy = _lossy(replays, rows, is_known=graph > 0)
        if is_lossy.any():
            work = replays.work[gather(is_lossy, np.searchsorted(rows, replays.of))]
            yield Hole(
                int(is_lossy.sum()),
                len(rows),
                int(dag.events.ts_ns[work].min()),
                int(dag.events.end_ns[work].max()),
            )


def _lossy(replays: _Replays, rows: I64, *, is_known: bool) -> Bools:
    """Whether each of some replays lacks nodes."""
    out = np.zeros(len(rows), dtype=bool)
    _, first, kind, n = np.unique(
        replays.kind[rows], return_index=True, return_inverse=True, return_counts=True
    )
    is_cut = (rows == 0) | (rows == len(replays.call) - 1)
    once = np.flatnonzero((n[kind] == 1) & ~is_cut)
    if len(once) < _FEWEST:
        return out
    whole = first[n >= _FEWEST]
    counts = replays.counts(rows[np.append(whole, once)])
    wholes, lacking = counts[: len(whole)], counts[len(whole) :]
    for one in wholes:
        lacks = (lacking <= one).all(axis=1)
        if lacks.sum() >= _FEWEST:
            out[once[lacks]] = True
    if len(once) > _MOSTLY * len(rows) and (is_known or _vary(lacking)):
        out[once] = True
    return out


def _vary(counts: I64) -> bool:
    """Whether many replays share most nodes, but not how often they have them."""
    has = counts > 0
    varies = (has.sum(axis=0) > 1) & (np.ptp(counts, axis=0) > 0)
    n_named = int(has.any(axis=0).sum())
    return len(counts) >= _FEWEST_UNNAMED and bool(varies.sum() > _VARIES * n_named)
