"""The graph of a replayed run: the same events at other times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from htagraph.algorithms.binding import bind, topological_order
from htagraph.algorithms.by_head import EdgeColumns, by_head
from htagraph.algorithms.retime import DROPPED
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag, RejectedEdges
from htagraph.model.edges import EdgeTable
from htagraph.model.events import EventTable
from htagraph.model.samples import SampleTable
from htagraph.model.window import Window
from htagraph.replay.replay import Replay


def retimed(dag: Dag, replay: Replay, lag_ns: I64, times_ns: I64) -> Dag:
    """Graph of a replayed run, which answers every question. Events keep their rows.

    Events that are not nodes (Python frames, profiler records) move with those around them on their
    thread.

    Parameters
    ----------
    lag_ns : ndarray of shape (m,), dtype=int64, unit=ns
        Lag of each edge in the replayed run, `DROPPED` for removed edges.
    times_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Time of each position there.
    """
    events = _moved(dag, replay, times_ns)
    there = lag_ns != DROPPED
    edges = EdgeTable(
        tail=replay.node[replay.tail[there]].astype(np.int32),
        head=replay.node[replay.head[there]].astype(np.int32),
        kind=replay.kind[there],
        lag_ns=lag_ns[there],
        event=replay.event[there],
        rule=replay.rule[there],
    )
    edges = EdgeTable(*by_head([EdgeColumns.of(edges.columns)]))
    times = events.node_ts_ns
    is_node = np.zeros(len(times), dtype=bool)
    is_node[dag.order] = True
    order, cyclic = topological_order(edges.tail, edges.head, times, is_node)
    edges = edges.take(~cyclic)
    binding = bind(edges.tail, edges.head, edges.kind, edges.lag_ns, times, events.tiebreak)
    work = np.flatnonzero(dag.is_work)
    span = (
        Window(int(events.ts_ns[work].min()), int(events.end_ns[work].max()), dag.span.name)
        if len(work)
        else dag.span
    )
    return replace(
        dag,
        events=events,
        edges=edges,
        order=order,
        binding=binding,
        rejected=RejectedEdges(EdgeTable(), np.empty(0, dtype=np.int64)),
        span=span,
    )


def _moved(dag: Dag, replay: Replay, times_ns: I64) -> EventTable:
    """Events at their other times."""
    events = dag.events
    node_ts = events.node_ts_ns.copy()
    node_ts[replay.node] = times_ns
    known = np.zeros(len(events), dtype=bool)
    known[replay.node >> 1] = True
    rest = np.flatnonzero(~known)
    if len(rest) and len(replay.node):
        whole = _steps(replay.ts_ns, times_ns)
        lane = events.lane[replay.node >> 1]
        for number in np.unique(events.lane[rest]).tolist():
            mine, on_lane = rest[events.lane[rest] == number], lane == number
            track = _steps(replay.ts_ns[on_lane], times_ns[on_lane]) if on_lane.any() else whole
            for end in (0, 1):
                node_ts[2 * mine + end] = _at(events.node_ts_ns[2 * mine + end], *track)
    start_ns, end_ns = node_ts[0::2], node_ts[1::2]
    return replace(
        events,
        ts_ns=start_ns.copy(),
        dur_ns=np.maximum(end_ns - start_ns, 0),
        samples=SampleTable(),  # counters were sampled in the recorded run only
    )


def _steps(before_ns: I64, after_ns: I64) -> tuple[I64, I64]:
    """Times before and after, both ascending, each instant once."""
    order = np.argsort(before_ns, kind="stable")
    before, after = before_ns[order], np.maximum.accumulate(after_ns[order])
    last = np.append(before[1:] != before[:-1], True)
    return before[last], after[last]


def _at(ts_ns: I64, before_ns: I64, after_ns: I64) -> I64:
    """Times interpolated between those before and after; beyond the ends shifted with the end."""
    place = np.clip(np.searchsorted(before_ns, ts_ns, side="right") - 1, 0, len(before_ns) - 1)
    following = np.minimum(place + 1, len(before_ns) - 1)
    length = before_ns[following] - before_ns[place]
    into = ts_ns - before_ns[place]
    inside = (into >= 0) & (length > 0)
    share = np.where(inside, into / np.maximum(length, 1), 0.0)
    moved = np.rint(share * (after_ns[following] - after_ns[place])).astype(np.int64)
    return after_ns[place] + np.where(inside, moved, into)
