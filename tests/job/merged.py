"""All ranks of a job as one graph, and its critical path: the oracle of the path by rank segments.

::

    start of member i  --0-->  R  --transfer-->  end of member i      replaces the SPAN of member i

R is the instant at which the last member came. Where sending is a kernel of its own, it is the
start of that one which leads to R. Memory grows with the events of all ranks together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.binding import bind, walk_back
from htagraph.arrays.clocks import Clock
from htagraph.job.rank_segments import RankEnds
from htagraph.model.collective_names import RENDEZVOUS
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind
from htagraph.queries.communication import collectives as collectives_of

I64 = npt.NDArray[np.int64]


class _Graph(NamedTuple):
    """Nodes and edges of some ranks; each edge with its rank and row, -1 for none."""

    node_ts_ns: I64
    tail: I64
    head: I64
    kind: I64
    lag_ns: I64
    rank: I64
    row: I64


def _ranks(
    dags: Mapping[int, Dag], clocks: Mapping[int, Clock], first: Mapping[int, int]
) -> _Graph:
    """The graphs of all ranks beside each other, in common time."""
    times, parts = [], []
    for rank, dag in dags.items():
        local, edges = dag.events.node_ts_ns, dag.edges
        common = clocks[rank].to_common(local)
        arrival = clocks[rank].to_common(local[edges.tail] + edges.lag_ns)
        is_binding = np.zeros(len(edges), dtype=bool)
        is_binding[dag.binding[dag.binding >= 0]] = True
        order = np.argsort(
            ~is_binding, kind="stable"
        )  # of equal arrivals the first edge binds: that of the rank
        columns = (
            edges.tail + first[rank],
            edges.head + first[rank],
            edges.kind,
            arrival - common[edges.tail],
        )
        parts.append(
            (
                *(column[order].astype(np.int64) for column in columns),
                np.full(len(edges), rank, dtype=np.int64),
                order,
            )
        )
        times.append(common)
    return _Graph(
        np.concatenate(times), *(np.concatenate(column) for column in zip(*parts, strict=True))
    )


def _arrivals(dags: Mapping[int, Dag], collectives: pd.DataFrame) -> I64:
    """The event with whose start each member of a matched collective came."""
    out = np.empty(len(collectives), dtype=np.int64)
    for rank, dag in dags.items():
        own = np.flatnonzero(collectives["rank"] == rank)
        table, number = collectives_of(dag), collectives["collective"].to_numpy(np.int64)[own]
        out[own] = table["event"].to_numpy(np.int64)[table["arrival"].to_numpy(np.int64)[number]]
    return out


def _matched(graph: _Graph, collectives: pd.DataFrame, first: Mapping[int, int]) -> _Graph:
    """The graph with a node for each matched collective, which replaces the spans of waits."""
    sound = collectives[(collectives["overrun_ns"] == 0) & ~collectives["is_partial"]]
    names = ("match", "rank", "event", "came", "arrived_ns", "wait_ns", "transfer_ns")
    match, rank, event, came, arrived, wait, transfer = (
        sound[name].to_numpy(np.int64) for name in names
    )
    base = np.array([first[number] for number in rank.tolist()], dtype=np.int64)
    begin, end = base + 2 * came, base + 2 * event + 1
    arrives = sound["operation"].isin(RENDEZVOUS).to_numpy(dtype=bool) | np.isin(
        match * len(first) + rank,
        (match * len(first) + sound["last_rank"].to_numpy(np.int64))[wait > 0],
    )
    numbers, number = np.unique(match, return_inverse=True)
    node = len(graph.node_ts_ns) + number
    node_ts = np.full(len(numbers), -1, dtype=np.int64)
    np.maximum.at(node_ts, number[arrives], arrived[arrives])
    waited = wait > 0
    is_span = graph.kind == EdgeKind.SPAN
    replaced = is_span & np.isin(graph.head, end[waited])
    span_at = np.flatnonzero(is_span)[np.argsort(graph.head[is_span], kind="stable")]
    row = graph.row[span_at[np.searchsorted(graph.head[span_at], end[waited])]]
    kept = [column[~replaced] for column in graph[1:]]
    nothing, collective = (
        np.full(int(arrives.sum()), -1),
        np.full(int(waited.sum()), int(EdgeKind.COLLECTIVE)),
    )
    into = (
        begin[arrives],
        node[arrives],
        np.full(len(nothing), int(EdgeKind.COLLECTIVE)),
        0 * nothing,
        nothing,
        nothing,
    )
    out_of = (node[waited], end[waited], collective, transfer[waited], rank[waited], row)
    columns = [
        np.concatenate(parts).astype(np.int64) for parts in zip(kept, into, out_of, strict=True)
    ]
    return _Graph(np.concatenate([graph.node_ts_ns, node_ts]), *columns)


def merged_path(
    dags: Mapping[int, Dag],
    collectives: pd.DataFrame,
    clocks: Mapping[int, Clock],
    ends: Mapping[int, RankEnds],
) -> pd.DataFrame:
    """The critical path of a job, found on one graph of all events of all ranks."""
    sizes = [2 * len(dag.events) for dag in dags.values()]
    first = dict(zip(dags, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
    members = collectives.assign(came=_arrivals(dags, collectives))
    graph = _matched(_ranks(dags, clocks, first), members, first)
    tail, head = graph.tail.astype(np.int32), graph.head.astype(np.int32)
    times = graph.node_ts_ns
    binding = bind(
        tail, head, graph.kind.astype(np.int8), graph.lag_ns, times, np.zeros_like(times)
    )
    last = max(ends, key=lambda rank: (int(clocks[rank].to_common(ends[rank].end_ns)), -rank))
    since_ns = max(int(clocks[rank].to_common(end.start_ns)) for rank, end in ends.items())
    walked = walk_back(first[last] + ends[last].end_node, binding, tail, times, until_ns=since_ns)
    path = pd.DataFrame(
        {
            "rank": graph.rank[walked],
            "edge": graph.row[walked],
            "start_ns": times[tail[walked]],
            "end_ns": times[head[walked]],
        }
    )
    return path[path["end_ns"] > path["start_ns"]].reset_index(drop=True)
