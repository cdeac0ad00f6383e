"""When a collective could have started, had its stream not been busy with another one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.lookup.anchors import first_anchor
from htagraph.model.dag import Dag

__all__ = ["Readiness", "readiness"]

I64 = npt.NDArray[np.int64]


class Readiness(NamedTuple):
    """Since when each of some collectives was ready, and what it waited for until then.

    Parameters
    ----------
    ready_ns : ndarray of shape (n,), dtype=int64, unit=ns
        On the rank's clock.
    ready_node : ndarray of shape (n,), dtype=int64
        Node whose time it is: the end of what the collective needs, or its launch; its own start
        where nothing but another collective comes before it.
    ready_after : ndarray of shape (n,), dtype=int64
        Position of the collective that the walk back from that node meets first, -1 for none.
    """

    ready_ns: I64
    ready_node: I64
    ready_after: I64


def readiness(dag: Dag, kernels: I64) -> Readiness:
    """Since when each collective of a rank was ready, whatever other collectives did.

    Collectives queue up on a stream of their own. One that waits for a late rank holds up the next,
    while computation goes on: when the next one starts says little of what its rank did until then.

    Parameters
    ----------
    dag : Dag
    kernels : ndarray of shape (n,), dtype=int64
        Kernels of collectives, or their ranges on the host.

    Returns
    -------
    Readiness
    """
    start = 2 * kernels
    is_start, is_end = np.zeros((2, 2 * len(dag.events)), dtype=bool)
    is_start[start], is_end[start + 1] = True, True
    edges = np.flatnonzero(is_start[dag.edges.head] & ~is_end[dag.edges.tail])
    edges = edges[np.argsort(dag.arrival_ns[edges], kind="stable")]
    released_by = np.arange(2 * len(dag.events))
    released_by[dag.edges.head[edges]] = dag.edges.tail[edges]  # of several, the last one stays
    node = released_by[start]
    place = np.full(len(dag.events), -1, dtype=np.int64)
    place[kernels] = np.arange(len(kernels))
    after = gather(place, first_anchor(dag, kernels)[node] >> 1)
    return Readiness(dag.events.node_ts_ns[node], node, after)
