"""How long kernels, copies and fills take: in groups, one by one, and as nodes of graphs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from htagraph.arrays.codes import QUANTILES, distribution, take
from htagraph.errors import GraphError
from htagraph.lookup.attribution import (
    innermost,
    modules_at,
    names_or_empty,
    op_names,
    track_labels,
)
from htagraph.lookup.graph_nodes import graph_nodes as nodes_of
from htagraph.lookup.windowed import device_work
from htagraph.lookup.work_groups import BY_LAUNCH, Groups, named
from htagraph.model.answers import GRAPH_NODES, KERNEL_BREAKDOWN, KERNEL_DURATIONS
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind, KernelClass
from htagraph.model.schema import categorical
from htagraph.model.window import Window

def _by_stream(dag: Dag, events: I64) -> Groups:
    lanes = np.stack([dag.events.device[events].astype(np.int64), dag.events.stream[events]])
    _, first, code = np.unique(lanes, axis=1, return_index=True, return_inverse=True)
    return Groups(code.reshape(-1).astype(np.int64), track_labels(dag, events[first]))


_GROUPS: Mapping[str, Callable[[Dag, I64], Groups]] = {
    "class": lambda dag, events: Groups(
        dag.classification.kernel_class[events].astype(np.int64),
        np.array(KernelClass.labels(), dtype=object),
    ),
    "name": named,
    "op": lambda dag, events: named(
        dag, innermost(dag.unrolled, events, (EventKind.OP, EventKind.ANNOTATION))
    ),
    "stream": _by_stream,
    "rule": lambda dag, events: Groups(
        dag.classification.rule[events].astype(np.int64),
        np.array(dag.classification.rules, dtype=object),
    ),
}
"""Per way to group: the code of each event, and what the codes are called."""


def kernel_breakdown(dag: Dag, window: Window, *, by: str = "class") -> pd.DataFrame:
    """Number and time of device work by group; the sums add up to all device time in the window.

    Work that crosses a bound of the window counts with the time inside. `by`: ``op`` is the
    innermost operator or annotation around the launch, ``rule`` the rule that chose the class. A
    ``shape`` is that of the innermost operator's inputs. A ``phase`` is of training: forward,
    recomputed forward (activation checkpointing), backward, optimizer. Largest first. A group whose
    work is of several classes has a row for each.
    """
    work = device_work(dag, window)
    code, names = {**_GROUPS, **BY_LAUNCH}[by](dag, work.event)
    n_classes = len(KernelClass)
    found = distribution(
        code * n_classes + dag.classification.kernel_class[work.event], work.dur_ns, QUANTILES
    )
    if int(found.total.sum()) != int(work.dur_ns.sum()):
        raise GraphError("the parts of the kernel breakdown do not add up to the device time.")
    group, kernel_class = np.divmod(found.group, n_classes)
    frame = KERNEL_BREAKDOWN.frame(
        {
            "group": names[group],
            "class": categorical(kernel_class, KernelClass.labels()),
            "n_kernels": found.n,
            "sum_ns": found.total,
            **found.spread,
            "share": found.total / max(int(found.total.sum()), 1),
        }
    )
    return frame.sort_values(["sum_ns", "group"], ascending=[False, True], ignore_index=True)


def kernel_durations(
    dag: Dag, window: Window, *, name: str | re.Pattern[str] = "*"
) -> pd.DataFrame:
    """Kernels, copies and fills that overlap the window, with what launched each, by start.

    Durations are not clipped to the window.
    """
    events = dag.events
    rows = device_work(dag, window).event
    rows = rows[events.named(events.symbols.named(name))[rows]]
    keys = (events.stream, events.device, events.end_ns, events.ts_ns)
    rows = rows[np.lexsort([key[rows] for key in keys])]
    calls = dag.unrolled
    module = modules_at(calls, calls.launch[rows].astype(np.int64))
    return KERNEL_DURATIONS.frame(
        {
            "event": rows,
            "name": events.names(rows),
            "class": categorical(dag.classification.kernel_class[rows], KernelClass.labels()),
            "op": op_names(dag, rows),
            "annotation": names_or_empty(dag, innermost(dag, rows, (EventKind.ANNOTATION,))),
            "module": names_or_empty(calls, module),
            "device": events.device[rows],
            "stream": events.stream[rows],
            "ts_ns": events.ts_ns[rows],
            "dur_ns": events.dur_ns[rows],
        }
    )


_FOUND_BY = ("position", "node id")


def graph_nodes(dag: Dag, window: Window) -> pd.DataFrame:
    """Nodes of CUDA and HIP graphs, with their time over the replays that overlap the window.

    By graph and node. Times are not clipped to the window.
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
    nodes, offset, gap = take(nodes, inside), offset[inside], gap[inside]
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
