"""Operators with their inclusive and exclusive time on the host and on the device, by name and as a tree of callers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.intervals import sum_by_code, union
from htagraph.algorithms.matching import group_starts
from htagraph.errors import GraphError
from htagraph.lookup.attribution import innermost
from htagraph.lookup.clipping import Clipped, clipped, device_work
from htagraph.lookup.launched import enclosing
from htagraph.lookup.naming import spelling
from htagraph.model.answers import OPERATOR_BREAKDOWN, OPERATOR_TREE
from htagraph.model.dag import Dag
from htagraph.model.frames import categorical
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.window import Window

__all__ = ["operator_breakdown", "operator_tree"]

I64 = npt.NDArray[np.int64]

_KINDS = (EventKind.OP, EventKind.RUNTIME, EventKind.ANNOTATION)


def _host_work(dag: Dag, window: Window) -> Clipped:
    """Return the operators, calls and annotations that overlap the window, cut at its bounds."""
    return clipped(dag, np.flatnonzero(dag.events.is_host), window)


def _self_ns(dag: Dag, window: Window, host: Clipped) -> I64:
    """Return for each event of the trace its time in the window in which it is innermost on its thread.

    The edges of a thread tile it, and each knows the event that is innermost there.
    """
    edges, times = dag.edges, dag.events.node_ts_ns
    rows = np.flatnonzero((edges.kind == EdgeKind.THREAD) & (edges.event >= 0))
    begin = np.maximum(times[edges.tail[rows]], window.start_ns)
    inside = np.maximum(np.minimum(times[edges.head[rows]], window.end_ns) - begin, 0)
    own = sum_by_code(edges.event[rows], inside, len(dag.events))
    on_thread = union(dag.events.lane[host.event].astype(np.int64), host.start_ns, host.end_ns)
    if int(own.sum()) != int((on_thread.end - on_thread.start).sum()):
        raise GraphError(
            f"the own times of host events in {window.name!r} do not add up to the time of the threads."
        )
    return own


def _once(rows: Sequence[I64], codes: Sequence[I64], n: int) -> tuple[I64, I64]:
    """Return each pair of row and code once."""
    none = np.empty(0, dtype=np.int64)
    pairs = np.sort(np.concatenate([none, *rows]) * max(n, 1) + np.concatenate([none, *codes]))
    return np.divmod(pairs[group_starts(pairs)], max(n, 1))


def operator_breakdown(dag: Dag, window: Window) -> pd.DataFrame:
    """Return operators, API calls and annotations by name, with their host time and the device time launched in them.

    ::

        cpu 1    | [aten::linear [aten::mm [launch >a]]    ]        linear: 1 call, its own time is what mm leaves
        stream 7 |                       [gemm <a         ]         gemm is in linear, mm and launch; mm is its operator

    Parameters
    ----------
    dag : Dag
    window : Window

    Returns
    -------
    DataFrame, schema `answers.OPERATOR_BREAKDOWN`
        Most own host time first. Where events of one thread overlap without nesting, the one that
        began last is innermost.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     cpu 1    |[aten::mm [launch >a]  ]
    ...     stream 7 |                 [gemm <a       ]
    ... '''))
    >>> operator_breakdown(dag, dag.span)[["name", "host_ns", "self_ns", "device_ns", "self_device_ns"]]
                   name  host_ns  self_ns  device_ns  self_device_ns
    0          aten::mm    24000    13000      16000           16000
    1  cudaLaunchKernel    11000    11000      16000               0
    """
    host, work, events = _host_work(dag, window), device_work(dag, window), dag.events
    n_kinds = len(EventKind)
    code_of_event = events.name.astype(np.int64) * n_kinds + events.kind
    codes, code = np.unique(code_of_event[host.event], return_inverse=True)
    n = len(codes)
    of_event = np.full(len(events), -1, dtype=np.int64)
    of_event[host.event] = code
    n_lanes = max(len(events.lanes), 1)
    # A call inside a call of its own name takes no time of its own.
    running = union(code * n_lanes + events.lane[host.event], host.start_ns, host.end_ns)
    launch = dag.launch[work.event].astype(np.int64)
    # Work that began before the window may have been launched by a call that lies before it.
    launch = np.where((launch >= 0) & (of_event[launch] >= 0), launch, -1)
    found = [(rows, of_event[level]) for rows, level in enclosing(dag.parent, launch)]
    # What encloses a call of the window may itself have ended before it, where events overlap
    # without nesting.
    row, launched = _once(
        [rows[names >= 0] for rows, names in found], [names[names >= 0] for _, names in found], n
    )
    direct = launch >= 0
    owner = innermost(dag, np.where(direct, launch, -1), (EventKind.OP, EventKind.ANNOTATION))
    owner = np.where((owner >= 0) & (of_event[owner] >= 0), owner, launch)
    frame = OPERATOR_BREAKDOWN.frame(
        {
            "name": events.symbols.array[codes // n_kinds],
            "kind": categorical(codes % n_kinds, EventKind.labels()),
            "n_calls": np.bincount(code, minlength=n),
            "host_ns": sum_by_code(running.group // n_lanes, running.end - running.start, n),
            "self_ns": sum_by_code(code, _self_ns(dag, window, host)[host.event], n),
            "n_kernels": np.bincount(launched, minlength=n),
            "device_ns": sum_by_code(launched, work.dur_ns[row], n),
            "self_device_ns": sum_by_code(of_event[owner[direct]], work.dur_ns[direct], n),
        }
    )
    if int(frame["self_device_ns"].sum()) != int(work.dur_ns[direct].sum()):
        raise GraphError("device time by operator does not add up.")
    return frame.sort_values(
        ["self_ns", "host_ns", "name"], ascending=[False, False, True], ignore_index=True
    )


def operator_tree(dag: Dag, window: Window, *, max_depth: int = 100) -> pd.DataFrame:
    """Return the tree of callers: one row per chain of names, with how often and how long.

    Parameters
    ----------
    dag : Dag
    window : Window
    max_depth : int, default=100
        Deeper calls are counted with their callers.

    Returns
    -------
    DataFrame, schema `answers.OPERATOR_TREE`
        Level by level, parents before children; within a level by parent, longest first.
    """
    host, work, events = _host_work(dag, window), device_work(dag, window), dag.events
    depth = np.zeros(len(events), dtype=np.int64)
    for rows, _ in enclosing(dag.parent, host.event):
        depth[host.event[rows]] += 1
    time = np.zeros(len(events), dtype=np.int64)
    time[host.event] = host.dur_ns
    node_of = np.full(len(events), -1, dtype=np.int64)
    parents, names, depths, n = [], [], [], 0
    for level in range(1, min(int(depth.max(initial=0)), max_depth + 1) + 1):
        rows = host.event[depth[host.event] == level]
        parent = np.where(dag.parent[rows] >= 0, node_of[dag.parent[rows]], -1)
        key = (parent + 1) * max(len(events.symbols), 1) + events.name[rows]
        found, number = np.unique(key, return_inverse=True)
        number, found = _longest_first(dag, found, number, time[rows])
        node_of[rows] = n + number
        above, name = np.divmod(found, max(len(events.symbols), 1))
        parents.append(above - 1)
        names.append(name)
        depths.append(np.full(len(found), level - 1))
        n += len(found)
    return _tree_frame(dag, window, (host, work), _Nodes(node_of, parents, names, depths, n))


def _longest_first(dag: Dag, key: I64, number: I64, time: I64) -> tuple[I64, I64]:
    """Return numbers and keys of the nodes of a level, reordered by parent, then time, then name."""
    parent, name = np.divmod(key, len(dag.events.symbols))
    order = np.lexsort((spelling(dag)[name], -sum_by_code(number, time, len(key)), parent))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[number], key[order]


class _Nodes:
    """Nodes of a tree of callers, level by level, and the node of each event."""

    def __init__(
        self, of_event: I64, parents: list[I64], names: list[I64], depths: list[I64], n: int
    ) -> None:
        none = [np.empty(0, dtype=np.int64)]
        self.of_event, self.n = of_event, n
        self.parent = np.concatenate(none + parents)
        self.name = np.concatenate(none + names)
        self.depth = np.concatenate(none + depths)


def _tree_frame(
    dag: Dag, window: Window, found: tuple[Clipped, Clipped], nodes: _Nodes
) -> pd.DataFrame:
    """Return the nodes with their times, given the host events and the device work."""
    host, work = found
    node, own = nodes.of_event[host.event], _self_ns(dag, window, host)[host.event]
    kept = node >= 0
    launch = dag.launch[work.event].astype(np.int64)
    at = np.where(launch >= 0, nodes.of_event[launch], -1) if len(dag.events) else launch
    for rows, level in enclosing(dag.parent, np.where(at < 0, launch, -1)):
        at[rows] = np.where(at[rows] < 0, nodes.of_event[level], at[rows])
    n_kernels, device_ns = (
        np.bincount(at[at >= 0], minlength=nodes.n),
        sum_by_code(at[at >= 0], work.dur_ns[at >= 0], nodes.n),
    )
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
