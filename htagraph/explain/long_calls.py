"""API calls that take milliseconds: one-time setup, and launches that the busy device blocks.

One-time setup creates a context or loads code: it is the first call of its sort, and the device
may be idle meanwhile. A launch that takes as long while the device runs earlier work
waits for it: for room in the launch queue, or for an unrecorded reason.
"""

from __future__ import annotations

import re

import numpy as np

from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import Cover, union
from htagraph.arrays.matching import group_starts
from htagraph.compiler.launches import FULL_QUEUE
from htagraph.lookup.attribution import innermost
from htagraph.model.api_calls import OS_CALLS, WAITING_CALLS, call_meanings
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind

_LONG_NS = 5_000_000
"""Shorter calls are not examined. Chosen: loading a CUDA module takes tens of ms, a launch 5 us.
Pinned by tests/explain/test_attributed_time.py."""

_BUSY_SHARE = 0.9
"""Least share of a call in which the device runs if the device blocks the call. Chosen below 1, as
gaps between kernels remain. Pinned by tests/explain/test_attributed_time.py."""

_SETUP_FACTOR = 2
"""A first call is one-time setup if it takes longer than this many times the median of later ones.
Pinned by tests/explain/test_attributed_time.py."""

_LOADS = re.compile(r"^(cuda|hip|cu)(Module|Library|Kernel|Func|GetFunc)(Load|Get|Set|By)")
"""Calls that may load different code each time."""

_NEVER = np.iinfo(np.int64).max


def long_calls(dag: Dag) -> tuple[Bools, Bools, Bools]:
    """Long API calls: one-time setup, launches into a full queue, and launches that waited.

    At most one is true for a call; none if the reason is unknown. Each of shape (n_events,).
    """
    events = dag.events
    is_long = (events.kind == EventKind.RUNTIME) & (events.dur_ns > _LONG_NS)
    is_long &= events.category != events.symbols.code(OS_CALLS)
    calls = np.flatnonzero(is_long & ~np.isin(call_meanings(events), WAITING_CALLS))
    if not len(calls):
        none = np.zeros(len(events), dtype=bool)
        return none, none, none
    first_work = _first_work(dag)
    begins = events.ts_ns[calls]
    # Once its own work has started, a call no longer waits to enqueue it.
    own = gather(events.ts_ns, first_work[calls], _NEVER)
    until = np.maximum(np.minimum(events.end_ns[calls], own), begins)
    device = np.flatnonzero(events.is_device)
    busy = union(np.zeros(len(device), dtype=np.int64), events.ts_ns[device], events.end_ns[device])
    busy_ns = Cover(busy.start, busy.end).within(begins, until)
    is_held_up = (until > begins) & (busy_ns >= _BUSY_SHARE * (until - begins))
    is_launch = first_work[calls] >= 0
    is_full = _outstanding(dag, begins) >= FULL_QUEUE

    def of_events(found: Bools) -> Bools:
        out = np.zeros(len(events), dtype=bool)
        out[calls[found]] = True
        return out

    return (
        of_events(~is_held_up & _is_first(dag, calls, first_work)),
        of_events(is_held_up & is_launch & is_full),
        of_events(is_held_up & is_launch & ~is_full),
    )


def _first_work(dag: Dag) -> I64:
    """First device work of each launch, -1 elsewhere; shape (n_events,)."""
    out = np.full(len(dag.events), -1, dtype=np.int64)
    work = np.flatnonzero(dag.launch >= 0)
    latest_first = work[np.argsort(dag.events.ts_ns[work], kind="stable")][::-1]
    out[dag.launch[latest_first]] = latest_first
    return out


def _outstanding(dag: Dag, time_ns: I64) -> I64:
    """Number of kernels enqueued before each time, or before the profile, and not yet started."""
    events = dag.events
    work = np.flatnonzero(events.is_device)
    enqueued = np.sort(gather(events.ts_ns, dag.launch[work], np.iinfo(np.int64).min))
    begun = np.sort(events.ts_ns[work])
    return np.searchsorted(enqueued, time_ns) - np.searchsorted(begun, time_ns, side="right")


def _is_first(dag: Dag, calls: I64, first_work: I64) -> Bools:
    """Whether each call is the first of its sort, or may load different code each time.

    Launches are of one sort if their first kernels have the same name; other calls, if they and the
    operators around them have the same names. A first call about as long as later ones is no
    one-time setup: whatever made it long happens again.
    """
    events = dag.events
    alike = np.flatnonzero(
        (events.kind == EventKind.RUNTIME) & np.isin(events.name, np.unique(events.name[calls]))
    )
    work = gather(events.name, first_work[alike])
    other = np.where(work >= 0, -1, alike)
    op = gather(events.name, innermost(dag, other, (EventKind.OP, EventKind.ANNOTATION)))
    sort = (op, gather(events.name, other), work)
    in_time = np.lexsort((events.ts_ns[alike], *sort))
    begins = np.flatnonzero(group_starts(*(key[in_time] for key in sort)))
    first = alike[in_time[begins]]
    later_ns = events.dur_ns[alike].copy()
    later_ns[in_time[begins]] = -1
    by_length = np.lexsort((later_ns, *sort))
    n = np.diff(np.append(begins, len(alike)))
    usual_ns = later_ns[by_length[begins + n // 2]]
    is_first = np.zeros(len(events), dtype=bool)
    is_first[first] = events.dur_ns[first] > _SETUP_FACTOR * usual_ns
    loads = events.named(events.symbols.searched(_LOADS))
    return is_first[calls] | loads[calls]
