"""Segments of critical paths: codes for computing, text for reading.

A long trace has millions of segments and a few thousand names. Sums need only codes. Text for every
segment would take most of the time and memory of a path, so it is looked up per column on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.codes import distinct
from htagraph.algorithms.gather import gather
from htagraph.lookup.attribution import innermost, track_codes
from htagraph.model.arrays import I8, I32, I64, Bools, Texts
from htagraph.model.dag import Dag
from htagraph.model.frames import SEGMENTS
from htagraph.model.frozen import brief
from htagraph.model.kinds import Bound, EdgeKind, EventKind, among
from htagraph.model.rules import Evidence, Rule
from htagraph.model.schema import categorical
from htagraph.native.passes import compiled

LABELS = ("bound", "kind", "name", "op", "track", "rule")
"""Columns that `segment_labels` returns."""

NO_EVENT_NAMES = {
    Bound.UNTRACED_CODE: "(host gap)",
    Bound.WORK_FROM_BEFORE_THE_PROFILE: "(before the profile)",
    Bound.UNKNOWN_WAITS: "(unknown wait)",
    Bound.WAITING_FOR_WORK: "(waits for work)",
}
"""Name of a segment that belongs to no event."""


@brief
class Segments(NamedTuple):
    """Segments of critical paths, in order of time.

    Parameters
    ----------
    start_ns, dur_ns : ndarray of shape (n,), dtype=int64, unit=ns
    bound : ndarray of shape (n,), dtype=int8
        Codes of `Bound`.
    event, edge : ndarray of shape (n,), dtype=int32
        Rows of the event table and of the edge table, -1 for none.
    """

    start_ns: I64
    dur_ns: I64
    bound: I8
    event: I32
    edge: I32

    def take(self, rows: I64) -> Segments:
        """Some of them."""
        return Segments(
            self.start_ns[rows],
            self.dur_ns[rows],
            self.bound[rows],
            self.event[rows],
            self.edge[rows],
        )

    @classmethod
    def empty(cls, n: int) -> Segments:
        """Uninitialised segments."""
        start_ns, dur_ns = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        event, edge = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
        return cls(start_ns, dur_ns, np.empty(n, dtype=np.int8), event, edge)

    def lag_ns(self, dag: Dag) -> I64:
        """Part of each segment before its edge arrives."""
        lag_ns = np.empty(len(self.edge), dtype=np.int64)
        _fill_lags(self, dag.edges.tail, dag.edges.lag_ns, dag.events.node_ts_ns, lag_ns)
        return lag_ns

    def rule(self, dag: Dag) -> I8:
        """Rule of each segment."""
        rule: I8 = gather(dag.edges.rule, self.edge, Rule.WINDOW_START)
        no_edge = np.flatnonzero(self.edge < 0)
        bound = self.bound[no_edge]
        rule[no_edge[bound == Bound.WORK_FROM_BEFORE_THE_PROFILE]] = (
            Rule.WORK_FROM_BEFORE_THE_PROFILE
        )
        rule[no_edge[bound == Bound.WAITING_FOR_WORK]] = Rule.WAITS_FOR_WORK
        return rule

    def is_inferred(self, dag: Dag) -> Bools:
        """Whether the rule of each segment is an inference."""
        return among(self.rule(dag), Rule.on(Evidence.INFERRED))


@compiled
def _fill_lags(segments: Segments, tail: I32, lag_ns: I64, node_ts_ns: I64, out: I64) -> None:
    """Fill in the part of each segment before its edge arrives."""
    for segment in range(len(out)):
        edge = segments.edge[segment]
        out[segment] = 0
        if edge >= 0:
            arrival = node_ts_ns[tail[edge]] + lag_ns[edge]
            lag = min(arrival - segments.start_ns[segment], segments.dur_ns[segment])
            out[segment] = max(lag, 0)


class Coded(NamedTuple):
    """A column of texts.

    Parameters
    ----------
    codes : ndarray of shape (n,), dtype=int
    texts : ndarray, dtype=object
        The text of each code; may repeat.
    """

    codes: npt.NDArray[np.integer]
    texts: Texts

    @property
    def words(self) -> Texts:
        """The text of each row."""
        return self.texts.take(self.codes)

    @property
    def narrow(self) -> Coded:
        """The same with distinct texts, in the order of their first codes, and narrow codes."""
        distinct: dict[str, int] = {}
        number = [distinct.setdefault(text, len(distinct)) for text in self.texts.tolist()]
        numbers = np.array(number, dtype=np.min_scalar_type(-len(number)))
        return Coded(gather(numbers, self.codes), np.array(list(distinct), dtype=object))

    @property
    def distinct(self) -> tuple[npt.NDArray[np.integer], Sequence[str]]:
        """Rows as codes of distinct texts, and those texts."""
        codes, texts = self.narrow
        return codes, texts.tolist()

    @property
    def labels(self) -> pd.Categorical[str]:
        """The rows as categories, if the texts are distinct."""
        return categorical(self.codes, self.texts.tolist())


def coded_texts(dag: Dag, segments: Segments, column: str) -> Coded:
    """Name, operator or track of segments."""
    event, symbols = segments.event, dag.events.symbols.array
    if column == "name":
        nameless = [NO_EVENT_NAMES.get(bound, "(host gap)") for bound in Bound]
        codes = gather(dag.events.name, event)
        none = np.flatnonzero(event < 0)
        codes[none] = segments.bound[none].astype(np.int32) + len(symbols)
        return Coded(codes, np.concatenate([symbols, np.array(nameless, dtype=object)]))
    if column == "op":
        codes = gather(_operator_names(dag, distinct(event[event >= 0])), event, len(symbols))
        return Coded(codes, np.concatenate([symbols, np.array([""], dtype=object)]))
    where = np.where(event >= 0, event, gather(dag.edges.head, segments.edge) >> 1)
    return Coded(*track_codes(dag, where))


def _operator_names(dag: Dag, events: I64) -> I32:
    """Name of the operator or annotation around each of some events, by event."""
    dag = dag.unrolled
    op = innermost(dag, events, (EventKind.OP, EventKind.ANNOTATION))
    names = np.empty(len(dag.events), dtype=np.int32)
    names[events] = gather(dag.events.name, op, len(dag.events.symbols))
    return names


def segment_labels(
    dag: Dag, segments: Segments, column: str
) -> tuple[npt.NDArray[np.integer], Sequence[str]]:
    """One column of `LABELS`: the code of each segment, and the label of each code."""
    if column == "bound":
        return segments.bound, Bound.labels()
    if column == "kind":
        return gather(dag.edges.kind, segments.edge, EdgeKind.SOURCE), EdgeKind.labels()
    if column == "rule":
        return segments.rule(dag), Rule.labels()
    return coded_texts(dag, segments, column).distinct


def segment_frame(dag: Dag, segments: Segments) -> pd.DataFrame:
    """Segments as text, schema `frames.SEGMENTS`."""
    # First, because their temporaries are the largest.
    op, track = (coded_texts(dag, segments, column).words for column in ("op", "track"))
    lag_ns, rule = segments.lag_ns(dag), segments.rule(dag)
    return SEGMENTS.frame(
        {
            "start_ns": segments.start_ns.copy(),
            "dur_ns": segments.dur_ns.copy(),
            "bound": categorical(segments.bound.copy(), Bound.labels()),
            "kind": categorical(*segment_labels(dag, segments, "kind")),
            "lag_ns": lag_ns,
            "residual_ns": segments.dur_ns - lag_ns,
            "event": segments.event,
            "name": coded_texts(dag, segments, "name").words,
            "op": op,
            "track": track,
            "edge": segments.edge,
            "rule": categorical(rule, Rule.labels()),
            "is_inferred": among(rule, Rule.on(Evidence.INFERRED)),
        },
        copy=False,
    )
