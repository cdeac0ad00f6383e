"""The graph of one rank: two columnar tables, and what follows from them per node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from htagraph.model.edges import EdgeTable
from htagraph.model.events import EventTable
from htagraph.model.window import Window

__all__ = ["Calibration", "Classification", "Dag", "RejectedEdges"]

I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Calibration:
    """Scales that the compiler measured on the trace itself.

    Parameters
    ----------
    launch_floor_ns : int, unit=ns
        L0: a low percentile of the delay from launch call to device start on an idle stream.
    launch_usual_ns : int, unit=ns
        Delay up to which a launch is called overhead, a multiple of the floor; what is longer is
        unexplained.
    stream_floor_ns : int, unit=ns
        G0: a low percentile of the gaps between back-to-back device events of one stream.
    stream_usual_ns : int, unit=ns
        The same for gaps.
    clock_shift_ns : int, unit=ns
        What was added to all device times so that no device event starts before its launch call.
    """

    launch_floor_ns: int = 0
    launch_usual_ns: int = 0
    stream_floor_ns: int = 0
    stream_usual_ns: int = 0
    clock_shift_ns: int = 0


@dataclass(frozen=True)
class Classification:
    """Class of each piece of device work, and the rule that decided.

    Parameters
    ----------
    kernel_class : ndarray of shape (n_events,), dtype=int8
        Codes of `KernelClass`; NONE for what is not device work.
    rule : ndarray of shape (n_events,), dtype=int8
        Position in `rules`, -1 for what is not device work.
    rules : tuple of str
        Names of the rules, in the order in which they were tried.
    """

    kernel_class: I8
    rule: I8
    rules: tuple[str, ...]


@dataclass(frozen=True)
class RejectedEdges:
    """Edges that would run backward in time: kept aside with their skew, never used.

    Parameters
    ----------
    edges : EdgeTable
    skew_ns : ndarray of shape (n,), dtype=int64, unit=ns
        ``ts(tail) - ts(head)``, ``> 0``; 0 for an edge left out to break a cycle at one instant.
    """

    edges: EdgeTable
    skew_ns: I64


@dataclass(frozen=True)
class Dag:
    """Events and edges of one rank, and the binding edge of every node.

    Parameters
    ----------
    events : EventTable
        With the device clock shifted by ``calibration.clock_shift_ns``.
    edges : EdgeTable
        Sorted by head, then by kind; all forward in time.
    parent : ndarray of shape (n_events,), dtype=int32
        Innermost host event that encloses a host event on its thread, -1 for none.
    launch : ndarray of shape (n_events,), dtype=int32
        Runtime call that enqueued a device event, -1 for none.
    classification : Classification
    order : ndarray of shape (n_graph_nodes,), dtype=int32
        Topological order of the nodes of the graph: by time, then by the edges that take no time.
    binding : ndarray of shape (2 * n_events,), dtype=int32
        The edge into each node with the latest arrival, -1 where there is no edge.
    residual_ns : ndarray of shape (2 * n_events,), dtype=int64, unit=ns
        ``ts(node) - arrival(binding)``, ``>= 0``; 0 where there is no edge.
    calibration : Calibration
    rejected : RejectedEdges
    is_work : ndarray of shape (n_events,), dtype=bool
        Device work, and host events of the threads that take the profiler's steps; without steps,
        of all threads that do more than poll (a watchdog's ``cudaEventQuery``). Only work can begin
        or end a window.
    span : Window
        The whole trace: from the first start to the last end of work.
    notes : mapping of str to int
        Counts for `quality()`.
    """

    events: EventTable
    edges: EdgeTable
    parent: I32
    launch: I32
    classification: Classification
    order: I32
    binding: I32
    residual_ns: I64
    calibration: Calibration
    rejected: RejectedEdges
    is_work: npt.NDArray[np.bool_]
    span: Window
    notes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for array in (
            self.parent,
            self.launch,
            self.order,
            self.binding,
            self.residual_ns,
            self.is_work,
        ):
            array.setflags(write=False)
        self.classification.kernel_class.setflags(write=False)
        self.classification.rule.setflags(write=False)

    @cached_property
    def arrival_ns(self) -> I64:
        """When each edge lets its head happen: ``ts(tail) + lag``."""
        return self.events.node_ts_ns[self.edges.tail] + self.edges.lag_ns

    @cached_property
    def slack_ns(self) -> I64:
        """Time by which each edge could arrive later without binding; 0 for binding edges."""
        head = self.edges.head
        latest = self.events.node_ts_ns[head] - self.residual_ns[head]
        return latest - self.arrival_ns

    @cached_property
    def in_offsets(self) -> I64:
        """Edges into node ``v`` are ``in_offsets[v]:in_offsets[v + 1]``."""
        return np.searchsorted(self.edges.head, np.arange(2 * len(self.events) + 1)).astype(
            np.int64
        )
