"""When delays arose that were observed at some instants: each is counted once."""

from __future__ import annotations

import numpy as np

from htagraph.model.arrays import F64, I64
from htagraph.native.passes import compiled


@compiled
def _new_delays(seen: I64, since: I64, delay: I64, begin: I64, new: I64, total: F64) -> None:
    """Fill where each stretch begins, and the delay that is new in it."""
    for at in range(len(seen)):
        first = np.searchsorted(seen[:at], since[at])
        before = total[first - 1] if first else 0.0
        if first < at and begin[first] < since[at] and new[first] > 0:
            share = (since[at] - begin[first]) / (seen[first] - begin[first])
            before += share * new[first]
        so_far = total[at - 1] if at else 0.0
        begin[at] = max(since[at], seen[at - 1]) if at else since[at]
        wanted = np.int64(delay[at] - (so_far - before))
        new[at] = min(max(wanted, 0), seen[at] - begin[at])
        total[at] = so_far + new[at]


def new_delays(seen_ns: I64, since_ns: I64, delay_ns: I64) -> tuple[I64, I64]:
    """Disjoint stretches, one before each instant, and by how much each became late in it.

    Parameters
    ----------
    seen_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Instants, ascending.
    since_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Until when the run was in time before each instant; not after it.
    delay_ns : ndarray of shape (n,), dtype=int64, unit=ns
        How late it was at each instant.

    Returns
    -------
    begin_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Each stretch ends with its instant.
    new_ns : ndarray of shape (n,), dtype=int64, unit=ns
        The delay beyond what arose since `since_ns` in stretches before; at most the stretch.

    Examples
    --------
    5 ns late at 20 and 7 at 30, both since 10: 2 ns arose in between.

    >>> seen, since, delay = np.array([20, 30]), np.array([10, 10]), np.array([5, 7])
    >>> new_delays(seen, since, delay)
    (array([10, 20]), array([5, 2]))

    If in time until 25, all 7 are new, but only 5 fit.

    >>> new_delays(seen, np.array([10, 25]), delay)
    (array([10, 25]), array([5, 5]))
    """
    begin, new = np.zeros_like(seen_ns), np.zeros_like(seen_ns)
    _new_delays(seen_ns, since_ns, delay_ns, begin, new, np.zeros(len(seen_ns)))
    return begin, new
