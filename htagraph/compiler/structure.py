"""The structure of a trace, which every pass needs: threads, streams, launches, and scales.

How long a launch, or a gap between two kernels, takes at least depends on machine, driver and
model. So both are measured on the trace itself (`_calibrate`), as low percentiles of delays that
nothing else can explain. Where the device is hardly ever idle, the durations of launch calls stand
in. A delay of the usual size counts as overhead of its mechanism. What exceeds it is an unknown
wait, for a dependency that was not recorded may be behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, wraps
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from htagraph.arrays.codes import distinct, gather, is_in
from htagraph.arrays.matching import group_starts, last_before, running_latest
from htagraph.arrays.nesting import nest
from htagraph.errors import TraceLimitError
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.arrays import I8, I32, I64, Bools
from htagraph.model.collective_names import HOST_COLLECTIVE
from htagraph.model.dag import Calibration
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind, among
from htagraph.model.names import PROFILER_STEP

Result = TypeVar("Result")

# Percentiles and factors, not times: a trace in which everything takes twice as long has the same
# graph. `tests/compiler/test_device_clock.py` pins them.
_LAUNCH_LATENCY_PERCENTILE = 5
"""Of launches onto an idle device; low, as some of them waited for something (chosen)."""
_LAUNCH_PER_CALL = 2
"""Work starts about two short calls after its own call began, where few launches can be measured
(chosen)."""
_LAUNCH_LATENCY_CAP_FACTOR = 8
"""Median calls that a launch takes at most, however late work starts (chosen)."""
_STREAM_FLOOR_PERCENTILE = 1
"""Of gaps between queued work: what no gap is below (chosen)."""
_LAUNCH_USUAL_FACTOR = 4
"""Launch latencies up to which a launch delay is overhead (chosen)."""
_LAUNCH_TYPICAL_PERCENTILE = 25
"""Of launches onto an idle device: a delay that nothing made longer (chosen)."""
_LAUNCH_TYPICAL_FACTOR = 2
"""The same, in typical delays, where launches are slow but equally long (chosen)."""
_LAUNCH_CAP_FACTOR = 16
"""Launch latencies beyond which no delay is overhead (chosen)."""
_LONGEST_FLOOR_NS = 2**56
"""Two years: a limit, so that multiples of what damaged times say stay in 64 bits."""
_NEAR_CALL_FACTOR = 4
"""Calls after which the first work of a device still found it idle (chosen)."""
_STREAM_USUAL_FACTOR = 2
"""Launch latencies up to which a gap between queued work is overhead (chosen)."""
MAX_STREAMS = 4096
"""A limit of time: streams of all devices together, beyond which a trace is refused. Real traces
have some hundreds."""

_NEVER = np.iinfo(np.int64).min // 4
FEWEST_IDLE_LAUNCHES = 20
"""Launches onto an idle device that measure the launch latency; of fewer, calls limit it."""
_AT_ONCE = 1 << 16
"""Boundaries whose distances are in memory at once. A limit of memory, not of the answer."""


def once(examine: Callable[[Structure], Result]) -> Callable[[Structure], Result]:
    """A function of a structure that several passes call; its result is kept with the structure."""
    name = f"{examine.__module__}.{examine.__qualname__}"

    @wraps(examine)
    def kept(structure: Structure) -> Result:
        made: dict[str, Result] = vars(structure)
        if name not in made:
            made[name] = examine(structure)
        return made[name]

    return kept


def start_node(events: npt.NDArray[np.integer]) -> I64:
    """Nodes of the starts of events."""
    return 2 * events.astype(np.int64)


def end_node(events: npt.NDArray[np.integer]) -> I64:
    """Nodes of the ends of events."""
    return 2 * events.astype(np.int64) + 1


@dataclass(frozen=True, eq=False)
class Boundaries:
    """Where host events begin and end, thread by thread and in the order of each thread."""

    events: EventTable
    node: I32  # By lane, then in the order of the thread
    inside: I32  # Innermost host event from each boundary to the next of its lane, -1 for none
    first: I64  # Of shape (n_lanes + 1,). Those of a lane are ``first[lane]:first[lane + 1]``.

    def __len__(self) -> int:
        """Number of boundaries."""
        return len(self.node)

    @property
    def lane(self) -> I64:
        """Lane of each boundary; ascending."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))

    @cached_property
    def ts_ns(self) -> I64:
        """Time of each boundary; ascending on each lane."""
        return gather(self.events.node_ts_ns, self.node)

    @cached_property
    def is_followed(self) -> Bools:
        """Whether each boundary has another one after it on its lane."""
        out = np.ones(len(self), dtype=bool)
        out[self.first[1:][np.diff(self.first) > 0] - 1] = False
        return out

    def longer_than(self, least_ns: int) -> I64:
        """Positions of boundaries from which it takes longer to the next of their lane."""
        parts = [np.empty(0, dtype=np.int64)]
        for begin, end in pairwise(self.first.tolist()):
            for start in range(begin, end, _AT_ONCE):
                times = self.ts_ns[start : min(start + _AT_ONCE + 1, end)]
                parts.append(start + np.flatnonzero(np.diff(times) > least_ns))
        return np.concatenate(parts)

    def of_lane(self, lane: int) -> slice:
        """Positions of the boundaries of a lane."""
        return slice(*self.first[lane : lane + 2].tolist())

    def last(self, lane: npt.NDArray[np.integer], until_ns: I64) -> I64:
        """Position of the last boundary of a lane at or before each time, -1 for none."""
        position = np.full(len(lane), -1, dtype=np.int64)
        order = np.argsort(lane, kind="stable")
        for one in np.unique(lane).tolist():
            rows = order[slice(*np.searchsorted(lane, [one, one + 1], sorter=order))]
            part = self.of_lane(one)
            found = np.searchsorted(self.ts_ns[part], until_ns[rows], side="right")
            position[rows] = np.where(found > 0, part.start + found - 1, -1)
        return position


