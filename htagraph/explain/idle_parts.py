"""Why a device or stream was idle: what the work that ends an idle interval waited for.

Binding edges lead from that work back to the start of the interval. Each edge covers a part of the
interval and gives its cause; the parts tile the interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from htagraph.arrays.binding import walks_back
from htagraph.arrays.codes import gather, take
from htagraph.arrays.intervals import Intervals, gaps, sum_by_code, union
from htagraph.errors import GraphError
from htagraph.explain.edge_bounds import BoundRules, edge_bounds
from htagraph.lookup.attribution import innermost
from htagraph.lookup.queues import Queues
from htagraph.lookup.windowed import device_work
from htagraph.model.arrays import I8, I32, I64
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import Bound, EdgeKind, EventKind, Vocabulary
from htagraph.model.window import Window


class IdleCause(Vocabulary):
    """What an idle device or stream waits for; named like the `Bound` of the same time."""

    HOST = 0  #: a host operator or API call runs
    DATA_LOADING = 1  #: a host operator that loads data runs
    UNTRACED_CODE = 2  #: unrecorded work of a host thread (Python, untraced code)
    LAUNCH = 3  #: from the launch call to the start of its work
    SYNC = 4  #: the host waits for the device, or returns from a wait
    EVENT_WAIT = 5  #: the stream resumes after an event of another stream
    OTHER_WORK = 6  #: work of another stream or device runs that this one depends on
    KERNEL_GAP = 7  #: between two kernels of a stream, the second already enqueued
    WORK_FROM_BEFORE_THE_PROFILE = (
        8  #: the launch of the work that ends the interval was not recorded
    )
    WINDOW_EDGE = 9  #: nothing more runs on the device in this trace
    UNKNOWN_WAITS = 10  #: no recorded dependency explains the wait
    WAITING_FOR_SMS = 11  #: work of another stream fills the device
    WAITING_FOR_WORK = 12  #: a pool thread is idle until it gets work


NO_EVENT_NAMES = np.full(len(IdleCause), "(host gap)", dtype=object)
"""Names of parts of idle intervals that belong to no event, by cause."""
NO_EVENT_NAMES[IdleCause.WORK_FROM_BEFORE_THE_PROFILE] = "(launch not recorded)"
NO_EVENT_NAMES[IdleCause.WAITING_FOR_WORK] = "(waits for work)"
NO_EVENT_NAMES[IdleCause.WINDOW_EDGE] = "(no more work)"
NO_EVENT_NAMES[IdleCause.UNKNOWN_WAITS] = "(unknown wait)"

_CAUSE_OF_BOUND = np.array(
    [IdleCause.__members__.get(bound.name, IdleCause.OTHER_WORK) for bound in Bound], dtype=np.int8
)


class IdleParts(NamedTuple):
    """Parts that tile idle intervals."""

    interval: I32  # Position of the interval among the gaps
    start_ns: I64
    end_ns: I64
    cause: I8  # Codes of `IdleCause`
    event: I32  # Event of the part, -1 for none
    lane: I32  # Host thread of the part, -1 for none

    @classmethod
    def joined(cls, blocks: Iterable[IdleParts]) -> IdleParts:
        """Parts of several blocks."""
        none = cls(*(np.empty(0, dtype=code) for code in ("i4", "i8", "i8", "i1", "i4", "i4")))
        return cls._make(np.concatenate(columns) for columns in zip(none, *blocks, strict=True))


_AT_ONCE = 1 << 16
"""Intervals a block: walks over their edges take a lot of memory. Changes nothing else."""


def idle_gaps(dag: Dag, window: Window, by: Queues) -> Intervals:
    """Idle intervals of each queue in the window, by queue and time."""
    work = device_work(dag, window)
    busy = union(by.of_event[work.event], work.start_ns, work.end_ns)
    return gaps(busy, np.arange(len(by)), window.start_ns, window.end_ns)


def _walked(dag: Dag, rules: BoundRules, gap: Intervals, ended_by: I64) -> IdleParts:
    """Parts along the binding edges into the work that ends each interval."""
    ends = np.flatnonzero(ended_by >= 0)
    times = dag.events.node_ts_ns
    node, since_ns = 2 * ended_by[ends], gap.start[ends]
    walk, edge, last = walks_back(node, since_ns, dag.binding, dag.edges.tail, times)
    edges, interval = dag.edges.take(edge), ends[walk]
    tail, head = edges.tail, edges.head
    begin = np.clip(times[tail], gap.start[interval], gap.end[interval])
    end = np.clip(times[head], gap.start[interval], gap.end[interval])
    bounds, until = edge_bounds(dag, edges, rules)
    known = np.clip(until, begin, end)
    cause, rest = _edge_causes(dag, bounds, edges)
    lane = np.where(edges.kind == EdgeKind.THREAD, dag.events.lane[head >> 1], np.int32(-1))
    one, two = np.flatnonzero(known > begin), np.flatnonzero(end > known)
    none = np.full(len(two) + len(ends), -1, dtype=np.int32)
    opening = np.clip(times[last], gap.start[ends], gap.end[ends])
    first = last >> 1
    launched_before = dag.events.is_device[first] & (dag.launch[first] < 0)
    opening_cause = np.where(
        launched_before, IdleCause.WORK_FROM_BEFORE_THE_PROFILE, IdleCause.UNKNOWN_WAITS
    ).astype(np.int8)
    return IdleParts(
        np.concatenate([interval[one], interval[two], ends]).astype(np.int32),
        np.concatenate([begin[one], known[two], gap.start[ends]]),
        np.concatenate([known[one], end[two], opening]),
        np.concatenate([cause[one], rest[two], opening_cause]),
        np.concatenate([edges.event[one], none]),
        np.concatenate([lane[one], none]),
    )


def _edge_causes(dag: Dag, bounds: I8, edges: EdgeTable) -> tuple[I8, I8]:
    """Causes of what explains each edge's time, and of the rest."""
    kind, head = edges.kind, edges.head >> 1
    cause = _CAUSE_OF_BOUND[bounds]
    into_device = dag.events.is_device[head]
    cause[(kind == EdgeKind.SYNC) & into_device & ~edges.ran_until] = IdleCause.EVENT_WAIT
    rest = np.full(len(edges), IdleCause.UNKNOWN_WAITS, dtype=np.int8)
    rest[(kind == EdgeKind.STREAM) & (dag.launch[head] < 0)] = (
        IdleCause.WORK_FROM_BEFORE_THE_PROFILE
    )
    return cause, rest


