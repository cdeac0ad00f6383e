"""Which collective a node of the graph goes back to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.origins import origins
from htagraph.model.dag import Dag

__all__ = ["first_anchor"]


def first_anchor(dag: Dag, kernels: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """End of the collective that the walk back from each node meets first, -1 for none.

    The walk goes along binding edges. What happens after the end of a collective depends on its
    ranks' own times only from there on; so a job's path is cut at these ends.

    Parameters
    ----------
    kernels : ndarray of shape (n,), dtype=int64
        Kernels of collectives.

    Returns
    -------
    ndarray of shape (n_nodes,), dtype=int32
        Nodes; an end is its own.
    """
    is_anchor = np.zeros(2 * len(dag.events), dtype=bool)
    is_anchor[2 * kernels + 1] = True
    return origins(dag.order, dag.binding, dag.edges.tail, is_anchor)
