"""Self time of host events."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.intervals import sum_by_code, union
from htagraph.errors import GraphError
from htagraph.lookup.clipping import Clipped
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind
from htagraph.model.window import Window

__all__ = ["self_time"]

I64 = npt.NDArray[np.int64]


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
    edges, times = dag.edges, dag.events.node_ts_ns
    rows = np.flatnonzero((edges.kind == EdgeKind.THREAD) & (edges.event >= 0))
    begin = np.maximum(times[edges.tail[rows]], window.start_ns)
    inside = np.maximum(np.minimum(times[edges.head[rows]], window.end_ns) - begin, 0)
    own = sum_by_code(edges.event[rows], inside, len(dag.events))
    on_thread = union(dag.events.lane[host.event].astype(np.int64), host.start_ns, host.end_ns)
    if int(own.sum()) != int((on_thread.end - on_thread.start).sum()):
        raise GraphError(
            f"the self times of host events in {window.name!r} do not add up to the time of the "
            "threads."
        )
    return own
