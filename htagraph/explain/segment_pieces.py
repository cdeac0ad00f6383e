"""Pieces: segments of a path, cut where the running line of Python changes.

Nothing records that a thread waits for a lock, a queue or a future of another one. Where inference
does not find it, a gap is named after who worked meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import sum_by_code, union
from htagraph.explain.segments import Coded, Segments
from htagraph.explain.topics import NAMES
from htagraph.lookup.attribution import innermost
from htagraph.lookup.python_code import code_pieces
from htagraph.model.arrays import I8, I32, I64, Texts, brief
from htagraph.model.dag import Dag
from htagraph.model.frames import ATTRIBUTED_TIME
from htagraph.model.kinds import Bound, EventKind
from htagraph.model.schema import categorical
from htagraph.model.symbols import alphabetical

_CODE_BOUNDS = (Bound.HOST, Bound.DATA_LOADING, Bound.UNTRACED_CODE)


@dataclass(frozen=True)
class Pieces:
    """Segments as columns, cut where the running line of Python changes."""

    segment: I32  # Segment of each piece
    start_ns: I64
    dur_ns: I64
    bound: I8
    event: I32
    edge: I32
    whole_ns: I64  # Duration of the segment
    line: I32  # Position in `lines` of the running Python code
    lines: Texts  # The first is empty, for none
    topic: I8  # Topic of its Python frames, -1 for none

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
            (
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


_MOST = 2
"""A thread ran meanwhile if its operators take more than one part in so many of the time
(chosen)."""


def meanwhile(dag: Dag, lane: I64, start_ns: I64, end_ns: I64) -> Texts:
    """What the busiest other thread ran for most of each stretch of a thread.

    `lane`, `start_ns`, `end_ns`: stretches that do not overlap, in order. ``thread 7 ran
    aten::sort``: of all that it ran in the stretches, what took longest. Empty if no thread ran
    operators for most of it. What still runs when a stretch ends does not count, as nothing waited
    for it.
    """
    events, n_lanes, n_names = dag.events, len(dag.events.lanes), len(dag.events.symbols)
    is_op = events.kind == EventKind.OP
    top = np.flatnonzero(is_op & ~gather(is_op, dag.parent, default=False))
    row = np.searchsorted(end_ns, events.end_ns[top])  # the stretch in which it ends
    top, row = top[row < len(lane)], row[row < len(lane)]
    inside = (start_ns[row] < events.end_ns[top]) & (lane[row] != events.lane[top])
    op, row = top[inside], row[inside]
    other, since_ns = events.lane[op].astype(np.int64), np.maximum(events.ts_ns[op], start_ns[row])
    busy = union(row * n_lanes + other, since_ns, events.end_ns[op])
    pairs, busy_ns = _summed(busy.group, busy.end - busy.start)
    stretch, thread = np.divmod(pairs, n_lanes)
    most = _largest_of(stretch, busy_ns, thread)
    most = most[busy_ns[most] > (end_ns - start_ns)[stretch[most]] // _MOST]
    busiest = np.full(len(lane), -1)
    busiest[stretch[most]] = thread[most]
    told = np.flatnonzero(busiest[row] == other)
    pairs, ran_ns = _summed(
        other[told] * n_names + events.name[op[told]], events.end_ns[op[told]] - since_ns[told]
    )
    thread, name = np.divmod(pairs, n_names)
    most = _largest_of(thread, ran_ns, alphabetical(events.symbols.array[name])[1])
    said = np.full(n_lanes + 1, "", dtype=object)
    said[thread[most]] = [
        f"thread {events.lanes.tid[thread]} ran {events.symbols.texts[name]}"
        for thread, name in zip(thread[most].tolist(), name[most].tolist(), strict=True)
    ]
    found: Texts = said[busiest]
    return found


def _summed(code: I64, value: I64) -> tuple[I64, I64]:
    """The codes that occur, and the sum of the values of each."""
    codes, place = np.unique(code, return_inverse=True)
    return codes, sum_by_code(place, value, len(codes))


def _largest_of(group: I64, value: I64, tie: I64) -> I64:
    """Row of the largest value of each group; of equal ones, that of the lowest tie."""
    order = np.lexsort((tie, -value, group))
    return order[np.diff(group[order], prepend=-1) > 0]


def with_part_of(
    attributed_time: pd.DataFrame, part_ns: I64, **of_part: pd.Series[Any] | str
) -> pd.DataFrame:
    """Pieces in order of time, the first part of each with other values, such as its cause."""
    start_ns, dur_ns = (attributed_time[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
    first = attributed_time.assign(dur_ns=part_ns, **of_part)
    rest = attributed_time.assign(start_ns=start_ns + part_ns, dur_ns=dur_ns - part_ns)
    both = pd.concat([first, rest], ignore_index=True)
    return both[both["dur_ns"] > 0].sort_values("start_ns", kind="stable", ignore_index=True)


@brief
@dataclass(frozen=True)
class Attributed:
    """Attributed time as codes."""

    columns: Mapping[str, npt.NDArray[Any]]  # Those of `ATTRIBUTED_TIME` that are no text
    codes: Mapping[str, Coded]  # Columns of texts, each of which is distinct

    def frame(self) -> pd.DataFrame:
        """As text, schema `frames.ATTRIBUTED_TIME`."""
        words = {name: coded.words for name, coded in self.codes.items()}
        return ATTRIBUTED_TIME.frame(self._columns | words)

    def labels(self) -> pd.DataFrame:
        """With categories instead of text, which takes far less memory and time."""
        labels = {name: coded.labels for name, coded in self.codes.items()}
        both = self._columns | labels
        return pd.DataFrame({name: both[name] for name in ATTRIBUTED_TIME.columns}, copy=False)

    def causes(self) -> pd.DataFrame:
        """Segment, time and cause of each row."""
        columns = {name: self.columns[name] for name in ("segment", "dur_ns")}
        return pd.DataFrame(columns | {"cause": self.codes["cause"].labels}, copy=False)

    @property
    def _columns(self) -> dict[str, Any]:
        """The columns that are no text, bounds as categories."""
        return {**self.columns, "bound": categorical(self.columns["bound"], Bound.labels())}
