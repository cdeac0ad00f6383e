"""Pieces: segments of a path, cut where the running line of Python changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.explain.segments import Segments
from htagraph.explain.topics import NAMES
from htagraph.lookup.attribution import innermost
from htagraph.lookup.python_code import Stretches, code_pieces
from htagraph.model.arrays import I8, I32, I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, EventKind

_CODE_BOUNDS = (Bound.HOST, Bound.DATA_LOADING, Bound.UNTRACED_CODE)


@dataclass(frozen=True)
class Pieces:
    """Segments as columns, cut where the running line of Python changes.

    Parameters
    ----------
    segment : ndarray of shape (n,), dtype=int32
        Segment of each piece.
    start_ns, dur_ns : ndarray of shape (n,), dtype=int64, unit=ns
    bound : ndarray of shape (n,), dtype=int8
    event, edge : ndarray of shape (n,), dtype=int32
    whole_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Duration of the segment.
    line : ndarray of shape (n,), dtype=int32
        Position in `lines` of the running Python code.
    lines : ndarray, dtype=object
        The first is empty, for none.
    topic : ndarray of shape (n,), dtype=int8
        Topic of its Python frames, -1 for none.
    """

    segment: I32
    start_ns: I64
    dur_ns: I64
    bound: I8
    event: I32
    edge: I32
    whole_ns: I64
    line: I32
    lines: Texts
    topic: I8

    @classmethod
    def of(cls, segments: Segments) -> Pieces:
        """Whole segments."""
        n = len(segments.start_ns)
        return cls(
            np.arange(n, dtype=np.int32),
            segments.start_ns,
            segments.dur_ns,
            segments.bound,
            segments.event,
            segments.edge,
            segments.dur_ns,
            np.broadcast_to(np.int32(0), n),
            np.array([""], dtype=object),
            np.broadcast_to(np.int8(-1), n),
        )

    def of_segments(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The value of the segment of each piece."""
        return values if self.dur_ns is self.whole_ns else values[self.segment]

    def cut_at_code(self, dag: Dag) -> Pieces:
        """The pieces cut at changes of the running Python code."""
        events, head = dag.events, gather(dag.edges.head, self.edge) >> 1
        if not (events.kind == EventKind.PYTHON).any():
            return self
        mine = np.isin(self.bound, _CODE_BOUNDS) & gather(events.is_host, head, False)
        cut = np.flatnonzero(mine)
        found = code_pieces(
            dag,
            Stretches(
                events.lane[head[cut]].astype(np.int64),
                self.start_ns[cut],
                self.start_ns[cut] + self.dur_ns[cut],
                innermost(dag, self.event[cut].astype(np.int64), (EventKind.OP, EventKind.RUNTIME)),
            ),
            dict(enumerate(NAMES.values())),
        )
        whole = np.flatnonzero(~mine)
        row = np.concatenate([whole, cut[found.stretch]])
        start_ns = np.concatenate([self.start_ns[whole], found.start_ns])
        order = np.lexsort((start_ns, row))
        row = row[order]
        number, lines = pd.factorize(np.append(self.lines, found.line))
        pieces = (
            (self.dur_ns[whole], found.end_ns - found.start_ns),
            (self.line[whole], number[len(self.lines) :].astype(np.int32)),
            (self.topic[whole], found.topic),
        )
        dur_ns, line, topic = (np.concatenate(pair)[order] for pair in pieces)
        return Pieces(
            self.segment[row],
            start_ns[order],
            dur_ns,
            self.bound[row],
            self.event[row],
            self.edge[row],
            self.whole_ns[row],
            line,
            lines,
            topic,
        )
