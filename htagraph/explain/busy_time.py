"""Busy time without waits: how long devices and host must run, whatever waits for what.

It is a lower bound for every repair: without the wait, the window is still as long as the device
needs for its kernels, or the host for its operators.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.lookup.device_states import device_states, devices_of, runs
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, EventKind, KernelClass
from htagraph.model.rules import Rule
from htagraph.model.window import Window

__all__ = ["BusyTime", "busy_time"]

_MAY_WAIT = (
    CallMeaning.DEVICE_SYNC,
    CallMeaning.STREAM_SYNC,
    CallMeaning.EVENT_SYNC,
    CallMeaning.COPY,
    CallMeaning.FREE,
)


class BusyTime(NamedTuple):
    """Time that each resource is busy in a window.

    Parameters
    ----------
    compute_ns : int, unit=ns
        Compute kernels run, on the busiest device.
    device_ns : int, unit=ns
        The same with copies and fills, but without communication kernels, which may only wait.
    host_ns : int, unit=ns
        Operators and API calls run, on the busiest thread; without gaps, which may not be work, and
        without calls that may block.
    """

    compute_ns: int
    device_ns: int
    host_ns: int


def busy_time(dag: Dag, window: Window) -> BusyTime:
    """Busy time without waits of devices and host in a window.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     cpu 1    |[poll]  [launch >a]   [sync @*     ]
    ...     stream 7 |             [gemm <a           ]
    ... '''))
    >>> busy_time(dag, dag.span)
    BusyTime(compute_ns=20000, device_ns=20000, host_ns=17000)
    """
    found, devices = device_states(dag, window), devices_of(dag)
    compute = runs(found, KernelClass.COMPUTE)
    either = compute | runs(found, KernelClass.MEMORY)
    per_device = [
        max((int(found.dur[mask & (found.group == device)].sum()) for device in devices), default=0)
        for mask in (compute, either)
    ]
    return BusyTime(per_device[0], per_device[1], _host_ns(dag, window))


def _host_ns(dag: Dag, window: Window) -> int:
    """Time in which operators and API calls run without waiting, on the busiest thread."""
    edges, events, times = dag.edges, dag.events, dag.events.node_ts_ns
    waits = edges.rule == Rule.BLOCKING_CALL
    mine = np.flatnonzero((edges.kind == EdgeKind.THREAD) & ~waits & (edges.event >= 0))
    works = np.isin(events.kind, (EventKind.OP, EventKind.RUNTIME)) & ~np.isin(
        call_meanings(events), _MAY_WAIT
    )
    mine = mine[works[edges.event[mine]]]
    begin = np.maximum(times[edges.tail[mine]], window.start_ns)
    end = np.minimum(times[edges.head[mine]], window.end_ns)
    dur = np.clip(end - begin, 0, None)
    by_lane = np.bincount(
        events.lane[edges.event[mine]], weights=dur.astype(np.float64), minlength=1
    )
    return int(by_lane.max())
