"""Call tree: operators, API calls and annotations by the chain of names above them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.ancestors import depths, nearest
from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code
from htagraph.explain.self_time import self_time
from htagraph.lookup.clipping import Clipped, device_work, host_work
from htagraph.lookup.naming import spelling
from htagraph.model.answers import OPERATOR_TREE
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.window import Window


def operator_tree(dag: Dag, window: Window, *, max_depth: int = 100) -> pd.DataFrame:
    """Call tree: one row per chain of names, with its calls and times.

    Parameters
    ----------
    max_depth : int, default=100
        Deeper calls are counted with their callers.

    Returns
    -------
    DataFrame, schema `answers.OPERATOR_TREE`
        By level, then by parent, longest first: parents are before their children.
    """
    host, work, events = host_work(dag, window), device_work(dag, window), dag.events
    depth = np.zeros(len(events), dtype=np.int64)
    depth[host.event] = depths(dag.parent, host.event)
    time = np.zeros(len(events), dtype=np.int64)
    time[host.event] = host.dur_ns
    node_of = np.full(len(events), -1, dtype=np.int64)
    parents, names, levels, n = [], [], [], 0
    for level in range(1, min(int(depth.max(initial=0)), max_depth + 1) + 1):
        rows = host.event[depth[host.event] == level]
        parent = gather(node_of, dag.parent[rows])
        key = (parent + 1) * max(len(events.symbols), 1) + events.name[rows]
        found, number = np.unique(key, return_inverse=True)
        number, found = _longest_first(dag, found, number, time[rows])
        node_of[rows] = n + number
        above, name = np.divmod(found, max(len(events.symbols), 1))
        parents.append(above - 1)
        names.append(name)
        levels.append(np.full(len(found), level - 1))
        n += len(found)
    return _tree_frame(dag, window, (host, work), _Nodes(node_of, parents, names, levels, n))


def _longest_first(dag: Dag, key: I64, number: I64, time: I64) -> tuple[I64, I64]:
    """Numbers and keys of the nodes of a level, reordered by parent, then time, then name."""
    parent, name = np.divmod(key, len(dag.events.symbols))
    order = np.lexsort((spelling(dag)[name], -sum_by_code(number, time, len(key)), parent))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[number], key[order]


class _Nodes:
    """Nodes of a call tree by level, and the node of each event."""

    def __init__(
        self, of_event: I64, parents: list[I64], names: list[I64], levels: list[I64], n: int
    ) -> None:
        none = [np.empty(0, dtype=np.int64)]
        self.of_event, self.n = of_event, n
        self.parent = np.concatenate(none + parents)
        self.name = np.concatenate(none + names)
        self.depth = np.concatenate(none + levels)


def _tree_frame(
    dag: Dag, window: Window, found: tuple[Clipped, Clipped], nodes: _Nodes
) -> pd.DataFrame:
    """The answer, with times of host events and device work."""
    host, work = found
    node, own = nodes.of_event[host.event], self_time(dag, window, host)[host.event]
    kept = node >= 0
    launch = dag.launch[work.event].astype(np.int64)
    at = gather(nodes.of_event, nearest(dag.parent, launch, nodes.of_event >= 0))
    n_kernels = np.bincount(at[at >= 0], minlength=nodes.n)
    device_ns = sum_by_code(at[at >= 0], work.dur_ns[at >= 0], nodes.n)
    for deep in range(int(nodes.depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero(nodes.depth == deep)
        np.add.at(n_kernels, nodes.parent[rows], n_kernels[rows])
        np.add.at(device_ns, nodes.parent[rows], device_ns[rows])
    return OPERATOR_TREE.frame(
        {
            "node": np.arange(nodes.n),
            "parent": nodes.parent,
            "depth": nodes.depth,
            "name": dag.events.symbols.array[nodes.name],
            "n_calls": np.bincount(node[kept], minlength=nodes.n),
            "host_ns": sum_by_code(node[kept], host.dur_ns[kept], nodes.n),
            "self_ns": sum_by_code(node[kept], own[kept], nodes.n),
            "n_kernels": n_kernels,
            "device_ns": device_ns,
        }
    )
