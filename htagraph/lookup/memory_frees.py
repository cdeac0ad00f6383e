"""Calls that free device memory inside operators, and why: a caching allocator ran out, or not.

An allocator that is out of memory frees what it keeps and allocates again, in the operator that
asked for memory::

    thread 1   [aten::cat [cudaMalloc] [cudaFree][cudaFree][cudaMalloc]   [cudaLaunchKernel]]

The call that failed may be missing: at a limit that the program set, none is made. Libraries free
inside operators, too: when they are set up, and cuDNN after it has tried several kernels. So
several frees count, with an allocation right after them, in an operator that has enqueued nothing
yet.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from htagraph.arrays.codes import gather
from htagraph.lookup.attribution import frames_at, innermost
from htagraph.lookup.steps import last_begun, step_events
from htagraph.lookup.windowed import clipped
from htagraph.model.api_calls import ALLOCATION, ALLOCATOR_WALK_NS, KERNEL_LAUNCH
from htagraph.model.arrays import Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window

_FREES = re.compile(r"^(cuda|hip)Free(_v\d+)?$|^cuMem(Free(_v\d+)?|Unmap)$")
"""Calls that give device memory back, and wait for the device."""
_EMPTIES = re.compile(r"\bempty_cache\b")
"""Functions that free at the program's request."""


class FreesWithin(NamedTuple):
    """Frees inside one operator of a step."""

    # op, step: names of the innermost operator and of the step; the latter may be empty
    op: str
    step: str
    ran_out: bool  # The allocator was out of memory


def frees_within_operators(dag: Dag, window: Window) -> frozenset[FreesWithin]:
    """Frees of a window inside operators, but for what a program asks for with ``empty_cache``."""
    events = dag.events
    is_call = events.kind == EventKind.RUNTIME
    frees = is_call & events.searched(_FREES)
    if not frees.any():
        return frozenset()
    ran_out = _ran_out(dag, is_call, frees)
    free = clipped(dag, np.flatnonzero(frees), window).event
    within = innermost(dag, free, (EventKind.OP,))
    free, within = free[within >= 0], within[within >= 0]
    asks = frames_at(dag, events.lane[free], events.ts_ns[free], _EMPTIES)
    is_asked = gather(events.ts_ns, asks, -1) >= events.ts_ns[within]
    free, within = free[~is_asked], within[~is_asked]
    steps, _ = step_events(events)
    step = last_begun(events.ts_ns[steps], events.end_ns[steps], events.ts_ns[free])
    names = [str(name) for name in events.names(steps)] + [""]
    found = zip(events.names(within).tolist(), step.tolist(), ran_out[free].tolist(), strict=True)
    return frozenset(FreesWithin(op, names[at], out) for op, at, out in found)


def _ran_out(dag: Dag, is_call: Bools, frees: Bools) -> Bools:
    """Whether each event frees for an allocator that is out of memory."""
    events = dag.events
    works = events.searched(KERNEL_LAUNCH)
    works[dag.launch[dag.launch >= 0]] = True
    allocates = events.searched(ALLOCATION) & ~frees
    calls = np.flatnonzero(is_call & (frees | allocates | works))
    calls = calls[np.lexsort((events.ts_ns[calls], events.lane[calls]))]
    lane, parent = events.lane[calls], dag.parent[calls].astype(np.int64)
    at_once = np.zeros(len(calls), dtype=bool)
    at_once[1:] = (lane[1:] == lane[:-1]) & (parent[1:] == parent[:-1])
    at_once[1:] &= events.ts_ns[calls[1:]] - events.end_ns[calls[:-1]] <= ALLOCATOR_WALK_NS
    is_free = frees[calls]
    begins = is_free & ~(at_once & np.append(False, is_free[:-1]))
    run, first = np.cumsum(begins) - 1, np.flatnonzero(begins)
    n = np.bincount(run[is_free])
    worked = np.maximum.accumulate(np.where(works[calls], np.arange(len(calls)), -1))[first]
    is_of_another = gather(lane, worked) != lane[first]
    is_earlier = gather(events.ts_ns[calls], worked, 0) < gather(events.ts_ns, parent[first], 0)
    again = np.append(at_once & allocates[calls], False)[first + n]
    ran_out = (n > 1) & again & (is_of_another | is_earlier)
    out = np.zeros(len(events), dtype=bool)
    out[calls[is_free]] = ran_out[run[is_free]]
    return out
