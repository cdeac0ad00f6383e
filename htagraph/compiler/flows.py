"""FLOW: one host thread gives work, or a result, to another.

The file's forward-backward flows say which thread works for which: ``backward()`` blocks its caller
without a record, while the autograd thread runs::

    thread 1   [forward]                      [optimizer]     caller: a gap, nothing recorded
               .       |-->.               .->|
    thread 2               [bw][bw] [bw][bw]                  autograd: a burst inside the gap

Other arrows (``ph`` s, t, f) lead from slice to slice; any program may write them. Edges go from
the end of one to the start of the other: from the last boundary before the arrow if the first still
ran, and to the next boundary if the second had begun. Dependencies of tensors are such arrows::

    thread 1   [post   ]
                      |-----.
    thread 2   [read]       '->[task  ]        a gap in which the arrow begins is a wait
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.arrays.codes import distinct, gather, is_in
from htagraph.arrays.matching import group_starts, last_before, match_keys
from htagraph.compiler.structure import Structure, end_node, once, start_node
from htagraph.model.arrays import I64, Bools
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EventKind, among
from htagraph.model.names import (
    AUTOGRAD_FUNCTION,
    FORWARD_BACKWARD,
    PROFILER_STEP,
    TENSOR_DEPENDENCY,
)
from htagraph.model.rules import Rule

_START, _STEP, _FINISH, _NEXT_SLICE = 0, 1, 2, 3
_OVERHANG_FACTOR = 10
"""The last event of a burst may end after the gap by this part of the burst: it wakes the caller,
then cleans up (chosen)."""


def slices_around(structure: Structure, points: I64) -> I64:
    """Host event that each flow point is on: as recorded, else what encloses it; or -1."""
    flows = structure.events.flows
    between = structure.boundaries
    around = gather(between.inside, between.last(flows.lane[points], flows.ts_ns[points]))
    return np.where(flows.event[points] >= 0, flows.event[points], around)


def _arrows(structure: Structure) -> tuple[I64, I64]:
    """Each step or finish, after the last start or step of its id: two rows of the flow table."""
    flows = structure.events.flows
    rows = np.flatnonzero(flows.category != structure.events.symbols.code(FORWARD_BACKWARD))
    sends_last = np.where(flows.phase[rows] == _START, 0, flows.phase[rows])
    keys = (sends_last, flows.ts_ns[rows], flows.id[rows], flows.category[rows])
    rows = rows[np.lexsort(keys)]
    starts = group_starts(flows.category[rows], flows.id[rows])
    position = np.arange(len(rows))
    group = np.maximum.accumulate(np.where(starts, position, 0))
    sends = among(flows.phase[rows], (_START, _STEP))
    sent = np.maximum.accumulate(np.where(sends, position, -1))
    source = np.where(starts, -1, np.roll(sent, 1))
    heads = np.flatnonzero((flows.phase[rows] != _START) & (source >= group))
    return rows[source[heads]], rows[heads]


def _slices(structure: Structure, points: I64) -> I64:
    """The slice that each flow point is on, or leads to; -1 for none."""
    events, flows, host = structure.events, structure.events.flows, structure.host
    order = host[np.lexsort((-events.dur_ns[host], events.ts_ns[host], events.lane[host]))]
    lanes, lane = events.lane[order], flows.lane[points]
    before = last_before(
        lanes.astype(np.int64), events.ts_ns[order], lane.astype(np.int64), flows.ts_ns[points]
    )
    after = np.where(before < 0, np.searchsorted(lanes, lane), before + 1)
    after[after >= len(order)] = -1
    after[gather(lanes, after) != lane] = -1
    leads_on = (flows.phase[points] == _NEXT_SLICE) & (flows.event[points] < 0)
    return np.where(leads_on, gather(order, after), slices_around(structure, points))


def _nodes(structure: Structure, arrows: tuple[I64, I64], tail: I64, head: I64) -> tuple[I64, I64]:
    """The nodes that arrows, by their two flow points, join between two slices."""
    events, flows, times = structure.events, structure.events.flows, structure.events.node_ts_ns
    between, start_ns = structure.boundaries, events.ts_ns[head]
    is_named = flows.event[arrows[0]] >= 0
    sent_ns = np.where(is_named, events.ts_ns[tail], flows.ts_ns[arrows[0]])
    is_running = (start_ns < sent_ns) & (flows.event[arrows[1]] < 0)
    come_ns = np.where(is_running, flows.ts_ns[arrows[1]], start_ns)
    sent = gather(between.node, between.last(events.lane[tail], sent_ns))
    source = np.where(is_named, start_node(tail), sent)
    source = np.where(events.end_ns[tail] <= come_ns, end_node(tail), source)
    until = np.maximum(come_ns, times[source])
    following = np.minimum(between.last(events.lane[head], until - 1) + 1, len(between) - 1)
    return source, np.where(is_running, between.node[following], start_node(head))


def recorded_flow_edges(structure: Structure) -> EdgeTable:
    """Edges for the arrows of the file, except from forward to backward operators."""
    flows = structure.events.flows
    if not len(structure.host):
        return EdgeTable()
    sent, come = _arrows(structure)
    if not len(sent):
        return EdgeTable()
    tail, head = _slices(structure, sent), _slices(structure, come)
    is_host = structure.events.is_host
    found = np.flatnonzero((tail >= 0) & (head >= 0) & (tail != head))
    found = found[is_host[tail[found]] & is_host[head[found]]]
    source, target = _nodes(structure, (sent[found], come[found]), tail[found], head[found])
    of_tensors = flows.category[come[found]] == structure.events.symbols.code(TENSOR_DEPENDENCY)
    rule = np.where(of_tensors, Rule.TENSOR_DEPENDENCY, Rule.RECORDED_FLOW).astype(np.int8)
    return EdgeTable.of(rule, source, target, event=head[found])


@once
def _forward_backward_pairs(structure: Structure) -> tuple[I64, I64]:
    """Forward and backward operators joined by a flow of the file."""
    flows = structure.events.flows
    wanted = structure.events.symbols.code(FORWARD_BACKWARD)
    starts = np.flatnonzero((flows.category == wanted) & (flows.phase == _START))
    finishes = np.flatnonzero((flows.category == wanted) & (flows.phase >= _FINISH))
    matched = match_keys(flows.id[finishes], flows.id[starts])
    start, finish = starts[matched[matched >= 0]], finishes[matched >= 0]
    forward, backward = slices_around(structure, start), slices_around(structure, finish)
    both = (forward >= 0) & (backward >= 0)
    return forward[both], backward[both]


def flow_edges(structure: Structure) -> EdgeTable:
    """Edges from the end of each forward operator to the start of its backward operator."""
    forward, backward = _forward_backward_pairs(structure)
    return EdgeTable.of(Rule.FWDBWD_FLOW, end_node(forward), start_node(backward), event=backward)


@once
def _is_autograd(structure: Structure) -> Bools:
    """Whether each event has the name of an autograd function."""
    return structure.events.searched(AUTOGRAD_FUNCTION)


def _autograd_lanes(structure: Structure) -> npt.NDArray[np.integer]:
    """Lanes of autograd threads: they begin with autograd functions, or run mostly such.

    Hooks run there, too, and may outnumber the functions. A thread that steps the profiler is a
    caller.
    """
    events, host = structure.events, structure.host
    top = host[structure.parent[host] < 0]
    top = top[np.lexsort((events.ts_ns[top], events.lane[top]))]
    named = _is_autograd(structure)[top]
    is_op, lane = events.kind[top] == EventKind.OP, events.lane[top]
    n_lanes = max(len(events.lanes), 1)
    n_named = np.bincount(lane[named & is_op], minlength=n_lanes)
    mostly = 2 * n_named > np.bincount(lane[is_op], minlength=n_lanes)
    first = np.flatnonzero(np.diff(lane, prepend=-1))
    begins = np.isin(np.arange(n_lanes), lane[first[named[first]]])
    steps = events.searched(PROFILER_STEP)
    return np.flatnonzero((mostly | begins) & ~np.isin(np.arange(n_lanes), events.lane[steps]))


@once
def worker_lanes(structure: Structure) -> dict[int, int]:
    """Lanes that run autograd functions, each with the lane that waits for it."""
    events = structure.events
    forward, backward = _forward_backward_pairs(structure)
    crosses = events.lane[forward] != events.lane[backward]
    called = events.lane[backward[crosses]]
    workers = distinct(np.concatenate([called, _autograd_lanes(structure)]))
    callers = events.lane[structure.host]
    callers = callers[~is_in(callers, workers)]
    busiest = int(np.bincount(callers).argmax()) if len(callers) else -1
    waits: dict[int, int] = {}
    for worker in workers.tolist():
        sources = events.lane[forward[crosses & (events.lane[backward] == worker)]]
        sources = sources[~is_in(sources, workers)]
        caller = int(np.bincount(sources).argmax()) if len(sources) else busiest
        if caller >= 0:
            waits[worker] = caller
    return waits


def _bursts(
    structure: Structure, worker: int, gap_start: I64, gap_end: I64
) -> tuple[I64, I64, Bools]:
    """Gaps that hold a worker's whole burst: gap, first event, whether it continues an earlier one.

    The last event of a burst may end a little after the gap: it wakes the caller and then cleans
    up. Where the caller runs an autograd function itself (of parameters on the host), the burst
    continues meanwhile, and in the gap after that, in which it may only end; a worker that was idle
    by then begins another.
    """
    events, parent = structure.events, structure.parent
    on_lane = structure.host[events.lane[structure.host] == worker]
    enclosing = parent[on_lane]
    top = on_lane[gather(structure.may_idle, enclosing, default=True)]
    top = top[~structure.may_idle[top]]
    top = top[np.lexsort((events.end_ns[top], events.ts_ns[top]))]
    if not len(top):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
    begins, ends = events.ts_ns[top], np.maximum.accumulate(events.end_ns[top])
    start_ns, end_ns = structure.events.node_ts_ns[gap_start], structure.events.node_ts_ns[gap_end]
    first = np.searchsorted(begins, start_ns, side="left")
    last = np.searchsorted(begins, end_ns, side="left") - 1
    is_autograd = _is_autograd(structure)
    running_end_ns = ends[np.maximum(first - 1, 0)]
    is_busy = (first > 0) & (running_end_ns > start_ns)
    goes_on = is_autograd[gap_start >> 1] & is_busy
    burst = np.maximum(end_ns - begins[np.minimum(first, len(top) - 1)], 0)
    whole = ((last >= first) & (goes_on | ~is_busy)) | (goes_on & (running_end_ns <= end_ns))
    whole &= is_autograd[gap_end >> 1] | (
        _OVERHANG_FACTOR * (ends[np.maximum(last, 0)] - end_ns) <= burst
    )
    gaps = np.flatnonzero(whole)
    return gaps, top[np.minimum(first, len(top) - 1)[gaps]], goes_on[gaps]


def handoff_edges(structure: Structure) -> EdgeTable:
    """Edges from a caller to the autograd thread that works for it, and back.

    From the start of the caller's gap to the start of the burst, and from the end of the burst to
    the end of the gap. Neither thread needs time of its own meanwhile (see
    `htagraph.compiler.threads`).
    """
    if not len(structure.host):
        return EdgeTable()
    parts, between = [EdgeTable()], structure.boundaries
    for worker, caller in worker_lanes(structure).items():
        # The caller's gaps: it records no operator and no call.
        part = between.of_lane(caller)
        nodes = between.node[part].astype(np.int64)
        rows = np.flatnonzero(structure.is_idle[part][:-1])
        gap_start, gap_end = nodes[rows], nodes[rows + 1]
        gaps, first, goes_on = _bursts(structure, worker, gap_start, gap_end)
        begun, start = gap_start[gaps][~goes_on], first[~goes_on]
        until_ns = structure.events.node_ts_ns[gap_end[gaps]]
        last = gather(between.node, between.last(np.full(len(gaps), worker), until_ns))
        parts.append(EdgeTable.of(Rule.HANDOFF, begun, start_node(start), event=start))
        parts.append(EdgeTable.of(Rule.HANDOFF, last.astype(np.int64), gap_end[gaps]))
    return EdgeTable.concat(parts)