class Learnt(NamedTuple):
    """What a graph learns from all its events, for the graph of a part of them."""

    calibration: Calibration
    keys: frozenset[str]  # Of `Support`


@dataclass(frozen=True)
class Structure:
    """A trace, indexed for the passes."""

    events: EventTable
    host: I64  # Of shape (n_host,). Events that are nodes on host threads.
    boundaries: Boundaries  # Where the host events begin and end
    # Of shape (n_events,). Innermost host event that encloses each host event, -1 for none. No API
    # call encloses an operator or annotation that ends after it.
    parent: I32
    launch: I32  # Of shape (n_events,). Runtime call that enqueued each device event, -1 for none.
    queue: I64  # Of shape (n_device,). Device events by device, stream, start, end.
    calibration: Calibration
    # Correlation ids that several runtime calls carry; the earliest call is taken as the launch
    n_ambiguous_correlations: int
    learnt: Learnt | None = None  # From more events than these

    def calibrated(self, calibration: Calibration, learnt: Learnt | None) -> Structure:
        """The same structure with other scales; what was derived from its events is kept."""
        other = replace(self, calibration=calibration, learnt=learnt)
        own = {item.name for item in fields(self)}
        vars(other).update({name: made for name, made in vars(self).items() if name not in own})
        return other

    @cached_property
    def replays(self) -> Bools:
        """Whether each call enqueued several pieces of device work: a graph launch."""
        launch = self.launch[self.queue]
        counts = np.bincount(launch[launch >= 0], minlength=len(self.events))
        is_replay: Bools = counts > 1
        return is_replay

    @cached_property
    def resolution_ns(self) -> int:
        """Unit in which the times of device work are recorded, 1 ns or more."""
        events, device = self.events, self.queue
        if not len(device):
            return 1
        times = events.ts_ns[device]
        parts = np.concatenate([times - times.min(), events.dur_ns[device]])
        return int(np.gcd.reduce(parts)) or 1

    @cached_property
    def is_launch(self) -> Bools:
        """Whether an event is an API call that launched device work; by correlation id alone."""
        out = np.zeros(len(self.events), dtype=bool)
        out[self.launch[self.launch >= 0]] = True
        return out

    @cached_property
    def meanings(self) -> I8:
        """What each event means to its caller, `CallMeaning.NONE` for what is no runtime call."""
        return call_meanings(self.events)

    @cached_property
    def os_waits(self) -> Bools:
        """Whether each event is a call of the operating system that waits: no work of its thread.

        Whom it waits for (another thread, a lock, a file) is not recorded.
        """
        waits: Bools = self.meanings == CallMeaning.THREAD_WAIT
        return waits

    @cached_property
    def may_idle(self) -> Bools:
        """Whether a thread that is inside of each event, and in nothing within, may be idle."""
        idle: Bools = (self.events.kind == EventKind.ANNOTATION) | self.os_waits
        return idle

    @cached_property
    def is_idle(self) -> Bools:
        """Whether a thread may be idle after each of its boundaries; shape (n_boundaries,)."""
        return gather(self.may_idle, self.boundaries.inside, default=True)

    @cached_property
    def is_work(self) -> Bools:
        """Whether an event is device work, or on a host thread that can begin or end a window.

        Where the profiler's steps are marked, that is the thread that takes them: of a side thread
        that runs on behind it (a collective's worker, a background thread) nothing says that the
        run waits for it. Elsewhere, threads that launch device work. Where none does, those that do
        more than poll, or than run collectives for others. A call that only waits is no work.
        """
        events = self.events
        marked = events.searched(PROFILER_STEP) & (events.kind == EventKind.ANNOTATION)
        works = among(events.kind, (EventKind.OP, EventKind.ANNOTATION))
        serves = events.searched(HOST_COLLECTIVE)
        for bounds in (marked, self.is_launch, works & ~serves, works):
            if bounds.any():
                of_work = is_in(events.lane, events.lane[bounds])
                return events.is_device | (events.is_host & ~self.os_waits & of_work)
        return events.is_device if events.is_device.any() else events.is_host

    @cached_property
    def queue_starts(self) -> Bools:
        """Where a new stream begins in `queue`."""
        return group_starts(self.events.device[self.queue], self.events.stream[self.queue])

    @cached_property
    def queue_place(self) -> I32:
        """Position of each device event in `queue`, -1 elsewhere; shape (n_events,)."""
        out = np.full(len(self.events), -1, dtype=np.int32)
        out[self.queue] = np.arange(len(self.queue))
        return out

    @cached_property
    def queue_id(self) -> I32:
        """Dense number of the stream of each device event, -1 elsewhere; shape (n_events,)."""
        out = np.full(len(self.events), -1, dtype=np.int32)
        out[self.queue] = np.cumsum(self.queue_starts) - 1
        return out

    def launched_ns(self, work: I64) -> I64:
        """Time at which each device event was enqueued; long before the trace if not known."""
        return gather(self.events.ts_ns, gather(self.launch, work), _NEVER)

    @cached_property
    def enqueued(self) -> I64:
        """Device events by stream, then in the order in which they were enqueued."""
        device, end_ns, ts_ns = self.queue, self.events.end_ns, self.events.ts_ns
        launched_ns, stream = self.launched_ns(device), self.queue_id[device]
        return device[np.lexsort((end_ns[device], ts_ns[device], launched_ns, stream))]

    @cached_property
    def enqueued_ns(self) -> I64:
        """Time of each of `enqueued`; ascending on each stream."""
        return self.launched_ns(self.enqueued)

    @cached_property
    def enqueued_latest(self) -> I64:
        """Of `enqueued`, the one that ends last so far on its stream: positions."""
        rows = self.enqueued
        return running_latest(self.events.end_ns[rows], group_starts(self.queue_id[rows]))

    @cached_property
    def enqueued_bounds(self) -> I64:
        """Where each stream begins in `enqueued`, and the end; shape (n_streams + 1,)."""
        n_streams = int(self.queue_starts.sum())
        return np.searchsorted(self.queue_id[self.enqueued], np.arange(n_streams + 1))

    @cached_property
    def by_end(self) -> I64:
        """Device events by stream, then by their end."""
        return self.queue[np.lexsort((self.events.end_ns[self.queue], self.queue_id[self.queue]))]

    def covered_on(self, stream: int, before_ns: I64) -> I64:
        """`covered` for many times on one stream, by its dense number."""
        begin, end = self.enqueued_bounds[stream : stream + 2]
        times = self.enqueued_ns[begin:end]
        position = begin + np.searchsorted(times, before_ns) - 1
        latest = gather(self.enqueued_latest, np.where(position >= begin, position, -1))
        return gather(self.enqueued, latest)

    def covered(self, queue_id: I64, before_ns: I64) -> I64:
        """Device event that ends last of those enqueued on a stream before a time, -1 for none.

        None is on stream -1.
        """
        rows = self.enqueued
        group, time = self.queue_id[rows], self.enqueued_ns
        position = last_before(group, time, queue_id, before_ns)
        return gather(rows, gather(self.enqueued_latest, position))

    def first_after(self, queue_id: I64, since_ns: I64) -> I64:
        """First device event enqueued on a stream at or after a time, -1 for none."""
        rows = self.enqueued
        group, time = self.queue_id[rows], self.enqueued_ns
        position = last_before(group, time, queue_id, since_ns) + 1
        position = np.maximum(position, np.searchsorted(group, queue_id))
        position[position == len(rows)] = -1
        return np.where(gather(group, position) == queue_id, gather(rows, position), -1)

    def find_queue(self, device: I64, stream: I64) -> I64:
        """Dense number of each (device, stream) pair, -1 where a stream ran nothing."""
        firsts = self.queue[self.queue_starts]
        known = {
            (int(d), int(s)): number
            for number, (d, s) in enumerate(
                zip(self.events.device[firsts], self.events.stream[firsts], strict=True)
            )
        }
        pairs = zip(device.tolist(), stream.tolist(), strict=True)
        return np.fromiter(
            (known.get(pair, -1) for pair in pairs), dtype=np.int64, count=len(device)
        )


