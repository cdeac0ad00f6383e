"""What the time of an edge went to, and up to when its own mechanism explains it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.lookup.attribution import DATA_LOADING, under_pattern
from htagraph.lookup.host_collectives import given_ranges, host_collectives, host_ranges
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import Bound, EdgeKind, EventKind, KernelClass, among
from htagraph.model.rules import Rule

__all__ = ["edge_bounds", "explained_until"]

I8 = npt.NDArray[np.int8]
I64 = npt.NDArray[np.int64]

_CLASS_BOUND = np.zeros(len(KernelClass), dtype=np.int8)
_CLASS_BOUND[KernelClass.COMPUTE] = Bound.COMPUTE
_CLASS_BOUND[KernelClass.COMMUNICATION] = Bound.COMMUNICATION
_CLASS_BOUND[KernelClass.MEMORY] = Bound.MEMORY

_KIND_BOUND = np.full(len(EdgeKind), Bound.UNEXPLAINED, dtype=np.int8)
_KIND_BOUND[EdgeKind.THREAD] = Bound.HOST
_KIND_BOUND[EdgeKind.LAUNCH] = Bound.LAUNCH
_KIND_BOUND[EdgeKind.STREAM] = Bound.KERNEL_GAP
_KIND_BOUND[EdgeKind.FLOW] = Bound.PYTHON_GAP
_KIND_BOUND[EdgeKind.SYNC] = Bound.SYNC
_KIND_BOUND[EdgeKind.QUEUE] = Bound.LAUNCH
_KIND_BOUND[EdgeKind.HIDDEN_SYNC] = Bound.SYNC
_KIND_BOUND[EdgeKind.SOURCE] = Bound.LAUNCHED_BEFORE_CAPTURE
_KIND_BOUND[EdgeKind.CONTENTION] = Bound.DEVICE_FULL

_WAITS = (CallMeaning.DEVICE_SYNC, CallMeaning.STREAM_SYNC, CallMeaning.EVENT_SYNC)


def _host_bounds(dag: Dag) -> I8:
    """Bound of the host time that belongs to each event."""
    events = dag.events
    bound = np.full(len(events), Bound.HOST, dtype=np.int8)
    bound[among(call_meanings(events), _WAITS)] = Bound.SYNC
    bound[events.kind == EventKind.ANNOTATION] = Bound.PYTHON_GAP
    return bound


def _meets(dag: Dag, edges: EdgeTable, ranges: I64) -> npt.NDArray[np.bool_]:
    """Whether the host time of each edge is that of a collective which the host runs."""
    on_worker, _ = given_ranges(dag, ranges)
    event = edges.event
    # Between a receive and its wait, the caller's own thread may do other work.
    meets: npt.NDArray[np.bool_] = np.isin(event, on_worker) | (edges.head == 2 * event + 1)
    meets &= np.isin(event, ranges) & (edges.kind == EdgeKind.THREAD)
    return meets


def edge_bounds(dag: Dag, edges: EdgeTable) -> I8:
    """Bound of the time of each edge, before anything is called unexplained."""
    kind, event = edges.kind, edges.event
    bound: I8 = _KIND_BOUND[kind]
    ran = np.flatnonzero((kind == EdgeKind.SPAN) | edges.ran_until)
    bound[ran] = _CLASS_BOUND[dag.classification.kernel_class[event[ran]]]
    host = np.flatnonzero(kind == EdgeKind.THREAD)
    bound[host] = gather(_host_bounds(dag), event[host], Bound.PYTHON_GAP)
    bound[edges.rule == Rule.WAITS_FOR_WORK] = Bound.WAITING_FOR_WORK
    bound[host[under_pattern(dag, event[host], DATA_LOADING)]] = Bound.DATA_LOADING
    ranges = np.union1d(host_ranges(dag), host_collectives(dag))
    if len(ranges):
        bound[_meets(dag, edges, ranges)] = Bound.COMMUNICATION
    return bound


def explained_until(dag: Dag, edges: EdgeTable) -> I64:
    """Time until which each edge's own mechanism explains the wait; later is unexplained.

    A launch is explained while its call still runs; beyond that, and for gaps between work that was
    already enqueued, up to the usual size of such a delay in this trace.
    """
    times, calibration = dag.events.node_ts_ns, dag.calibration
    until: I64 = times[edges.head]
    launches, syncs = (
        np.flatnonzero(edges.kind == kind) for kind in (EdgeKind.LAUNCH, EdgeKind.SYNC)
    )
    by_device = syncs[dag.events.is_device[edges.head[syncs] >> 1]]
    queued = np.flatnonzero(edges.rule == Rule.STREAM_ORDER)
    for rows, usual_ns in (
        (launches, calibration.launch_usual_ns),
        (by_device, calibration.launch_usual_ns),
        (queued, calibration.stream_usual_ns),
    ):
        known = times[edges.tail[rows]] + edges.lag_ns[rows]
        if rows is launches:
            known = np.maximum(known, dag.events.end_ns[edges.tail[rows] >> 1])
        late = until[rows] - known > usual_ns
        until[rows[late]] = known[late]
    return until
