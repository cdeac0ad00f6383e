"""Excerpt: a few steps of a large graph, cut out to stand for all steps that do the same.

Finding what would help takes hundreds of replays, each as long as the graph is large.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pandas as pd

from htagraph.arrays.binding import bind, topological_order
from htagraph.arrays.by_head import EdgeColumns, by_head
from htagraph.arrays.codes import marked
from htagraph.arrays.retime import DROPPED
from htagraph.lookup.done_steps import done_steps
from htagraph.lookup.steady_steps import SteadySteps, steady_steps
from htagraph.model.arrays import I32, I64, Bools, brief
from htagraph.model.dag import Classification, Dag, RejectedEdges
from htagraph.model.edges import EdgeTable
from htagraph.model.events import EventTable, FlowTable
from htagraph.model.kinds import KernelClass
from htagraph.model.samples import SampleTable
from htagraph.model.units import human_count
from htagraph.model.window import Window
from htagraph.readers.event_filter import taken
from htagraph.replay.replay import Replay

LARGE = 1_000_000
"""Edges from which on an excerpt is replayed; without one, fewer changes are tried. A
limit of time, chosen: test_excerpt draws graphs on either side."""

_N_EVENTS = 40_000
"""Events of an excerpt. A limit of time, chosen: drawn graphs have fewer, so that test_excerpt asks
for a third of its events instead."""
_HALF = 0.5
"""Steps that do the same stand for a window if they take this share of it, and are replayed alone
if they are no more than this share of the graph: else the whole graph is. Chosen: test_excerpt."""
_LEAD = 4
"""One step of so many warms up queues before the replayed window. Chosen: test_excerpt."""


@brief
@dataclass(frozen=True)
class Excerpt:
    """A graph to replay, and the window in it that is measured."""

    dag: Dag
    window: Window
    of: Window  # That the answer is for
    n_steps: int = 0  # Replayed; 0 for the whole graph
    n_alike: int = 0  # That these stand for

    @classmethod
    def whole(cls, dag: Dag, window: Window) -> Self:
        """The whole graph."""
        return cls(dag, window, window)

    @property
    def factor(self) -> float:
        """How many times as much time the window has: steps that each replayed one stands for."""
        return self.n_alike / self.n_steps if self.n_steps else 1.0

    @property
    def sentence(self) -> str:
        """Which steps predictions are based on; empty for the whole graph."""
        if not self.n_steps:
            return ""
        return (
            f"Predicted from {human_count(self.n_steps, 'step')}, {self.window.name}: each of the "
            f"{self.n_alike:,} that do the same is assumed to save as much."
        )

    def scaled(self, found: pd.DataFrame) -> pd.DataFrame:
        """Savings in the excerpt, scaled to the window.

        If other ranks do not change, collectives end no earlier, so that only the time after the
        last one is saved: once, not in every step.
        """
        if not self.n_steps:
            return found
        by = self.factor
        times = {
            name: np.rint(found[name] * by).astype(np.int64)
            for name in found.columns
            if name.endswith("_ns")
        }
        if "alone_ns" in found.columns:
            is_once = found["alone_ns"] < found["saves_ns"]
            times["alone_ns"] = times["alone_ns"].mask(is_once, found["alone_ns"])
            times["low_ns"] = times["low_ns"].clip(upper=times["alone_ns"])
        elif (self.dag.classification.kernel_class == KernelClass.COMMUNICATION).any():
            # Collectives may wait for other ranks.
            times["low_ns"] = times["low_ns"].clip(upper=found["low_ns"])
        window_ns = max(self.of.dur_ns, 1)
        shares = {
            f"{name}_share": times[f"{name}_ns"] / window_ns
            for name in ("saves", "low", "high")
            if f"{name}_share" in found.columns
        }
        return found.assign(**times, **shares)


def excerpt_of(
    dag: Dag, window: Window, *, large: int = LARGE, n_events: int = _N_EVENTS
) -> Excerpt:
    """The part of a graph to replay for a window: all, or some steps of many that do the same.

    `large`: edges from which on an excerpt is cut out. `n_events`: events of an excerpt, unless two
    steps have more.
    """
    if len(dag.edges) < large:
        return Excerpt.whole(dag, window)
    steps = steady_steps(dag)
    parts, done = steps.parts, done_steps(dag, steps)
    inside = (parts.start_ns >= window.start_ns) & (parts.next_ns <= window.end_ns)
    alike = steps.is_same_work & (inside | done.inside(window.start_ns, window.end_ns))
    asked = alike & steps.is_steady
    alike_ns = int((parts.next_ns - parts.start_ns)[alike].sum())
    if alike_ns < _HALF * window.dur_ns or not asked[steps.usual]:
        return Excerpt.whole(dag, window)
    before, first, last = _chosen(steps, asked, n_events * len(asked) // len(dag.events))
    cut = cut_out(dag, int(parts.start_ns[before]), int(parts.next_ns[last]))
    if len(cut.edges) > _HALF * len(dag.edges):
        return Excerpt.whole(dag, window)
    names = dict.fromkeys(dag.events.names(parts.step[[first, last]]).tolist())
    there = Window(int(parts.start_ns[first]), int(parts.next_ns[last]), " to ".join(names))
    return Excerpt(cut, there, window, last + 1 - first, int(alike.sum()))


def _chosen(steps: SteadySteps, asked: Bools, n_wanted: int) -> tuple[int, int, int]:
    """Steps around the usual one: the first, the first that is measured, and the last."""
    n = max(n_wanted, 2)
    n_before = max(n // _LEAD, 1)
    first = last = steps.usual
    while last + 1 - first < n - n_before:
        if last + 1 < len(asked) and asked[last + 1]:
            last += 1
        elif first and asked[first - 1]:
            first -= 1
        else:
            break
    return max(first - n_before, 0), first, last


def cut_out(dag: Dag, start_ns: int, end_ns: int) -> Dag:
    """The graph of what runs or was launched in an interval, without flows and rejected edges.

    What waited for something before the interval happens when it did.
    """
    events, launch = dag.events, dag.launch
    kept = (events.ts_ns < end_ns) & (events.end_ns > start_ns)
    work = np.flatnonzero(launch >= 0)
    kept[work[kept[launch[work]]]] = True
    kept[launch[work[kept[work]]]] = True
    rows = np.flatnonzero(kept)
    number = np.full(len(events) + 1, -1, dtype=np.int32)
    number[rows] = np.arange(len(rows), dtype=np.int32)
    samples = _samples(events.samples, start_ns, end_ns)
    cut = replace(taken(events, rows), flows=FlowTable(), samples=samples)
    edges = _edges(dag.edges, kept, number)
    binding = bind(
        edges.tail,
        edges.head,
        edges.kind,
        edges.lag_ns,
        cut.node_ts_ns,
        np.repeat(cut.tiebreak, 2),
    )
    classes = dag.classification
    return replace(
        dag,
        events=cut,
        edges=edges,
        parent=number[dag.parent[rows]],
        launch=number[launch[rows]],
        classification=Classification(
            classes.kernel_class[rows], classes.rule[rows], classes.rules
        ),
        order=_nodes(dag.order[kept[dag.order >> 1]], number),
        binding=binding,
        rejected=RejectedEdges(EdgeTable(), np.empty(0, dtype=np.int64)),
        is_work=dag.is_work[rows],
        span=Window(start_ns, end_ns, dag.span.name),
    )


def _nodes(nodes: I32, number: I32) -> I32:
    """Nodes, renumbered like their events."""
    found: I32 = 2 * number[nodes >> 1] + (nodes & 1)
    return found


def _edges(edges: EdgeTable, kept: Bools, number: I32) -> EdgeTable:
    """Edges between events that are kept, in their order."""
    within = edges.take(np.flatnonzero(kept[edges.head >> 1] & kept[edges.tail >> 1]))
    return replace(
        within,
        tail=_nodes(within.tail, number),
        head=_nodes(within.head, number),
        event=number[within.event],
    )


def _samples(samples: SampleTable, start_ns: int, end_ns: int) -> SampleTable:
    rows = np.flatnonzero((samples.ts_ns >= start_ns) & (samples.ts_ns < end_ns))
    return replace(
        samples,
        ts_ns=samples.ts_ns[rows],
        value=samples.value[rows],
        series=samples.series[rows],
    )


def retimed(dag: Dag, replay: Replay, lag_ns: I64, times_ns: I64) -> Dag:
    """Graph of a replayed run, which answers every question. Events keep their rows.

    Events that are not nodes (Python frames, profiler records) move with those around them on their
    thread. `lag_ns` of shape (m,): lag of each edge in the replayed run, `DROPPED` for removed
    edges. `times_ns`: time of each position there.
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
    is_node = marked(dag.order, len(times))
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
    known = marked(replay.node >> 1, len(events))
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