def _find_launches(events: EventTable) -> tuple[I32, int]:
    """Runtime call of each device event by correlation id, and how many ids are ambiguous."""
    launch = np.full(len(events), -1, dtype=np.int32)
    calls = np.flatnonzero((events.kind == EventKind.RUNTIME) & (events.correlation > 0))
    device = np.flatnonzero(events.is_device & (events.correlation > 0))
    if not len(calls):
        return launch, 0
    ids = events.correlation[calls]
    order = np.argsort(ids, kind="stable")
    starts = group_starts(ids[order])
    if not starts.all():
        order = np.lexsort((events.dur_ns[calls], events.ts_ns[calls], ids))
    first = np.flatnonzero(starts)
    calls, ids, n_calls = calls[order[first]], ids[order[first]], np.diff(first, append=len(calls))
    found = np.minimum(np.searchsorted(ids, events.correlation[device]), len(ids) - 1)
    known = ids[found] == events.correlation[device]
    launch[device[known]] = calls[found[known]]
    n_ambiguous = int((n_calls[distinct(found[known])] > 1).sum())
    return launch, n_ambiguous


def _percentile(values: I64, percent: int) -> int:
    """A percentile that is one of the values, 0 of none."""
    return int(np.percentile(values, percent, method="lower")) if len(values) else 0


