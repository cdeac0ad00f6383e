"""Which host ranges device work was launched under, at every depth."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from htagraph.model.dag import Dag

__all__ = ["enclosing", "outermost"]

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


def enclosing(parent: npt.NDArray[np.integer], host: I64) -> Iterator[tuple[I64, I64]]:
    """Yield (rows, events) level by level: each event itself, then what encloses it, and so on.

    Parameters
    ----------
    parent : ndarray of shape (n_events,), dtype=int
        The event that encloses each event, -1 for none: that of a `Dag`, or of other ranges.
    host : ndarray of shape (n,), dtype=int64
        Events, -1 for none.
    """
    rows = np.flatnonzero(host >= 0)
    current = host[rows]
    while len(rows):
        yield rows, current
        current = parent[current].astype(np.int64)
        rows, current = rows[current >= 0], current[current >= 0]


def outermost(dag: Dag, host: I64, wanted: Bool) -> I64:
    """Outermost wanted range around each host event, itself included; -1 for none."""
    out = np.full(len(host), -1, dtype=np.int64)
    for rows, current in enclosing(dag.parent, host):
        found = wanted[current]
        out[rows[found]] = current[found]
    return out
