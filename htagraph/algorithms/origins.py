"""Where walks along binding edges come from: the last anchor before each node."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.native.passes import compiled

__all__ = ["origins"]

I32 = npt.NDArray[np.int32]


@compiled
def _origins(
    order: I32, binding: I32, tail: I32, is_anchor: npt.NDArray[np.bool_], out: I32
) -> None:
    """Fill the anchor that the walk back from each node meets first."""
    for node in order:
        if is_anchor[node]:
            out[node] = node
        elif binding[node] >= 0:
            out[node] = out[tail[binding[node]]]


def origins(order: I32, binding: I32, tail: I32, is_anchor: npt.NDArray[np.bool_]) -> I32:
    """Anchor that the walk back along binding edges from each node meets first, -1 for none.

    An anchor is its own origin.

    Parameters
    ----------
    order : ndarray of shape (k,), dtype=int32
        Nodes in topological order.
    binding : ndarray of shape (n_nodes,), dtype=int32
    tail : ndarray of shape (n_edges,), dtype=int32
    is_anchor : ndarray of shape (n_nodes,), dtype=bool

    Returns
    -------
    ndarray of shape (n_nodes,), dtype=int32

    Examples
    --------
    >>> binding, tail = np.array([-1, 0, 1], np.int32), np.array([0, 1], np.int32)
    >>> order, is_anchor = np.arange(3, dtype=np.int32), np.array([False, True, False])
    >>> origins(order, binding, tail, is_anchor).tolist()
    [-1, 1, 1]
    """
    out = np.full(len(binding), -1, dtype=np.int32)
    _origins(order, binding, tail, is_anchor, out)
    return out
