"""Nearly critical chains: where they leave a more critical one, and where they join it.

::

    more critical    ====A==========================B====>
    chain                [ c1 ][   c2   ][ c3 ]- - -        could be over later by its float

All nodes of a chain have the same float. The chain begins with its tail on the more critical
chain, and ends when it arrives at its head there; the time left until that head happens is float.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.algorithms.binding import bind
from htagraph.algorithms.chains import chains
from htagraph.algorithms.gather import gather
from htagraph.errors import GraphError
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.window import Window
from htagraph.replay.replay import Replay


class NearChains(NamedTuple):
    """Chains by float, then longest first, and the edges of each.

    Parameters
    ----------
    start_ns, end_ns, float_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Cut at the start of the window.
    leaves, joins : ndarray of shape (n,), dtype=int64
        Node that a chain comes from, and node that it leads to; -1 for none.
    chain : ndarray of shape (k,), dtype=int64
        Chain of each part, sorted by chain and time.
    edge : ndarray of shape (k,), dtype=int64
        Edge of the replay whose time a part is.
    begin_ns, until_ns : ndarray of shape (k,), dtype=int64, unit=ns
        The parts of a chain tile it.
    """

    start_ns: I64
    end_ns: I64
    float_ns: I64
    leaves: I64
    joins: I64
    chain: I64
    edge: I64
    begin_ns: I64
    until_ns: I64


def near_chains(
    dag: Dag, replay: Replay, window: Window, *, within_ns: int, least_ns: int, top: int
) -> NearChains:
    """The first chains of a window with float up to ``within_ns`` and length from ``least_ns``.

    Raises
    ------
    GraphError
        If the parts of a chain do not add up to it: a bug in htagraph.
    """
    ts_ns, weight = replay.ts_ns, replay.weight_ns
    latest_ns = replay.latest_ns(replay.bounds(window).until)
    float_ns = latest_ns - ts_ns
    tiebreak = dag.events.tiebreak[replay.node >> 1]
    binding = bind(replay.tail, replay.head, replay.kind, weight, ts_ns, tiebreak)
    onward = bind(replay.head, replay.tail, replay.kind, weight, -latest_ns, tiebreak)
    next_ns = gather(latest_ns, gather(replay.head, onward, 0)) - gather(weight, onward, 0)
    onward = np.where(latest_ns == next_ns, onward, -1)
    is_near = (float_ns > 0) & (float_ns <= within_ns)
    is_near &= (ts_ns > window.start_ns) & (ts_ns <= window.end_ns)
    found = chains(float_ns, is_near, binding, replay.tail)

    entry, leave = binding[found.first], onward[found.last]
    from_node = gather(replay.tail, entry).astype(np.int64)
    to_node = gather(replay.head, leave).astype(np.int64)
    start_ns = np.maximum(
        np.where(entry >= 0, gather(ts_ns, from_node, 0), ts_ns[found.first]), window.start_ns
    )
    end_ns = ts_ns[found.last] + gather(weight, leave, 0)
    dur_ns = end_ns - start_ns
    row = np.flatnonzero((dur_ns >= least_ns) & (dur_ns > 0))
    row = row[np.lexsort((start_ns[row], -dur_ns[row], float_ns[found.last[row]]))][:top]

    rank = np.full(len(found.first), -1, dtype=np.int64)
    rank[row] = np.arange(len(row))
    nodes = np.flatnonzero(gather(rank, found.chain) >= 0)
    nodes = nodes[binding[nodes] >= 0]
    closing = np.flatnonzero(leave[row] >= 0)
    chain = np.concatenate([rank[found.chain[nodes]], closing])
    edge = np.concatenate([binding[nodes], leave[row[closing]]]).astype(np.int64)
    begin = np.maximum(ts_ns[replay.tail[edge]], window.start_ns)
    until = ts_ns[replay.tail[edge]] + weight[edge]
    order = np.lexsort((until, begin, chain))
    order = order[(until > begin)[order]]
    parts_ns = np.zeros(len(row), dtype=np.int64)
    np.add.at(parts_ns, chain[order], (until - begin)[order])
    if parts_ns.tolist() != dur_ns[row].tolist():
        raise GraphError("the parts of a chain do not add up to its length.")
    return NearChains(
        start_ns=start_ns[row],
        end_ns=end_ns[row],
        float_ns=float_ns[found.last[row]],
        leaves=gather(replay.node, from_node[row]),
        joins=gather(replay.node, to_node[row]),
        chain=chain[order],
        edge=edge[order],
        begin_ns=begin[order],
        until_ns=until[order],
    )