def _idle_launch_delays(events: EventTable, launch: I32, queue: I64) -> I64:
    """Delays from call to start of launched work that found its device idle, on all streams."""
    order = np.lexsort((events.end_ns[queue], events.ts_ns[queue], events.device[queue]))
    work = queue[order]
    starts = group_starts(events.device[work])
    latest_ns = events.end_ns[work[running_latest(events.end_ns[work], starts)]]
    call = launch[work]
    delay = events.ts_ns[work] - events.ts_ns[call]
    idle = ~starts & (np.roll(latest_ns, 1) <= events.ts_ns[call])
    # Nothing is known to be before the first work of a device; near its call it was idle, long
    # after it was not.
    idle |= starts & (delay <= _NEAR_CALL_FACTOR * events.dur_ns[call])
    return delay[idle & (call >= 0) & (delay >= 0)]


def _launch_latency(delays: I64, calls_ns: I64) -> int:
    """Least time of a launch, by launches onto an idle device and by how long calls take.

    A delay may hold a wait that is not recorded, so the floor is never beyond a multiple of the
    median call, and of few delays not beyond what short calls suggest: many calls may be long
    because a full queue held them up.
    """
    calls_ns = calls_ns[calls_ns > 0]
    measured = _percentile(delays, _LAUNCH_LATENCY_PERCENTILE)
    if len(delays) >= FEWEST_IDLE_LAUNCHES:
        cap = _LAUNCH_LATENCY_CAP_FACTOR * _percentile(calls_ns, 50)
    else:
        cap = _LAUNCH_PER_CALL * _percentile(calls_ns, _LAUNCH_LATENCY_PERCENTILE)
    floor = min(measured, cap) if len(delays) and cap else measured or cap
    return min(floor, _LONGEST_FLOOR_NS)


