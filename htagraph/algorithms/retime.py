"""Re-timing: when every node happens if edges took other times, or were not there.

The forward and the backward pass of the critical path method (Kelley and Walker, "Critical-path
planning and scheduling", 1959). The forward pass with other weights is a simulation of the run.

Nodes are numbered in a topological order, so that both passes go through memory in order. Edges
are sorted by head: those into ``v`` are ``offsets[v]:offsets[v + 1]``. The residual of a node is
part of the weights of its edges.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.native.passes import compiled

__all__ = ["DROPPED", "NO_DEADLINE", "latest_times", "retime", "retime_without"]

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

DROPPED = -(2**61)
"""Weight of an edge that is not there."""
NO_DEADLINE = 2**62
"""Deadline of a node that nothing waits for."""

_AS_NUMBERED = np.empty(0, dtype=np.int32)
_BLOCK = 16
"""Groups per pass: two cache lines of times a node."""


@compiled
def _retime(order: I32, offsets: I64, tail: I32, weight: I64, out: I64) -> None:
    """Raise ``out``, which holds releases, to the latest arrival, in order."""
    for at in range(len(out)):
        node = order[at] if len(order) > 0 else at
        latest = out[node]
        for edge in range(offsets[node], offsets[node + 1]):
            latest = max(latest, out[tail[edge]] + weight[edge])
        out[node] = latest


def retime(
    offsets: I64, tail: I32, weight_ns: I64, release_ns: I64, order: I32 = _AS_NUMBERED
) -> I64:
    """Time of every node: its latest arrival, but not before its release.

    Parameters
    ----------
    offsets : ndarray of shape (n + 1,), dtype=int64
    tail : ndarray of shape (m,), dtype=int32
        Sorted by head.
    weight_ns : ndarray of shape (m,), dtype=int64, unit=ns
        `DROPPED` for an edge that is not there.
    release_ns : ndarray of shape (n,), dtype=int64, unit=ns
    order : ndarray of shape (n,), dtype=int32, optional
        A topological order; by default that of the numbers of nodes.

    Examples
    --------
    >>> tail, releases = np.array([0], np.int32), np.array([100, 0])
    >>> retime(np.array([0, 0, 1]), tail, np.array([7]), releases).tolist()
    [100, 107]
    """
    out = release_ns.copy()
    _retime(order, offsets, tail, weight_ns, out)
    return out


@compiled
def _retime_without(
    offsets: I64, tail: I32, weight: I64, without: I64, group: I32, first: int, out: I64
) -> None:
    """As `_retime`, in columns: in column ``c``, edges of group ``first + c`` weigh ``without``."""
    n_columns = out.shape[1]
    for node in range(len(out)):
        for edge in range(offsets[node], offsets[node + 1]):
            before, by = tail[edge], weight[edge]
            one, two = group[edge, 0] - first, group[edge, 1] - first
            with_one, with_two = 0 <= one < n_columns, 0 <= two < n_columns
            kept_one = out[node, one] if with_one else 0
            kept_two = out[node, two] if with_two else 0
            for column in range(n_columns):
                out[node, column] = max(out[node, column], out[before, column] + by)
            if with_one:
                out[node, one] = max(kept_one, out[before, one] + without[edge, 0])
            if with_two:
                out[node, two] = max(kept_two, out[before, two] + without[edge, 1])


def retime_without(
    graph: tuple[I64, I32, I64, I64], without_ns: I64, group: I32, n_groups: int, ends: list[I64]
) -> I64:
    """Last time of some sets of nodes, if the edges of one group after the other weighed less.

    Parameters
    ----------
    graph : tuple
        ``offsets, tail, weight_ns, release_ns``, as for `retime`.
    without_ns : ndarray of shape (m, 2), dtype=int64, unit=ns
        Weight of each edge where the one or the other of its groups is left out.
    group : ndarray of shape (m, 2), dtype=int32
        Groups of each edge, which differ; -1 for none.
    ends : list of ndarray, dtype=int64
        Positions of each set; an empty one is at the first release.

    Returns
    -------
    ndarray of shape (n_groups, len(ends)), dtype=int64, unit=ns

    Notes
    -----
    About 1 ns an edge and group, and 128 bytes a node.

    Examples
    --------
    >>> offsets, tail = np.array([0, 0, 1, 2]), np.array([0, 1], np.int32)
    >>> graph = (offsets, tail, np.array([7, 5]), np.array([100, 0, 0]))
    >>> without, group = np.array([[0, 3], [0, 0]]), np.array([[0, 2], [1, -1]], np.int32)
    >>> retime_without(graph, without, group, 3, [np.array([2])]).tolist()
    [[105], [107], [108]]
    """
    offsets, tail, weight_ns, release_ns = graph
    found = np.empty((n_groups, len(ends)), dtype=np.int64)
    for first in range(0, n_groups, _BLOCK):
        n_columns = min(_BLOCK, n_groups - first)
        out = np.repeat(release_ns[:, None], n_columns, axis=1)
        _retime_without(offsets, tail, weight_ns, without_ns, group, first, out)
        for place, nodes in enumerate(ends):
            last = out[nodes].max(axis=0) if len(nodes) else release_ns.min()
            found[first : first + n_columns, place] = last
    return found


@compiled
def _latest_times(offsets: I64, tail: I32, weight: I64, out: I64) -> None:
    """Lower ``out`` of every tail to what its heads allow, in reverse order."""
    for node in range(len(out) - 1, -1, -1):
        for edge in range(offsets[node], offsets[node + 1]):
            out[tail[edge]] = min(out[tail[edge]], out[node] - weight[edge])


def latest_times(offsets: I64, tail: I32, weight_ns: I64, deadline_ns: I64) -> I64:
    """Latest time of every node that moves no node past its deadline.

    The total float of a node is this minus its time (Kelley and Walker, 1959).

    Parameters
    ----------
    offsets, tail, weight_ns
        As for `retime`.
    deadline_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Usually the end of the window for what has to be done by then, else `NO_DEADLINE`: then
        the result, too, is beyond every time (more than half of `NO_DEADLINE`).

    Examples
    --------
    >>> tail, deadlines = np.array([0], np.int32), np.array([110, 110])
    >>> latest_times(np.array([0, 0, 1]), tail, np.array([7]), deadlines).tolist()
    [103, 110]
    """
    out = deadline_ns.copy()
    _latest_times(offsets, tail, weight_ns, out)
    return out
