"""When collectives could have started, and which one a node follows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.algorithms.walks import origins
from htagraph.model.arrays import I32, I64
from htagraph.model.dag import Dag

_EVER = np.iinfo(np.int64).min


class Readiness(NamedTuple):
    """Since when each collective was ready, and what it waited for until then.

    Parameters
    ----------
    ready_ns : ndarray of shape (n,), dtype=int64, unit=ns
        On the rank's clock.
    ready_node : ndarray of shape (n,), dtype=int64
        Node at that time: the end of what the collective or one before it needs, or a launch; its
        own start where nothing else is recorded.
    ready_after : ndarray of shape (n,), dtype=int64
        Position of the collective that `first_anchor` finds for that node, -1 for none.
    """

    ready_ns: I64
    ready_node: I64
    ready_after: I64


def first_anchor(dag: Dag, kernels: I64) -> I32:
    """End of the collective that the walk back from each node meets first, -1 for none.

    The walk follows binding edges; an end meets itself. What happens after the end of a collective
    depends on its rank alone, so a job's path is cut at these ends.
    """
    is_anchor = np.zeros(2 * len(dag.events), dtype=bool)
    is_anchor[2 * kernels + 1] = True
    return origins(dag.order, dag.binding, dag.edges.tail, is_anchor)


def readiness(dag: Dag, kernels: I64) -> Readiness:
    """Since when each collective of a rank was ready, whatever other collectives did.

    Collectives queue up on a stream of their own. One that waits for a late rank delays the next,
    while compute continues: the start of the next says little about its own rank.

    Parameters
    ----------
    kernels : ndarray of shape (n,), dtype=int64
        Kernels of collectives, or their ranges on the host.
    """
    place = np.full(len(dag.events), -1, dtype=np.int64)
    place[kernels] = np.arange(len(kernels))
    edges = dag.edges
    into = np.flatnonzero((edges.head % 2 == 0) & (place[edges.head >> 1] >= 0))
    into = into[np.argsort(dag.arrival_ns[into], kind="stable")]
    behind = (edges.tail[into] % 2 == 1) & (place[edges.tail[into] >> 1] >= 0)
    held_up, needed = into[behind], into[~behind]
    before = np.full(len(kernels), -1, dtype=np.int64)
    before[place[edges.head[held_up] >> 1]] = place[edges.tail[held_up] >> 1]
    node = np.full(len(kernels), -1, dtype=np.int64)
    node[place[edges.head[needed] >> 1]] = edges.tail[needed]  # of several, the latest one stays
    times = dag.events.node_ts_ns
    while (rows := np.flatnonzero(before >= 0)).size:  # twice as far each time
        ahead = node[before[rows]]
        is_later = gather(times, ahead, _EVER) > gather(times, node[rows], _EVER)
        node[rows] = np.where(is_later, ahead, node[rows])
        before[rows] = before[before[rows]]
    node = np.where(node >= 0, node, 2 * kernels)
    after = gather(place, first_anchor(dag, kernels)[node] >> 1)
    return Readiness(times[node], node, after)
