"""What the time of an edge went to, and up to when its own mechanism explains it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.arrays.by_head import EdgeColumns
from htagraph.arrays.inner import called, inlined
from htagraph.arrays.passes import compiled
from htagraph.lookup.attribution import loads_data
from htagraph.lookup.collectives import given_ranges, host_collectives, host_ranges
from htagraph.model.api_calls import CallMeaning, meanings_by_name
from htagraph.model.arrays import I8, I32, I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import HOST_KINDS, Bound, EdgeKind, EventKind, KernelClass, among
from htagraph.model.rules import Rule


def carried_over(dag: Dag) -> Bools:
    """Whether each event is device work from before the profile.

    It has no recorded launch, and starts before the first work of its device that has one.

    Examples
    --------
    >>> import htagraph as hg
    >>> graph = hg.Trace.from_events(hg.synth.timeline('''
    ...     cpu 1    |[launch >a]
    ...     stream 7 | [old ]    [k <a    ][odd ]
    ... ''')).compile()
    >>> graph.dag.events.names(np.flatnonzero(carried_over(graph.dag))).tolist()
    ['old']
    """
    events = dag.events
    found = np.zeros(len(events), dtype=bool)
    linked = np.flatnonzero(events.is_device & (dag.launch >= 0))
    for device in np.unique(events.device[linked]).tolist():
        first_ns = events.ts_ns[linked[events.device[linked] == device]].min()
        found |= (events.device == device) & (events.ts_ns < first_ns)
    found &= events.is_device & (dag.launch < 0)
    return found


_SPAN, _THREAD, _LAUNCH = int(EdgeKind.SPAN), int(EdgeKind.THREAD), int(EdgeKind.LAUNCH)
_STREAM, _SYNC, _HIDDEN_SYNC = (
    int(kind) for kind in (EdgeKind.STREAM, EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC)
)
_WAITS_FOR_WORK, _STREAM_ORDER = int(Rule.WAITS_FOR_WORK), int(Rule.STREAM_ORDER)
_WAITING, _GAP = int(Bound.WAITING_FOR_WORK), int(Bound.UNTRACED_CODE)
_BEFORE = int(Bound.WORK_FROM_BEFORE_THE_PROFILE)
_COMMUNICATION, _DATA_LOADING = int(Bound.COMMUNICATION), int(Bound.DATA_LOADING)
_RUNTIME = int(EventKind.RUNTIME)
_AT_END, _ALWAYS = 1, 2

_CLASS_BOUND = np.zeros(len(KernelClass), dtype=np.int8)
_CLASS_BOUND[KernelClass.COMPUTE] = Bound.COMPUTE
_CLASS_BOUND[KernelClass.COMMUNICATION] = Bound.COMMUNICATION
_CLASS_BOUND[KernelClass.MEMORY] = Bound.MEMORY

_KIND_BOUND = np.full(len(EdgeKind), Bound.UNKNOWN_WAITS, dtype=np.int8)
_KIND_BOUND[EdgeKind.THREAD] = Bound.HOST
_KIND_BOUND[EdgeKind.LAUNCH] = Bound.LAUNCH
_KIND_BOUND[EdgeKind.STREAM] = Bound.KERNEL_GAP
_KIND_BOUND[EdgeKind.FLOW] = Bound.UNTRACED_CODE
_KIND_BOUND[EdgeKind.SYNC] = Bound.SYNC
_KIND_BOUND[EdgeKind.QUEUE] = Bound.LAUNCH
_KIND_BOUND[EdgeKind.HIDDEN_SYNC] = Bound.SYNC
_KIND_BOUND[EdgeKind.SOURCE] = Bound.WORK_FROM_BEFORE_THE_PROFILE
_KIND_BOUND[EdgeKind.CONTENTION] = Bound.WAITING_FOR_SMS

_HOST_BOUND = np.full(len(EventKind), Bound.HOST, dtype=np.int8)
_HOST_BOUND[EventKind.ANNOTATION] = Bound.UNTRACED_CODE

_IS_HOST = among(np.arange(len(EventKind)), HOST_KINDS)

_WAITS = (CallMeaning.DEVICE_SYNC, CallMeaning.STREAM_SYNC, CallMeaning.EVENT_SYNC)


class BoundRules(NamedTuple):
    """What the bounds of edges follow from, for compiled code.

    Only the events of a path are read, so that each of many short windows costs little.
    """

    node_ts_ns: I64  # Of shape (n_nodes,)
    # kind, name, parent, kernel_class, is_device: of shape (n_events,). As the tables have them.
    kind: I8
    name: I32
    parent: I32
    kernel_class: I8
    is_device: Bools
    # of_edge, of_event, of_class: bound by `EdgeKind`; of host time, by `EventKind`; of device
    # time, by `KernelClass`
    of_edge: I8
    of_event: I8
    of_class: I8
    of_call: I8  # Of shape (n_symbols,). Bound of the time in a call, by its name.
    is_host: Bools  # Of shape (n_kinds,). Whether events of an `EventKind` are host ranges.
    loads: Bools  # Of shape (n_symbols,). Names of those that load data; empty if there are none.
    # Of shape (n_events,). Whether an event is in one of these: 1 yes, -1 no, 0 not known yet.
    loading: I8
    # Of shape (n_events,). Collectives that the host itself runs: 1, and 2 on a worker thread, else
    # 0. Between a receive and its wait, the caller's own thread may do other work.
    meets: I8
    # Of shape (n_events,). Device work from before the profile; empty if there is none.
    carried: Bools
    # launch_usual_ns, stream_usual_ns: as `Calibration` has them
    launch_usual_ns: int
    stream_usual_ns: int

    @classmethod
    def of(cls, dag: Dag) -> BoundRules:
        """Those of a graph."""
        events, calibration = dag.events, dag.calibration
        of_call = np.full(len(events.symbols), Bound.HOST, dtype=np.int8)
        of_call[among(meanings_by_name(events), _WAITS)] = Bound.SYNC
        loads = loads_data(dag)
        meets = np.zeros(len(events), dtype=np.int8)
        ranges = np.union1d(host_ranges(dag), host_collectives(dag))
        if len(ranges):
            meets[ranges] = _AT_END
            meets[given_ranges(dag, ranges)[0]] = _ALWAYS
        carried = carried_over(dag)
        return cls(
            events.node_ts_ns,
            events.kind,
            events.name,
            dag.parent,
            dag.classification.kernel_class,
            events.is_device,
            _KIND_BOUND,
            _HOST_BOUND,
            _CLASS_BOUND,
            of_call,
            _IS_HOST,
            loads if loads.any() else loads[:0],
            np.zeros(len(events), dtype=np.int8),
            meets,
            carried if carried.any() else carried[:0],
            calibration.launch_usual_ns,
            calibration.stream_usual_ns,
        )


@called
def _is_loading(event: int, rules: BoundRules) -> bool:
    """Whether a host event loads data, or is in one that does; what is found is noted."""
    above, found = event, -1
    while above >= 0 and rules.loading[above] == 0:
        if rules.loads[rules.name[above]] and rules.is_host[rules.kind[above]]:
            found = 1
            break
        above = rules.parent[above]
    if found < 0 and above >= 0:
        found = rules.loading[above]
    below = event
    while below != above:
        rules.loading[below] = found
        below = rules.parent[below]
    return found == 1


@inlined
def bound_of(edge: int, edges: EdgeColumns, rules: BoundRules) -> int:
    """Bound of the time of an edge, before anything is an unknown wait."""
    kind, event, tail = edges.kind[edge], edges.event[edge], edges.tail[edge]
    waits = kind == _SYNC or kind == _HIDDEN_SYNC or kind == _STREAM  # noqa: PLR1714 - compiled
    bound: int = rules.of_edge[kind]
    if len(rules.carried) > 0 and rules.carried[edges.head[edge] >> 1]:
        bound = _BEFORE
    elif kind == _SPAN or (waits and tail & 1 == 0 and tail >> 1 == event):
        bound = rules.of_class[rules.kernel_class[event]]
    elif kind == _THREAD:
        if edges.rule[edge] == _WAITS_FOR_WORK:
            bound = _WAITING
        elif event < 0:
            bound = _GAP
        elif rules.meets[event] == _ALWAYS or (
            rules.meets[event] == _AT_END and edges.head[edge] == 2 * event + 1
        ):
            bound = _COMMUNICATION
        elif len(rules.loads) > 0 and _is_loading(event, rules):
            bound = _DATA_LOADING
        elif rules.kind[event] == _RUNTIME:
            bound = rules.of_call[rules.name[event]]
        else:
            bound = rules.of_event[rules.kind[event]]
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
def _fill(edges: EdgeColumns, rules: BoundRules, bounds: I8, until: I64) -> None:
    """Fill the bound of each edge, and the time until which it is explained."""
    for edge in range(len(bounds)):
        bounds[edge] = bound_of(edge, edges, rules)
        until[edge] = explained(edge, edges, rules)


def edge_bounds(dag: Dag, edges: EdgeTable, rules: BoundRules | None = None) -> tuple[I8, I64]:
    """Bound of the time of each edge, and until when its own mechanism explains the wait.

    Later is an unknown wait, whatever the bound. A launch is explained while its call still runs;
    beyond that, and for gaps between work that was already enqueued, up to the usual size of such a
    delay in this trace. `rules`: those of the graph.
    """
    bounds, until = np.empty(len(edges), dtype=np.int8), np.empty(len(edges), dtype=np.int64)
    _fill(EdgeColumns.of(edges.columns), rules or BoundRules.of(dag), bounds, until)
    return bounds, until
