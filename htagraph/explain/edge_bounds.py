"""What the time of an edge went to, and up to when its own mechanism explains it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.by_head import EdgeColumns
from htagraph.lookup.attribution import DATA_LOADING, under
from htagraph.lookup.host_collectives import given_ranges, host_collectives, host_ranges
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import Bound, EdgeKind, EventKind, KernelClass, among
from htagraph.model.rules import Rule
from htagraph.native.inner import inlined
from htagraph.native.passes import compiled

__all__ = ["BoundRules", "bound_of", "edge_bounds", "explained", "explained_until"]

I8 = npt.NDArray[np.int8]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_SPAN, _THREAD, _LAUNCH = int(EdgeKind.SPAN), int(EdgeKind.THREAD), int(EdgeKind.LAUNCH)
_STREAM, _SYNC, _HIDDEN_SYNC = (
    int(kind) for kind in (EdgeKind.STREAM, EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC)
)
_WAITS_FOR_WORK, _STREAM_ORDER = int(Rule.WAITS_FOR_WORK), int(Rule.STREAM_ORDER)
_WAITING, _GAP = int(Bound.WAITING_FOR_WORK), int(Bound.PYTHON_GAP)
_COMMUNICATION = int(Bound.COMMUNICATION)

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


class BoundRules(NamedTuple):
    """What bounds of edges follow from, for compiled code.

    Parameters
    ----------
    node_ts_ns : ndarray of shape (n_nodes,), dtype=int64, unit=ns
    of_kind : ndarray of shape (n_kinds,), dtype=int8
        Bound of an edge by its `EdgeKind` alone.
    of_device, of_host : ndarray of shape (n_events,), dtype=int8
        Bound of the time that an event ran, on the device and on its thread.
    is_device : ndarray of shape (n_events,), dtype=bool
    meets : ndarray of shape (n_events,), dtype=bool
        Collectives that the host itself runs: between a receive and its wait, the thread may do
        other work, so only what leads to their end is communication.
    launch_usual_ns, stream_usual_ns : int, unit=ns
        As `Calibration` has them.
    """

    node_ts_ns: I64
    of_kind: I8
    of_device: I8
    of_host: I8
    is_device: Bools
    meets: Bools
    launch_usual_ns: int
    stream_usual_ns: int

    @classmethod
    def of(cls, dag: Dag) -> BoundRules:
        """Those of a graph."""
        events, meets = dag.events, np.zeros(len(dag.events), dtype=bool)
        of_host = np.full(len(events), Bound.HOST, dtype=np.int8)
        of_host[among(call_meanings(events), _WAITS)] = Bound.SYNC
        of_host[events.kind == EventKind.ANNOTATION] = Bound.PYTHON_GAP
        of_host[_loading(dag)] = Bound.DATA_LOADING
        ranges = np.union1d(host_ranges(dag), host_collectives(dag))
        if len(ranges):
            meets[ranges] = True
            on_worker, _ = given_ranges(dag, ranges)
            meets[on_worker], of_host[on_worker] = False, Bound.COMMUNICATION
        return cls(
            events.node_ts_ns,
            _KIND_BOUND,
            _CLASS_BOUND[dag.classification.kernel_class],
            of_host,
            events.is_device,
            meets,
            dag.calibration.launch_usual_ns,
            dag.calibration.stream_usual_ns,
        )


def _loading(dag: Dag) -> I64:
    """Host events that load data, and all in them."""
    loads = dag.events.named(dag.events.symbols.searched(DATA_LOADING)) & dag.events.is_host
    if not loads.any():
        return np.empty(0, dtype=np.int64)
    host = np.flatnonzero(dag.events.is_host)
    return host[under(dag, host, loads)]


@inlined
def bound_of(edge: int, edges: EdgeColumns, rules: BoundRules) -> int:
    """Bound of the time of an edge, before anything is called unexplained."""
    kind, event, tail = edges.kind[edge], edges.event[edge], edges.tail[edge]
    waits = kind == _SYNC or kind == _HIDDEN_SYNC or kind == _STREAM  # noqa: PLR1714 - compiled
    bound: int = rules.of_kind[kind]
    if kind == _SPAN or (waits and tail & 1 == 0 and tail >> 1 == event):
        bound = rules.of_device[event]
    elif kind == _THREAD:
        if edges.rule[edge] == _WAITS_FOR_WORK:
            bound = _WAITING
        elif event < 0:
            bound = _GAP
        elif rules.meets[event] and edges.head[edge] == 2 * event + 1:
            bound = _COMMUNICATION
        else:
            bound = rules.of_host[event]
    return bound


@inlined
def explained(edge: int, edges: EdgeColumns, rules: BoundRules) -> int:
    """Time until which the mechanism of an edge explains the wait."""
    head, tail, kind = edges.head[edge], edges.tail[edge], edges.kind[edge]
    until: int = rules.node_ts_ns[head]
    known: int = rules.node_ts_ns[tail] + edges.lag_ns[edge]
    usual = rules.launch_usual_ns
    if kind == _LAUNCH:
        known = max(known, rules.node_ts_ns[tail | 1])
    elif edges.rule[edge] == _STREAM_ORDER:
        usual = rules.stream_usual_ns
    elif not (kind == _SYNC and rules.is_device[head >> 1]):
        return until
    return known if until - known > usual else until


@compiled
def _fill_bounds(edges: EdgeColumns, rules: BoundRules, out: I8) -> None:
    """Fill the bound of each edge."""
    for edge in range(len(out)):
        out[edge] = bound_of(edge, edges, rules)


@compiled
def _fill_explained(edges: EdgeColumns, rules: BoundRules, out: I64) -> None:
    """Fill the time until which each edge is explained."""
    for edge in range(len(out)):
        out[edge] = explained(edge, edges, rules)


def edge_bounds(dag: Dag, edges: EdgeTable) -> I8:
    """Bound of the time of each edge, before anything is called unexplained."""
    bound = np.empty(len(edges), dtype=np.int8)
    _fill_bounds(EdgeColumns.of(edges.columns), BoundRules.of(dag), bound)
    return bound


def explained_until(dag: Dag, edges: EdgeTable) -> I64:
    """Time until which each edge's own mechanism explains the wait; later is unexplained.

    A launch is explained while its call still runs; beyond that, and for gaps between work that was
    already enqueued, up to the usual size of such a delay in this trace.
    """
    until = np.empty(len(edges), dtype=np.int64)
    _fill_explained(EdgeColumns.of(edges.columns), BoundRules.of(dag), until)
    return until
