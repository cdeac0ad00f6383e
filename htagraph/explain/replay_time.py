"""Time inside and between replays of captured CUDA graphs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import States, states
from htagraph.lookup.clipping import device_work
from htagraph.lookup.graph_nodes import graph_nodes
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.window import Window

_DEVICE, _BUSY, _INSIDE = range(3)
"""Bits of a state: the device exists, work runs, a replay is in progress."""


class ReplayTime(NamedTuple):
    """Time of devices that replay graphs, in a window.

    Parameters
    ----------
    window_ns : int, unit=ns
        Duration of the window times the number of such devices.
    inside_ns : int, unit=ns
        From the first start to the last end of a replay's work.
    gap_ns : int, unit=ns
        Part of it in which nothing runs: gaps between nodes.
    idle_ns : int, unit=ns
        Time between replays in which nothing runs.
    late_ns : int, unit=ns
        Part of it before the host calls the launch that ends it.
    """

    n_replays: int = 0
    window_ns: int = 0
    inside_ns: int = 0
    gap_ns: int = 0
    idle_ns: int = 0
    late_ns: int = 0


def replay_time(dag: Dag, window: Window) -> ReplayTime:
    """Time inside and between replays in a window.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     us       |0         10        20        30        40
    ...     cpu 1    |[graph >a]               [graph >b]
    ...     stream 7 |     [k <a]  [m <a]           [k <b][m <b]
    ... '''))
    >>> found = replay_time(dag, dag.span)
    >>> found.inside_ns, found.gap_ns, found.idle_ns, found.late_ns
    (26000, 2000, 16000, 6000)
    """
    events, nodes = dag.events, graph_nodes(dag)
    work = device_work(dag, window)
    nodes = nodes.take(np.isin(nodes.event, work.event))
    if not len(nodes.event):
        return ReplayTime()
    device = events.device[nodes.event].astype(np.int64)
    devices = np.unique(device)
    work = work.take(np.isin(events.device[work.event], devices))
    spans = _spans(nodes.replay * len(devices) + np.searchsorted(devices, device))
    begin = np.minimum.reduceat(events.ts_ns[nodes.event][spans.order], spans.first)
    end = np.maximum.reduceat(events.end_ns[nodes.event][spans.order], spans.first)
    begin, end = np.maximum(begin, window.start_ns), np.minimum(end, window.end_ns)
    on = device[spans.order][spans.first]
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


class _Spans(NamedTuple):
    order: I64
    first: I64


def _spans(code: I64) -> _Spans:
    """Order of work by replay and device, and where each group starts."""
    order = np.argsort(code, kind="stable")
    return _Spans(order, np.flatnonzero(np.diff(code[order], prepend=-1)))


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
