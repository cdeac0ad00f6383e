"""Runs of kernels that could be one, and what of the host only launches them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind

__all__ = ["later_members", "only_launching"]

Bools = npt.NDArray[np.bool_]


def later_members(dag: Dag, *members: Bools) -> Bools:
    """Device work that would be a part of the work before it on its stream.

    Parameters
    ----------
    *members : ndarray of shape (n_events,), dtype=bool
        One mask: runs of it. Several: what may stand at each place of a run.

    Returns
    -------
    ndarray of shape (n_events,), dtype=bool
        The members of each run but the first. Runs of a sequence do not overlap.
    """
    events = dag.events
    work = np.flatnonzero(events.is_device)
    work = work[np.lexsort((events.ts_ns[work], events.stream[work], events.device[work]))]
    same = np.zeros(len(work), dtype=bool)
    same[1:] = (events.stream[work[1:]] == events.stream[work[:-1]]) & (
        events.device[work[1:]] == events.device[work[:-1]]
    )
    later = np.zeros(len(events), dtype=bool)
    if len(members) == 1:
        chosen = members[0][work]
        chosen[1:] &= chosen[:-1] & same[1:]
        chosen[:1] = False
        later[work] = chosen
        return later
    n, length = len(work), len(members)
    if n < length:
        return later
    begins = np.ones(n - length + 1, dtype=bool)
    for place, mask in enumerate(members):
        begins &= mask[work[place : n - length + 1 + place]]
        if place:
            begins &= same[place : n - length + 1 + place]
    taken = -1
    for first in np.flatnonzero(begins).tolist():  # one step per occurrence
        if first > taken:
            later[work[first + 1 : first + length]] = True
            taken = first + length - 1
    return later


def only_launching(dag: Dag, work: Bools) -> Bools:
    """Operators that launch nothing but chosen work, outermost ones with all within them.

    Parameters
    ----------
    work : ndarray of shape (n_events,), dtype=bool
    """
    n_all, n_chosen = (np.zeros(len(dag.events), dtype=np.int64) for _ in range(2))
    launched = np.flatnonzero(dag.launch >= 0)
    above, chosen = dag.launch[launched].astype(np.int64), work[launched]
    while len(above):
        np.add.at(n_all, above, 1)
        np.add.at(n_chosen, above[chosen], 1)
        above = dag.parent[above].astype(np.int64)
        going = above >= 0
        above, chosen = above[going], chosen[going]
    found: Bools = (n_chosen > 0) & (n_chosen == n_all) & (dag.events.kind == EventKind.OP)
    return found