def _calibrate(events: EventTable, launch: I32, queue: I64) -> Calibration:
    """Launch latency, measured on an idle device, and stream gap, measured between queued work."""
    delays = _idle_launch_delays(events, launch, queue)
    calls = distinct(launch[launch >= 0])
    launch_latency = _launch_latency(delays, events.dur_ns[calls])
    typical = launch_latency
    if len(delays) >= FEWEST_IDLE_LAUNCHES:
        typical = _percentile(delays, _LAUNCH_TYPICAL_PERCENTILE)
    # It is capped, for where most launches are late, most waits are unknown.
    usual = max(_LAUNCH_USUAL_FACTOR * launch_latency, _LAUNCH_TYPICAL_FACTOR * typical)
    starts = group_starts(events.device[queue], events.stream[queue])
    before = running_latest(events.end_ns[queue], starts)
    follows = np.flatnonzero(~starts & (launch[queue] >= 0))
    later, earlier_end = queue[follows], events.end_ns[queue[before[follows - 1]]]
    launched = events.ts_ns[launch[later]]
    gap = events.ts_ns[later] - earlier_end
    queued = gap[(gap >= 0) & (launched + launch_latency < earlier_end)]
    return Calibration(
        launch_latency_ns=launch_latency,
        launch_usual_ns=min(usual, _LAUNCH_CAP_FACTOR * launch_latency),
        stream_floor_ns=_percentile(queued, _STREAM_FLOOR_PERCENTILE),
        stream_usual_ns=_STREAM_USUAL_FACTOR * launch_latency,
        n_idle_launches=len(delays),
    )


def _outside_transfers(events: EventTable, parent: I32) -> I32:
    """Parents of which none is a send or receive of the host that its thread does not wait for.

    Its range begins in the call and ends where the thread has waited for it: what the thread does
    until then is not part of either::

        thread   [c10d::send     ][aten::mm][wait]
        range            [gloo:send              ]
    """
    named = events.searched(HOST_COLLECTIVE)
    ranges = np.flatnonzero(named & (parent >= 0))
    ranges = ranges[events.end_ns[ranges] > events.end_ns[parent[ranges]]]
    rows = np.flatnonzero(is_in(np.maximum(parent, 0), ranges) & (parent >= 0))
    if not len(rows):
        return parent
    out = parent.copy()
    while len(rows):
        above = out[rows]
        out[rows] = gather(out, above)
        passes = (out[rows] >= 0) & (
            is_in(np.maximum(out[rows], 0), ranges)
            | (gather(events.end_ns, out[rows], 0) < events.end_ns[rows])
        )
        rows = rows[passes]
    return out


def examine(events: EventTable) -> Structure:
    """Structure of a trace, with device times as they are (see `compiler.device_clock`)."""
    launch, n_ambiguous = _find_launches(events)
    host, queue = np.flatnonzero(events.is_host), np.flatnonzero(events.is_device)
    keys = (events.end_ns, events.ts_ns, events.stream, events.device)
    queue = queue[np.lexsort(tuple(column[queue] for column in keys))]
    n_streams = int(group_starts(events.device[queue], events.stream[queue]).sum())
    if n_streams > MAX_STREAMS:
        raise TraceLimitError(
            f"{n_streams:,} streams run work; a graph has at most {MAX_STREAMS:,}.",
            hint="are streams or devices numbered by something else?",
        )
    # Of host events with equal times, the outer one is first: by kind, then by number.
    outer_first = np.zeros(len(EventKind), dtype=np.int8)
    outer_first[EventKind.OP], outer_first[EventKind.RUNTIME] = 1, 2
    nesting = nest(
        events.lane,
        events.ts_ns,
        events.end_ns,
        (gather(outer_first, events.kind), events.external_id),
        is_call=events.kind == EventKind.RUNTIME,
        rows=host,
    )
    known = np.minimum(np.arange(len(events.lanes) + 1), len(nesting.first) - 1)
    return Structure(
        events=events,
        host=host,
        boundaries=Boundaries(events, nesting.boundary, nesting.innermost, nesting.first[known]),
        parent=_outside_transfers(events, nesting.parent),
        launch=launch,
        queue=queue,
        calibration=_calibrate(events, launch, queue),
        n_ambiguous_correlations=n_ambiguous,
    )
