"""Self time of host events."""

from __future__ import annotations

import numpy as np

from htagraph.algorithms.intervals import union
from htagraph.errors import GraphError
from htagraph.lookup.clipping import Clipped
from htagraph.model.arrays import I8, I32, I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind
from htagraph.model.window import Window
from htagraph.native.passes import compiled

_THREAD = int(EdgeKind.THREAD)
_ALL = -(2**62), 2**62
"""Bounds, in ns, that no event reaches."""


def self_time(dag: Dag, window: Window, host: Clipped) -> I64:
    """Self time of each event in the window: time as the innermost event of its thread.

    Edges tile each thread, and each edge knows its innermost event.

    Parameters
    ----------
    host : Clipped
        All host events of the window.

    Returns
    -------
    ndarray of shape (n_events,), dtype=int64, unit=ns

    Raises
    ------
    GraphError
        If the times do not add up to the time of the threads: a bug in htagraph.
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
