"""Events cut at the bounds of a window."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.window import Window


class Clipped(NamedTuple):
    """Events and the part of each that is in a window."""

    event: I64
    start_ns: I64
    end_ns: I64

    @property
    def dur_ns(self) -> I64:
        """Time of each event in the window."""
        return self.end_ns - self.start_ns

    def take(self, rows: npt.NDArray[np.integer] | Bools) -> Clipped:
        """Some rows (positions or a mask)."""
        return Clipped(self.event[rows], self.start_ns[rows], self.end_ns[rows])


def clipped(dag: Dag, events: I64, window: Window) -> Clipped:
    """Events that overlap a window, cut at its bounds; empty ones, if they begin in it."""
    start, end = dag.events.ts_ns[events], dag.events.end_ns[events]
    inside = (start < window.end_ns) & ((end > window.start_ns) | (start >= window.start_ns))
    if not inside.all():
        events, start, end = events[inside], start[inside], end[inside]
    return Clipped(events, np.maximum(start, window.start_ns), np.minimum(end, window.end_ns))


def device_work(dag: Dag, window: Window) -> Clipped:
    """Kernels, copies and fills that overlap a window, cut at its bounds."""
    return clipped(dag, np.flatnonzero(dag.events.is_device), window)


def host_work(dag: Dag, window: Window) -> Clipped:
    """Operators, calls and annotations that overlap a window, cut at its bounds."""
    return clipped(dag, np.flatnonzero(dag.events.is_host), window)
