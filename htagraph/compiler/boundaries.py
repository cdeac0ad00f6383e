"""Starts and ends of host events, thread by thread and in the order of each thread."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from htagraph.arrays.codes import gather
from htagraph.arrays.nesting import Nesting
from htagraph.model.arrays import I32, I64, Bools
from htagraph.model.events import EventTable

_AT_ONCE = 1 << 16
"""Boundaries whose distances are in memory at once. A limit of memory, not of the answer."""


@dataclass(frozen=True, eq=False)
class Boundaries:
    """Where host events begin and end."""

    events: EventTable
    node: I32  # By lane, then in the order of the thread
    # Host event that is innermost from each boundary to the next of its lane, -1 for none
    inside: I32
    first: I64  # Of shape (n_lanes + 1,). Those of a lane are ``first[lane]:first[lane + 1]``.

    @classmethod
    def of(cls, events: EventTable, nesting: Nesting) -> Boundaries:
        """Boundaries of host events; the intervals of the nesting are events."""
        known = np.minimum(np.arange(len(events.lanes) + 1), len(nesting.first) - 1)
        return cls(events, nesting.boundary, nesting.innermost, nesting.first[known])

    def __len__(self) -> int:
        """Number of boundaries."""
        return len(self.node)

    @property
    def lane(self) -> I64:
        """Lane of each boundary; ascending."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))

    @cached_property
    def ts_ns(self) -> I64:
        """Time of each boundary; ascending on each lane."""
        times: I64 = gather(self.events.node_ts_ns, self.node)
        return times

    @cached_property
    def is_followed(self) -> Bools:
        """Whether each boundary has another one after it on its lane."""
        out = np.ones(len(self), dtype=bool)
        out[self.first[1:][np.diff(self.first) > 0] - 1] = False
        return out

    @property
    def openings(self) -> I64:
        """Position of the first boundary of each lane that has some."""
        return self.first[:-1][np.diff(self.first) > 0]

    def longer_than(self, least_ns: int) -> I64:
        """Positions of boundaries from which it takes longer to the next of their lane."""
        parts = [np.empty(0, dtype=np.int64)]
        for begin, end in pairwise(self.first.tolist()):
            for start in range(begin, end, _AT_ONCE):
                times = self.ts_ns[start : min(start + _AT_ONCE + 1, end)]
                parts.append(start + np.flatnonzero(np.diff(times) > least_ns))
        return np.concatenate(parts)

    def of_lane(self, lane: int) -> slice:
        """Positions of the boundaries of a lane."""
        begin, end = self.first[lane : lane + 2].tolist()
        return slice(begin, end)

    def last(self, lane: npt.NDArray[np.integer], until_ns: I64) -> I64:
        """Position of the last boundary of a lane at or before each time, -1 for none.

        `lane`, `until_ns` of shape (k,).
        """
        position = np.full(len(lane), -1, dtype=np.int64)
        order = np.argsort(lane, kind="stable")
        for one in np.unique(lane).tolist():
            rows = order[slice(*np.searchsorted(lane, [one, one + 1], sorter=order))]
            part = self.of_lane(one)
            found = np.searchsorted(self.ts_ns[part], until_ns[rows], side="right")
            position[rows] = np.where(found > 0, part.start + found - 1, -1)
        return position
