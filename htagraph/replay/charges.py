"""Charges: the cause of all time of a run, on its critical path or not.

The cost of a cause is what a window loses to it: the run is replayed with everything charged to the
cause at zero, on every thread, stream and rank. Time off the path counts too: it would be the next
bottleneck.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from htagraph.arrays.codes import take
from htagraph.arrays.retime import DROPPED
from htagraph.explain.attributed_time import charged
from htagraph.explain.edge_bounds import edge_bounds
from htagraph.explain.segments import Segments
from htagraph.model.arrays import F64, I8, I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, Cause
from htagraph.replay.changes import Change, spare
from htagraph.replay.replay import Replay

_CODES = {cause: code for code, cause in enumerate(Cause)}


class EdgeTimes(NamedTuple):
    """Time of edges: the rank of each (-1 of a single trace), its row in the edge table, in ns."""

    rank: I64
    row: I64
    dur_ns: I64


class Charges(NamedTuple):
    """Parts of edges, each charged to one cause."""

    rank: I64  # The rank whose edge table it is; -1 of a single trace
    row: I64  # Row of the edge table
    dur_ns: I64
    cause: I8  # Position in `Cause`

    @classmethod
    def of(cls, dag: Dag, replay: Replay, rank: int = -1) -> Self:
        """All edges of a rank, each for as long as it takes by itself.

        An edge that did not bind waited for another: what it waited is not its time.
        """
        weight_ns = np.where(replay.lag_ns == DROPPED, 0, replay.weight_ns)
        at = np.flatnonzero((weight_ns > 0) & (replay.row >= 0))
        row = replay.row[at]
        edges = dag.edges.take(row)
        begin = dag.events.node_ts_ns[edges.tail]
        end = begin + weight_ns[at]
        bound, until = edge_bounds(dag, edges)
        known = np.clip(until, begin, end)
        first, rest = np.flatnonzero(known > begin), np.flatnonzero(end > known)
        edge = np.concatenate([first, rest])
        bound = np.append(bound[first], np.full(len(rest), Bound.UNKNOWN_WAITS, dtype=np.int8))
        start_ns = np.append(begin[first], known[rest])
        dur_ns = np.append(known[first], end[rest]) - start_ns
        # The time after a wait is charged to it, so each thread's must be in order.
        order = np.lexsort((start_ns, dag.events.lane[edges.head >> 1][edge]))
        edge = edge[order]
        event, row = edges.event[edge], row[edge]
        place, charged_ns, cause = charged(
            dag, Segments(start_ns[order], dur_ns[order], bound[order], event, row.astype(np.int32))
        )
        row = row[place]
        return cls(np.full(len(row), rank), row, charged_ns, cause)

    @classmethod
    def joined(cls, ranks: Iterable[Charges]) -> Self:
        """Those of several ranks."""
        return cls(*map(np.concatenate, zip(*ranks, strict=True)))

    def with_path(self, segments: pd.DataFrame, attributed_time: pd.DataFrame) -> Charges:
        """The same, but edges of a critical path are charged as there.

        So a cause's share of the path is the slope of the window in the cause's time.
        """
        at = attributed_time["segment"].to_numpy(np.int64)
        alone = np.full(len(segments), -1)
        rank = segments["rank"].to_numpy(np.int64) if "rank" in segments else alone
        path = Charges(
            rank[at],
            segments["edge"].to_numpy(np.int64)[at],
            attributed_time["dur_ns"].to_numpy(np.int64),
            attributed_time["cause"].map(_CODES).to_numpy().astype(np.int8),
        )
        path = take(path, path.row >= 0)
        return Charges.joined([take(self, ~np.isin(self.edge, path.edge)), path])

    def less(self, rank: int, spared_ns: I64) -> Charges:
        """The same, without time of a rank that goes if it is not late.

        `spared_ns` of shape (n_edges,): how much shorter each edge of the rank is then.
        """
        is_mine, is_late = self.rank == rank, self.cause == _CODES[Cause.LATE_RANK]
        late_ns, other_ns = (
            np.bincount(self.row[rows], self.dur_ns[rows], len(spared_ns))
            for rows in (is_mine & is_late, is_mine & ~is_late)
        )
        gone = np.maximum(spared_ns - late_ns, 0) / np.maximum(other_ns, 1)
        left = 1 - np.minimum(gone, 1)[np.where(is_mine, self.row, 0)]
        dur_ns = np.where(is_mine & ~is_late, self.dur_ns * left, self.dur_ns)
        return self._replace(dur_ns=np.rint(dur_ns).astype(np.int64))

    def split(self, share: F64, cause: Cause) -> Charges:
        """The same, but a share of the time of each edge is charged to a cause."""
        part_ns = np.floor(self.dur_ns * share[self.row]).astype(np.int64)
        code = np.full(len(self.row), _CODES[cause], dtype=np.int8)
        parts = self._replace(dur_ns=part_ns, cause=code)
        rest = self._replace(dur_ns=self.dur_ns - part_ns)
        return Charges.joined([take(rest, rest.dur_ns > 0), take(parts, part_ns > 0)])

    def of_cause(self, cause: Cause) -> Charges:
        """Those of one cause."""
        return take(self, self.cause == _CODES[cause])

    def gone(self, name: str) -> Change:
        """The change that makes all of this time take none."""
        return spare(name, self.row, self.dur_ns, self.rank)

    def along(self, path: EdgeTimes) -> dict[Cause, int]:
        """Time of a path by cause, most first: that of each edge is split as it is charged.

        What is not charged, such as edges that a change added, counts as unknown waits.
        """
        edges, at = np.unique(self.edge, return_inverse=True)
        of_edge = np.maximum(np.bincount(at, self.dur_ns, len(edges)), 1)
        walked = _numbered(path.rank, path.row)
        place = np.minimum(np.searchsorted(edges, walked), max(len(edges) - 1, 0))
        known = np.isin(walked, edges)
        on_path = np.bincount(place[known], path.dur_ns[known], len(edges))
        share = (on_path / of_edge)[at] * self.dur_ns
        sums = np.rint(np.bincount(self.cause, share, len(_CODES))).astype(np.int64)
        sums[_CODES[Cause.UNKNOWN_WAITS]] += int(path.dur_ns[~known].sum())
        found = {cause: int(sums[code]) for cause, code in _CODES.items() if sums[code]}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def edge(self) -> I64:
        """A number for each edge of all ranks."""
        return _numbered(self.rank, self.row)


def _numbered(rank: I64, row: I64) -> I64:
    """A number for each edge of all ranks."""
    return (rank + 1 << 40) + row
