"""The ordered list of passes, and the compilation of a trace into its graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ParamSpec, TypeVar

import numpy as np

from htagraph.arrays.binding import bind, topological_order
from htagraph.arrays.by_head import EdgeColumns, by_head
from htagraph.compiler.classes import ClassRule, classify
from htagraph.compiler.device_clock import on_host_clock
from htagraph.compiler.flows import flow_edges, handoff_edges, recorded_flow_edges
from htagraph.compiler.host_collectives import host_collective_edges, until_resumed
from htagraph.compiler.host_polls import allocator_wait_edges, host_poll_edges
from htagraph.compiler.launches import launch_edges, queue_edges, span_edges, stream_edges
from htagraph.compiler.right_before import ended_right_before, first_device_work, recurring_waits
from htagraph.compiler.structure import Learnt, Structure, examine
from htagraph.compiler.sync_records import stream_wait_edges
from htagraph.compiler.syncs import sync_edges
from htagraph.compiler.threads import thread_edges
from htagraph.compiler.waiting_for_sms import waiting_for_sms
from htagraph.compiler.worker_calls import worker_call_edges
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag, RejectedEdges
from htagraph.model.edges import EdgeTable, Inferred, Support
from htagraph.model.events import EventTable
from htagraph.model.kinds import among
from htagraph.model.progress import report_progress
from htagraph.model.rules import Evidence, Rule
from htagraph.model.window import Window

PASSES = (
    span_edges,
    launch_edges,
    stream_edges,
    stream_wait_edges,
    flow_edges,
    recorded_flow_edges,
    handoff_edges,
    host_collective_edges,
    sync_edges,
    allocator_wait_edges,
    queue_edges,
)
"""Passes from structure to edges; `thread_edges` is last, as it needs to know who waits."""

Args = ParamSpec("Args")
Result = TypeVar("Result")

Inference = Callable[[Structure, EdgeTable], Inferred]

OF_DEVICES: tuple[Inference, ...] = (
    ended_right_before,
    recurring_waits,
    waiting_for_sms,
    first_device_work,
)
"""Passes that look for the cause of late device work by all edges into its start so far."""

OF_HOSTS: tuple[Inference, ...] = (
    worker_call_edges,
    host_poll_edges,
)
"""Passes that look for what threads wait for, by all edges so far."""


def _reject(edges: EdgeTable, skew_ns: I64, rows: Bools) -> RejectedEdges:
    return RejectedEdges(edges.take(rows), skew_ns[rows])


def _split_backward(structure: Structure, edges: EdgeTable) -> tuple[EdgeTable, RejectedEdges]:
    """Edges that run forward in time, and those that do not with their skew."""
    times = structure.events.node_ts_ns
    skew = times[edges.tail] - times[edges.head]
    if not len(skew) or skew.max() <= 0:
        return edges, RejectedEdges(EdgeTable(), skew[:0])
    return edges.take(skew <= 0), _reject(edges, skew, skew > 0)


def _span(events: EventTable, is_work: Bools) -> Window:
    """Window from the first start to the last end of work; empty at 0 without any."""
    rows = np.flatnonzero(is_work)
    if not len(rows):
        return Window(0, 0, "trace")
    return Window(int(events.ts_ns[rows].min()), int(events.end_ns[rows].max()), "trace")


def _reported(step: Callable[Args, Result]) -> Callable[Args, Result]:
    """A step of the compilation; its name is reported as progress."""
    report_progress(step.__name__.replace("_", " "))
    return step


def _waits(structure: Structure, *, infer: bool) -> tuple[EdgeTable, tuple[Support, ...]]:
    """All edges except THREAD, and what the inferred ones rest on."""
    edges = EdgeTable.concat(_reported(make)(structure) for make in PASSES)
    if not infer:
        return edges.take(~among(edges.rule, Rule.on(Evidence.INFERRED))), ()
    into_starts = (edges.head & 1 == 0) & structure.events.is_device[edges.head >> 1]
    known = edges.take(into_starts)
    starts, support = _inferred(structure, known, OF_DEVICES)
    if starts is not known:
        edges = EdgeTable.concat([edges.take(~into_starts), starts])
    del known, starts
    edges, more = _inferred(structure, edges, OF_HOSTS)
    return edges, support + more


def _inferred(
    structure: Structure, known: EdgeTable, looks: tuple[Inference, ...]
) -> tuple[EdgeTable, tuple[Support, ...]]:
    """Known edges with those that some passes infer, each from those before it."""
    support: tuple[Support, ...] = ()
    for look in looks:
        found = _reported(look)(structure, known)
        if len(found.edges):
            known, support = EdgeTable.concat([known, found.edges]), support + found.support
    return known, support


def learnt_from(events: EventTable, *, infer: bool = True) -> Learnt:
    """What work of devices and API calls show, for graphs of parts of their trace.

    Operators and annotations change nothing of it.
    """
    structure = on_host_clock(examine(events))
    _, support = _waits(structure, infer=infer)
    return Learnt(structure.calibration, frozenset(one.key for one in support if one.key))


def compile_events(
    events: EventTable,
    *,
    class_rules: Sequence[ClassRule] = (),
    infer: bool = True,
    learnt: Learnt | None = None,
) -> Dag:
    """Graph of a trace.

    ``O(n log n)`` in events and edges; the sorts dominate. `class_rules`: rules that say what a
    kernel is, tried before the built-in ones. `infer`: whether to add the edges that rest on order
    and times of events, not on a record. `learnt`: by `learnt_from`, if these events are a part of
    a trace.
    """
    events = replace(events)  # what is derived from them ends with the structure, if clocks differ
    structure = _reported(on_host_clock)(_reported(examine)(events), learnt)
    if infer:
        structure = _reported(until_resumed)(structure)
    n_cut_ranges = int((structure.events.dur_ns != events.dur_ns).sum())
    found, support = _waits(structure, infer=infer)
    events = structure.events
    waits, backward = _split_backward(structure, found)
    threads = _reported(thread_edges)(structure, waits, infer=infer)
    classification = _reported(classify)(structure, class_rules)
    parent, launch, is_work = structure.parent, structure.launch, structure.is_work
    calibration, n_ambiguous = structure.calibration, structure.n_ambiguous_correlations
    del structure  # larger than the graph, and no longer needed
    edges = EdgeTable(*by_head([EdgeColumns.of(waits.columns)], threads))
    del found, waits, threads
    times = events.node_ts_ns
    is_node = np.repeat(events.is_host | events.is_device, 2)
    order, cyclic = _reported(topological_order)(edges.tail, edges.head, times, is_node)
    if cyclic.any():
        knots = _reject(edges, np.zeros(len(edges), dtype=np.int64), cyclic)
        backward = RejectedEdges(
            EdgeTable.concat([backward.edges, knots.edges]),
            np.concatenate([backward.skew_ns, knots.skew_ns]),
        )
        edges = edges.take(~cyclic)
        order, _ = topological_order(edges.tail, edges.head, times, is_node)
    binding = bind(edges.tail, edges.head, edges.kind, edges.lag_ns, times, events.tiebreak)
    return Dag(
        events=events,
        edges=edges,
        parent=parent,
        launch=launch,
        classification=classification,
        order=order,
        binding=binding,
        calibration=calibration,
        rejected=backward,
        is_work=is_work,
        span=_span(events, is_work),
        notes={
            "n_ambiguous_correlations": n_ambiguous,
            "is_inferred": int(infer),
            "n_cut_ranges": n_cut_ranges,
        },
        support=support,
    )
