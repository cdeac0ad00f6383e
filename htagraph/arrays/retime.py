"""Re-timing: when every node happens if edges took other times, or were not there.

The forward and the backward pass of the critical path method (Kelley and Walker, "Critical-path
planning and scheduling", 1959). The forward pass with other weights is a simulation of the run.

Nodes are numbered in a topological order, so that both passes go through memory in order. Edges
are sorted by head: those into ``v`` are ``offsets[v]:offsets[v + 1]``. The residual of a node is
part of the weights of its edges.
"""

from __future__ import annotations

import numpy as np

from htagraph.arrays.passes import compiled
from htagraph.model.arrays import I32, I64

DROPPED = -(2**61)
"""Weight of an edge that is not there."""
NO_DEADLINE = 2**62
"""Deadline of a node that nothing waits for."""

_AS_NUMBERED = np.empty(0, dtype=np.int32)
_NOTHING = np.empty(0, dtype=np.int64)


@compiled
def _retime(
    order: I32, edges: tuple[I64, I32], weights: tuple[I64, I64], release: I64, out: I64
) -> None:
    """Fill the latest arrival at each node, or its release if that is later, in order."""
    offsets, tail = edges
    weight, extra = weights
    for at in range(len(out)):
        node = order[at] if len(order) > 0 else at
        latest = release[node]
        for edge in range(offsets[node], offsets[node + 1]):
            takes = weight[edge]
            if len(extra) > 0 and takes != DROPPED:
                takes += extra[edge]
            latest = max(latest, out[tail[edge]] + takes)
        out[node] = latest


def retime(
    offsets: I64,
    tail: I32,
    weight_ns: I64,
    release_ns: I64,
    order: I32 = _AS_NUMBERED,
    *,
    extra_ns: I64 = _NOTHING,
) -> I64:
    """Time of every node: its latest arrival, but not before its release.

    `offsets` of shape (n + 1,). `tail` of shape (m,): sorted by head. `weight_ns` of shape (m,):
    `DROPPED` for an edge that is not there. `order`: a topological order; by default that of the
    numbers of nodes. `extra_ns` of shape (m,): added to the weights of edges that are there.
    """
    out = np.empty_like(release_ns)
    _retime(order, (offsets, tail), (weight_ns, extra_ns), release_ns, out)
    return out


@compiled
def _residuals(
    offsets: I64, tail: I32, lag: I64, release: I64, ts: I64, only_bound: bool, out: I64
) -> None:
    """Fill how much later the head of each edge happened than its latest arrival."""
    for node in range(len(ts)):
        latest = release[node]
        for edge in range(offsets[node], offsets[node + 1]):
            latest = max(latest, ts[tail[edge]] + lag[edge])
        for edge in range(offsets[node], offsets[node + 1]):
            if not only_bound or ts[tail[edge]] + lag[edge] == latest:
                out[edge] = ts[node] - latest


def residuals(
    offsets: I64, tail: I32, lag_ns: I64, release_ns: I64, ts_ns: I64, *, only_bound: bool = False
) -> I64:
    """Residual of the head of each edge: how much later it happened than its latest arrival.

    `ts_ns`: when each node happened. `only_bound`: 0 for edges that did not arrive last.
    """
    out = np.zeros(len(tail), dtype=np.int64)
    _residuals(offsets, tail, lag_ns, release_ns, ts_ns, only_bound, out)
    return out


@compiled
def _latest_times(offsets: I64, tail: I32, weight: I64, out: I64) -> None:
    """Lower ``out`` of every tail to what its heads allow, in reverse order."""
    for node in range(len(out) - 1, -1, -1):
        for edge in range(offsets[node], offsets[node + 1]):
            out[tail[edge]] = min(out[tail[edge]], out[node] - weight[edge])


def latest_times(offsets: I64, tail: I32, weight_ns: I64, deadline_ns: I64) -> I64:
    """Latest time of every node that moves no node past its deadline.

    The total float of a node is this minus its time (Kelley and Walker, 1959). `offsets`, `tail`,
    `weight_ns`: as for `retime`. `deadline_ns`: usually the end of the window for what has to be
    done by then, else `NO_DEADLINE`: then the result, too, is beyond every time (more than half of
    `NO_DEADLINE`).
    """
    out = deadline_ns.copy()
    _latest_times(offsets, tail, weight_ns, out)
    return out
