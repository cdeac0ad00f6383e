"""Re-timing: when every node happens if lags, residuals or edges were other than measured.

The forward and the backward pass of the critical path method (Kelley and Walker, 1959). The
forward pass with other lags is a simulation of the run: residuals, which no edge explains, stay as
measured.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.jit import compiled

__all__ = ["latest_times", "retime"]

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


@compiled
def _retime(
    order: I32, offsets: I64, tail: I32, lag: I64, residual: I64, release: I64, out: I64
) -> None:
    """Fill ``out[v] = max(arrivals) + residual[v]`` in topological order.

    Where no edge leads, `release`.
    """
    for node in order:
        first, last = offsets[node], offsets[node + 1]
        if first == last:
            out[node] = release[node]
            continue
        latest = out[tail[first]] + lag[first]
        for edge in range(first + 1, last):
            latest = max(latest, out[tail[edge]] + lag[edge])
        out[node] = latest + residual[node]


def retime(order: I32, offsets: I64, tail: I32, lag: I64, residual: I64, release: I64) -> I64:
    """Time of every node: its latest arrival plus its residual.

    Parameters
    ----------
    order : ndarray of shape (k,), dtype=int32
        Nodes in topological order.
    offsets : ndarray of shape (n_nodes + 1,), dtype=int64
        Edges into node ``v`` are ``offsets[v]:offsets[v + 1]``.
    tail : ndarray of shape (n_edges,), dtype=int32
        Sorted by head.
    lag : ndarray of shape (n_edges,), dtype=int64, unit=ns
    residual, release : ndarray of shape (n_nodes,), dtype=int64, unit=ns
        `release` is the time of nodes without edges, and of nodes that are not in `order`.

    Returns
    -------
    ndarray of shape (n_nodes,), dtype=int64, unit=ns

    Notes
    -----
    With the lags and residuals of the measured graph it gives back every timestamp, exactly.

    Examples
    --------
    >>> retime(
    ...     np.array([0, 1], np.int32), np.array([0, 0, 1]), np.array([0], np.int32),
    ...     np.array([5]), np.array([0, 2]), np.array([100, 0]),
    ... ).tolist()
    [100, 107]
    """
    out = release.copy()
    _retime(order, offsets, tail, lag, residual, release, out)
    return out


@compiled
def _latest_times(order: I32, offsets: I64, tail: I32, lag: I64, residual: I64, out: I64) -> None:
    """Lower ``out`` of every tail to what its heads allow, in reverse topological order."""
    for position in range(len(order) - 1, -1, -1):
        node = order[position]
        for edge in range(offsets[node], offsets[node + 1]):
            allowed = out[node] - residual[node] - lag[edge]
            out[tail[edge]] = min(out[tail[edge]], allowed)


def latest_times(
    order: I32, offsets: I64, tail: I32, lag: I64, residual: I64, deadline: I64
) -> I64:
    """Latest time of every node that moves no node past its deadline.

    The total float of a node is this minus its time (Kelley and Walker, 1959).

    Parameters
    ----------
    order, offsets, tail, lag, residual
        As for `retime`.
    deadline : ndarray of shape (n_nodes,), dtype=int64, unit=ns
        Usually the end of the window for every node.

    Examples
    --------
    >>> latest_times(
    ...     np.array([0, 1], np.int32), np.array([0, 0, 1]), np.array([0], np.int32),
    ...     np.array([5]), np.array([0, 2]), np.array([110, 110]),
    ... ).tolist()
    [103, 110]
    """
    out = deadline.copy()
    _latest_times(order, offsets, tail, lag, residual, out)
    return out
