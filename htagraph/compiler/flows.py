"""FLOW: one host thread gives work, or a result, to another.

The file's forward-backward flows say which backward operator belongs to which forward operator.
They also say which thread works for which: ``backward()`` blocks its caller without a record, while
the autograd thread runs.

::

    thread 1   [forward]                      [optimizer]     caller: a gap, nothing recorded
               .       |-->.               .->|
    thread 2               [bw][bw] [bw][bw]                  autograd: a burst inside the gap
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.codes import distinct, is_in
from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import match_keys
from htagraph.compiler.recorded_flows import slices_around
from htagraph.compiler.structure import Structure, end_node, once, start_node
from htagraph.model.arrays import I64, Bools
from htagraph.model.autograd import AUTOGRAD_FUNCTION
from htagraph.model.categories import FORWARD_BACKWARD
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule
from htagraph.model.step_markers import PROFILER_STEP

_START, _FINISH = 0, 2
_OVERHANG_FACTOR = 10
"""The last event of a burst may end after the gap by this part of the burst: it wakes the caller,
then cleans up (chosen)."""


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
    events = structure.events
    return events.named(events.symbols.searched(AUTOGRAD_FUNCTION))


def _autograd_lanes(structure: Structure) -> npt.NDArray[np.integer]:
    """Lanes of autograd threads: they begin with autograd functions, or run mostly such.

    Hooks run there, too, and may outnumber the functions. A thread that steps the profiler is a
    caller.
    """
    events, host = structure.events, structure.host
    top = host[structure.parent[host] < 0]
    top = top[np.lexsort((events.ts_ns[top], events.lane[top]))]
    named = _is_autograd(structure)[top]
    is_op, lane, n_lanes = (
        events.kind[top] == EventKind.OP,
        events.lane[top],
        max(len(events.lanes), 1),
    )
    n_named = np.bincount(lane[named & is_op], minlength=n_lanes)
    mostly = 2 * n_named > np.bincount(lane[is_op], minlength=n_lanes)
    first = np.flatnonzero(np.diff(lane, prepend=-1))
    begins = np.isin(np.arange(n_lanes), lane[first[named[first]]])
    steps = events.named(events.symbols.searched(PROFILER_STEP))
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


def _gaps(structure: Structure, lane: int) -> tuple[I64, I64]:
    """Boundary nodes between which a lane records no operator and no call."""
    part = structure.boundaries.of_lane(lane)
    node = structure.boundaries.node[part].astype(np.int64)
    rows = np.flatnonzero(structure.is_idle[part][:-1])
    return node[rows], node[rows + 1]


def _bursts(
    structure: Structure, worker: int, gap_start: I64, gap_end: I64
) -> tuple[I64, I64, Bools]:
    """Gaps that hold a worker's whole burst: gap, first event, whether it continues an earlier one.

    The last event of a burst may end a little after the gap: it wakes the caller and then cleans
    up. Where the caller runs an autograd function itself (of parameters on the host), the burst
    continues meanwhile, and in the gap after that, in which it may only end; a worker that was
    idle by then begins another.
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


def _last_boundaries(structure: Structure, lane: int, until_ns: I64) -> I64:
    """Last node of a lane at or before each time, -1 for none."""
    between = structure.boundaries
    last = between.last(np.full(len(until_ns), lane), until_ns)
    return gather(between.node, last).astype(np.int64)


def handoff_edges(structure: Structure) -> EdgeTable:
    """Edges from a caller to the autograd thread that works for it, and back.

    From the start of the caller's gap to the start of the burst, and from the end of the burst to
    the end of the gap. Neither thread needs time of its own meanwhile (see
    `htagraph.compiler.threads`).
    """
    if not len(structure.host):
        return EdgeTable()
    parts = [EdgeTable()]
    for worker, caller in worker_lanes(structure).items():
        gap_start, gap_end = _gaps(structure, caller)
        gaps, first, goes_on = _bursts(structure, worker, gap_start, gap_end)
        begun, start = gap_start[gaps][~goes_on], first[~goes_on]
        last = _last_boundaries(structure, worker, structure.events.node_ts_ns[gap_end[gaps]])
        parts.append(EdgeTable.of(Rule.HANDOFF, begun, start_node(start), event=start))
        parts.append(EdgeTable.of(Rule.HANDOFF, last, gap_end[gaps]))
    return EdgeTable.concat(parts)
