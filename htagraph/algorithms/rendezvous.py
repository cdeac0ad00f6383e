"""Rendezvous: a run of slices, some of which begin together, under other durations.

A collective, or a send and its receive, begins when its last member has come; each member ends
after its own transfer. All other slices begin alone. A slice comes when those before it have
ended::

    worker 0  [compute  ][meet|==]
    worker 1  [compute]       [==]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.algorithms.binding import topological_order
from htagraph.algorithms.retime import retime
from htagraph.model.arrays import I32, I64

__all__ = ["Rendezvous", "rendezvous_of"]


class Rendezvous(NamedTuple):
    """Slices by the group that they begin with.

    Parameters
    ----------
    group : ndarray, dtype=int64
        Of each slice; those of one group begin together.
    before : ndarray, dtype=int64
        Slices that others wait for, by the group that waits.
    offsets, tail : ndarray
        Of those edges between groups, as `retime` takes them.
    order : ndarray, dtype=int32
        A topological order of the groups.
    cyclic : ndarray, dtype=int64
        Groups that wait for themselves, and those behind them: never to begin.
    """

    group: I64
    before: I64
    offsets: I64
    tail: I32
    order: I32
    cyclic: I64

    def starts(self, dur_ns: I64) -> I64:
        """When each slice begins if slices take these times."""
        release = np.zeros(len(self.offsets) - 1, dtype=np.int64)
        weights = dur_ns[self.before]
        begin = retime(self.offsets, self.tail, weights, release, self.order)
        return begin[self.group]


def rendezvous_of(group: I64, before: I64, after: I64) -> Rendezvous:
    """The run of slices with these groups, in which each `after` waits for the end of its `before`.

    Examples
    --------
    Slices 1 and 3 begin together, after 0 and 2.

    >>> one = rendezvous_of(np.array([0, 2, 1, 2]), np.array([0, 2]), np.array([1, 3]))
    >>> one.starts(np.array([10, 2, 30, 4])).tolist()
    [0, 30, 0, 30]
    """
    n = int(group.max(initial=-1)) + 1
    tail, head = group[before], group[after]
    by_head = np.argsort(head, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(head, minlength=n))])
    tails, heads = tail.astype(np.int32), head.astype(np.int32)
    order, is_cyclic = topological_order(tails, heads, np.zeros(n, dtype=np.int64))
    cyclic = np.unique(head[is_cyclic])
    return Rendezvous(group, before[by_head], offsets, tails[by_head], order, cyclic)