def _parts_of(dag: Dag, rules: BoundRules, gap: Intervals, ended_by: I64) -> IdleParts:
    """Parts of some intervals, in order."""
    last = np.flatnonzero(ended_by < 0).astype(np.int32)
    none = np.full(len(last), -1, dtype=np.int32)
    edge = np.full(len(last), IdleCause.WINDOW_EDGE, dtype=np.int8)
    closing = IdleParts(last, gap.start[last], gap.end[last], edge, none, none)
    pairs = zip(_walked(dag, rules, gap, ended_by), closing, strict=True)
    parts = IdleParts._make(np.concatenate([one, other]) for one, other in pairs)
    parts = take(parts, parts.end_ns > parts.start_ns)
    return take(parts, np.lexsort((parts.start_ns, parts.interval)))


def idle_parts(dag: Dag, window: Window, gap: Intervals, ended_by: I64) -> Iterator[IdleParts]:
    """Parts of idle intervals in order, block by block; `ended_by` is work, -1 for none."""
    rules = BoundRules.of(dag)
    for first in range(0, len(ended_by), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        block = Intervals(*(times[some] for times in gap))
        parts = _parts_of(dag, rules, block, ended_by[some])
        explained = sum_by_code(parts.interval, parts.end_ns - parts.start_ns, len(block.start))
        if not np.array_equal(explained, block.end - block.start):
            raise GraphError(f"the causes of idle time in {window.name!r} do not tile it.")
        yield parts._replace(interval=parts.interval + np.int32(first))


def part_names(dag: Dag, parts: IdleParts) -> tuple[I32, I32]:
    """Symbols of the event and of the operator of each part, -1 for none."""
    op = innermost(dag, parts.event, (EventKind.OP, EventKind.ANNOTATION))
    return gather(dag.events.name, parts.event), gather(dag.events.name, op)
