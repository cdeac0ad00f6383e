"""Self time of host events; time inside and between replays of captured CUDA graphs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.arrays.codes import gather, take
from htagraph.arrays.intervals import States, states, union
from htagraph.arrays.passes import compiled
from htagraph.errors import GraphError
from htagraph.lookup.programs import graph_nodes
from htagraph.lookup.windowed import Clipped, device_work
from htagraph.model.arrays import I8, I32, I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind
from htagraph.model.window import Window

_THREAD = int(EdgeKind.THREAD)
_ALL = -(2**62), 2**62
"""Bounds, in ns, that no event reaches."""


def self_time(dag: Dag, window: Window, host: Clipped) -> I64:
    """Self time of each host event in the window: time as the innermost event of its thread.

    Edges tile each thread, and each edge knows its innermost event.
    """
    own = time_innermost(dag, window)
    on_thread = union(dag.events.lane[host.event].astype(np.int64), host.start_ns, host.end_ns)
    if int(own.sum()) != int((on_thread.end - on_thread.start).sum()):
        raise GraphError(
            f"the self times of host events in {window.name!r} do not add up to the time of the "
            "threads."
        )
    return own


def time_innermost(dag: Dag, window: Window | None = None) -> I64:
    """Time in a window, or at all, of each event as the innermost of its thread, in ns."""
    edges, own = dag.edges, np.zeros(len(dag.events), dtype=np.int64)
    bounds = (window.start_ns, window.end_ns) if window else _ALL
    columns = edges.kind, edges.event, edges.tail, edges.head
    _sum_innermost(columns, dag.events.node_ts_ns, bounds, own)
    return own


@compiled
def _sum_innermost(
    of_edge: tuple[I8, I32, I32, I32], ts_ns: I64, bounds: tuple[int, int], out: I64
) -> None:
    """Add the time of each edge along a thread, within bounds, to its event."""
    kind, event, tail, head = of_edge
    for edge in range(len(kind)):
        if kind[edge] == _THREAD and event[edge] >= 0:
            begin = max(ts_ns[tail[edge]], bounds[0])
            out[event[edge]] += max(min(ts_ns[head[edge]], bounds[1]) - begin, 0)


_DEVICE, _BUSY, _INSIDE = range(3)
"""Bits of a state: the device exists, work runs, a replay is in progress."""


class ReplayTime(NamedTuple):
    """Time of devices that replay graphs, in a window."""

    n_replays: int = 0
    window_ns: int = 0  # Duration of the window times the number of such devices
    inside_ns: int = 0  # From the first start to the last end of a replay's work
    gap_ns: int = 0  # Part of it in which nothing runs: gaps between nodes
    idle_ns: int = 0  # Time between replays in which nothing runs
    late_ns: int = 0  # Part of it before the host calls the launch that ends it


def replay_time(dag: Dag, window: Window) -> ReplayTime:
    """Time inside and between replays in a window."""
    events, nodes = dag.events, graph_nodes(dag)
    work = device_work(dag, window)
    nodes = take(nodes, np.isin(nodes.event, work.event))
    if not len(nodes.event):
        return ReplayTime()
    device = events.device[nodes.event].astype(np.int64)
    devices = np.unique(device)
    work = work.take(np.isin(events.device[work.event], devices))
    code = nodes.replay * len(devices) + np.searchsorted(devices, device)
    order = np.argsort(code, kind="stable")
    first = np.flatnonzero(np.diff(code[order], prepend=-1))
    begin = np.minimum.reduceat(events.ts_ns[nodes.event][order], first)
    end = np.maximum.reduceat(events.end_ns[nodes.event][order], first)
    begin, end = np.maximum(begin, window.start_ns), np.minimum(end, window.end_ns)
    on = device[order][first]
    n = len(devices)
    found = states(
        np.concatenate([devices, events.device[work.event].astype(np.int64), on]),
        np.concatenate([np.full(n, window.start_ns), work.start_ns, begin]),
        np.concatenate([np.full(n, window.end_ns), work.end_ns, end]),
        np.repeat([_DEVICE, _BUSY, _INSIDE], [n, len(work.event), len(on)]),
        n_bits=3,
    )
    is_busy, is_inside = (found.mask >> _BUSY & 1 == 1), (found.mask >> _INSIDE & 1 == 1)
    idle = States(*(column[~is_busy & ~is_inside] for column in found))
    return ReplayTime(
        n_replays=len(np.unique(nodes.replay)),
        window_ns=n * window.dur_ns,
        inside_ns=int(found.dur[is_inside].sum()),
        gap_ns=int(found.dur[is_inside & ~is_busy].sum()),
        idle_ns=int(idle.dur.sum()),
        late_ns=int(_late_ns(dag, idle).sum()),
    )


def _late_ns(dag: Dag, idle: States) -> I64:
    """Part of each idle interval before the launch call that ends it."""
    events = dag.events
    device = np.flatnonzero(events.is_device)
    device = device[np.lexsort((events.ts_ns[device], events.device[device]))]
    late = np.zeros(len(idle.start), dtype=np.int64)
    for one in np.unique(idle.group).tolist():
        mine, work = np.flatnonzero(idle.group == one), device[events.device[device] == one]
        after = np.searchsorted(events.ts_ns[work], idle.end[mine])
        ends = gather(work, np.where(after < len(work), after, -1))
        call = gather(dag.launch.astype(np.int64), ends)
        called = gather(events.ts_ns, call, 0)
        known = np.clip(called - idle.start[mine], 0, idle.dur[mine])
        late[mine] = np.where(call >= 0, known, 0)
    return late
