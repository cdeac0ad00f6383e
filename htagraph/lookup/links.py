"""Which event handed work on to which: the arrows of a timeline."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind

__all__ = ["work_links"]

I32 = npt.NDArray[np.int32]


def work_links(dag: Dag) -> tuple[I32, I32]:
    """Pairs of events of which one handed work on to the other.

    A launch leads to its device work, and FLOW edges from one host thread to another: forward to
    backward, and a caller to the autograd thread that works for it.

    Returns
    -------
    tail, head : ndarray of shape (n,), dtype=int32
    """
    launched = np.flatnonzero(dag.launch >= 0)
    flows = dag.edges.take(dag.edges.kind == EdgeKind.FLOW)
    return (
        np.concatenate([dag.launch[launched], flows.tail >> 1]).astype(np.int32),
        np.concatenate([launched, flows.head >> 1]).astype(np.int32),
    )
