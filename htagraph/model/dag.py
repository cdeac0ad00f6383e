"""The graph of one rank: two columnar tables, and what follows from them per node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from htagraph.model.arrays import I8, I32, I64, Bools, Frozen, brief
from htagraph.model.edges import EdgeTable, Support
from htagraph.model.events import CAPTURED_LAUNCH, EventTable
from htagraph.model.kinds import DEVICE_CLOCK_KINDS, among
from htagraph.model.recording import Repair
from htagraph.model.units import human_duration
from htagraph.model.window import Window


@brief
@dataclass(frozen=True)
class Calibration:
    """Scales that the compiler measured on the trace itself."""

    # L0: a low percentile of the delay from launch call to device start on an idle device; with few
    # such launches, at most what the durations of launch calls suggest
    launch_latency_ns: int = 0
    # Delay up to which a launch counts as overhead, a multiple of that; beyond, its time is an
    # unknown wait
    launch_usual_ns: int = 0
    # stream_floor_ns, stream_usual_ns: G0 and its limit: the same for gaps between back-to-back
    # device events of a stream
    stream_floor_ns: int = 0
    stream_usual_ns: int = 0
    # Added to device times so that no device event starts before its launch call and, if possible,
    # none ends after the call that waited for it
    clock_shift_ns: int = 0
    # In ns. Device times from which another shift holds, and that shift, if clocks drift; always in
    # gaps of the device.
    clock_steps: tuple[tuple[int, int], ...] = ()
    # How much waits still end before what they waited for, if no shift fits both
    clock_overlap_ns: int = 0
    # How much more waits end before it, if several end long before: a clock was set
    clock_apart_ns: int = 0
    # Launches onto an idle device, from which the launch latency was measured
    n_idle_launches: int = 0

    def __post_init__(self) -> None:
        """Make the steps tuples: files keep them as lists."""
        object.__setattr__(self, "clock_steps", tuple((at, by) for at, by in self.clock_steps))

    def shift_at(self, ts_ns: I64) -> I64:
        """Shift that is already included in device times."""
        since = np.array([at for at, _ in self.clock_steps], dtype=np.int64)
        shifts = np.array([self.clock_shift_ns, *(by for _, by in self.clock_steps)])
        return shifts[np.searchsorted(since, ts_ns, side="right")].astype(np.int64)

    @property
    def moved_by(self) -> str:
        """Shift of device times in words; empty for none."""
        shifts = [self.clock_shift_ns, *(by for _, by in self.clock_steps)]
        if not any(shifts):
            return ""
        ends = dict.fromkeys((min(shifts), max(shifts)))
        return " to ".join(human_duration(shift) for shift in ends)


@brief
@dataclass(frozen=True)
class Classification(Frozen):
    """Class of each piece of device work, and the rule that decided."""

    kernel_class: I8  # Of shape (n_events,). Codes of `KernelClass`; NONE for host events.
    # Of shape (n_events,). Position in `rules`, which are in the order tried; -1 for host events.
    rule: I8
    rules: tuple[str, ...]


@brief
@dataclass(frozen=True)
class RejectedEdges:
    """Edges that would run backward in time: kept with their skew, never used."""

    edges: EdgeTable
    # ``ts(tail) - ts(head)``, ``> 0``; 0 for an edge left out to break a cycle at one instant
    skew_ns: I64


@brief
@dataclass(frozen=True)
class Dag(Frozen):
    """Events and edges of one rank, and the binding edge of every node."""

    events: EventTable  # With the device clock shifted by `calibration`
    edges: EdgeTable  # Sorted by head, then by kind; all forward in time
    # Of shape (n_events,). Innermost host event that encloses a host event on its thread, -1 for
    # none.
    parent: I32
    launch: I32  # Of shape (n_events,). Runtime call that enqueued a device event, -1 for none.
    classification: Classification
    # Of shape (n_graph_nodes,). Topological order of the nodes: by time, then by the edges that
    # take no time.
    order: I32
    # Of shape (2 * n_events,). Edge into each node with the latest arrival, -1 for none.
    binding: I32
    calibration: Calibration
    rejected: RejectedEdges
    # Of shape (n_events,). Device work, and host events of the threads that run the profiler's
    # steps; without steps, of all threads that do more than poll (a watchdog's ``cudaEventQuery``).
    # Only work can begin or end a window.
    is_work: Bools
    span: Window  # The whole trace: from the first start to the last end of work
    # Counts for `quality()`, and of what was skipped when the trace was read
    notes: Mapping[str, int] = field(default_factory=dict)
    support: tuple[Support, ...] = ()  # What inferred edges rest on
    repairs: tuple[Repair, ...] = ()  # Of the file that the events were read from
    # Globs of host ranges that load data, besides those with usual names
    data_loading: tuple[str, ...] = ()

    @property
    def unrolled(self) -> Dag:
        """The graph in which captured calls launched the work of replayed graphs.

        Its further events are `EventTable.captured`, which have no nodes: only `events`, `parent`
        and `launch` hold them. Replayed work that is not joined with a capture keeps its launch.
        """
        joined = self.events.columns.get(CAPTURED_LAUNCH)
        # Itself is not kept: a graph that refers to itself stays in memory after its last use.
        return self if joined is None or not len(self.events.captured) else self._unrolled

    @cached_property
    def _unrolled(self) -> Dag:
        joined = self.events.columns[CAPTURED_LAUNCH]
        n, above = len(self.events), self.events.captured.parent
        launch = np.concatenate([self.launch, np.full_like(above, -1)])
        launch[joined.event] = n + joined.value
        parent = np.concatenate([self.parent, np.where(above >= 0, n + above, -1)])
        return replace(
            self,
            events=self.events.unrolled,
            parent=parent.astype(np.int32),
            launch=launch.astype(np.int32),
        )

    @cached_property
    def clock_shift_ns(self) -> I64:
        """Shift added to the recorded time of device work, 0 for other events."""
        shift = self.calibration.shift_at(self.events.ts_ns)
        return np.where(self.events.is_device, shift, 0)

    @cached_property
    def recorded_ns(self) -> I64:
        """Recorded start of each event, before the device clock was shifted."""
        shift = self.calibration.shift_at(self.events.ts_ns)
        by_device = among(self.events.kind, DEVICE_CLOCK_KINDS)
        return self.events.ts_ns - np.where(by_device, shift, 0)

    @cached_property
    def arrival_ns(self) -> I64:
        """Earliest time of its head that each edge allows: ``ts(tail) + lag``."""
        return self.events.node_ts_ns[self.edges.tail] + self.edges.lag_ns

    @cached_property
    def residual_ns(self) -> I64:
        """How long each node is after the edge that binds it, ``>= 0``; 0 without an edge."""
        bound = np.flatnonzero(self.binding >= 0)
        residual = np.zeros(len(self.binding), dtype=np.int64)
        residual[bound] = self.events.node_ts_ns[bound] - self.arrival_ns[self.binding[bound]]
        return residual

    @cached_property
    def slack_ns(self) -> I64:
        """How much later each edge could arrive without binding; 0 for binding edges."""
        head = self.edges.head
        latest = self.events.node_ts_ns[head] - self.residual_ns[head]
        return latest - self.arrival_ns

    @cached_property
    def in_offsets(self) -> I64:
        """Edges into node ``v`` are ``in_offsets[v]:in_offsets[v + 1]``."""
        return np.searchsorted(self.edges.head, np.arange(2 * len(self.events) + 1)).astype(
            np.int64
        )
