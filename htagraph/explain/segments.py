"""Segments of critical paths: codes for computing, text for reading, the main cause of each.

A long trace has millions of segments and a few thousand names. Sums need only codes. Text for every
segment would take most of the time and memory of a path, so it is looked up per column on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import distinct, gather
from htagraph.arrays.intervals import sum_by_code
from htagraph.arrays.passes import compiled
from htagraph.lookup.attribution import innermost, track_codes
from htagraph.model.arrays import I8, I32, I64, Bools, Texts, brief
from htagraph.model.dag import Dag
from htagraph.model.frames import SEGMENTS
from htagraph.model.kinds import Bound, EdgeKind, EventKind, among
from htagraph.model.rules import Evidence, Rule
from htagraph.model.schema import categorical

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
    """Segments of critical paths, in order of time."""

    start_ns: I64
    dur_ns: I64
    bound: I8  # Codes of `Bound`
    event: I32  # Row of the event table, -1 for none
    edge: I32  # Row of the edge table, -1 for none

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
    """A column of texts."""

    codes: npt.NDArray[np.integer]
    texts: Texts  # The text of each code; may repeat

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


Codes = npt.NDArray[np.integer]

_N_PARTS = 200
"""Parts of a run, each with one main cause (chosen): on a screen, a few pixels each. Pinned by
test_critical_path."""


def with_causes(segments: pd.DataFrame, attributed_time: pd.DataFrame) -> pd.DataFrame:
    """Segments with their ``cause``, and in ``code`` what ran between operators."""
    n = len(segments)
    return segments.assign(
        cause=segment_causes(attributed_time, n), code=segment_code(attributed_time, n)
    )


def main_causes(attributed_time: pd.DataFrame, n_parts: int = _N_PARTS) -> pd.DataFrame:
    """The cause with the most time in each part of a run; equal neighbors are one row.

    `attributed_time`: schema `frames.ATTRIBUTED_TIME` or `frames.JOB_ATTRIBUTED_TIME`; tiles the
    run. Columns ``start_ns``, ``dur_ns``, ``cause``, and ``bound``, on which the cause has most
    time. Tiles the run.
    """
    start_ns, dur_ns = (attributed_time[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
    (cause, causes), (bound, bounds) = (
        _coded(attributed_time[name]) for name in ("cause", "bound")
    )
    on_bound = sum_by_code(
        cause.astype(np.int64) * len(bounds) + bound, dur_ns, len(causes) * len(bounds)
    )
    bound_of = on_bound.reshape(len(causes), -1).argmax(axis=1) if len(causes) else cause
    ends = [start_ns[0], start_ns[-1] + dur_ns[-1]] if len(start_ns) else [0, 0]
    part_ns = ends[0] + (ends[1] - ends[0]) * np.arange(n_parts + 1) // n_parts
    cut_ns = np.sort(np.concatenate([start_ns, part_ns]), kind="stable")  # two sorted runs
    cut_ns = cut_ns[np.append(np.diff(cut_ns) > 0, True)]
    # Of pieces between two cuts: the row that it is of, and the part that it is in.
    row, part = (np.searchsorted(at, cut_ns[:-1], side="right") - 1 for at in (start_ns, part_ns))
    code = part * len(causes) + cause[row]
    total_ns = sum_by_code(code, np.diff(cut_ns), n_parts * len(causes)).reshape(n_parts, -1)
    filled = np.flatnonzero(np.diff(part_ns))
    main = total_ns[filled].argmax(axis=1) if len(filled) else filled
    first = np.flatnonzero(np.diff(main, prepend=-1))
    begin_ns = part_ns[filled[first]]
    return pd.DataFrame(
        {
            "start_ns": begin_ns,
            "dur_ns": np.diff(begin_ns, append=ends[1]) if len(first) else begin_ns,
            "cause": causes[main[first]],
            "bound": bounds[bound_of[main[first]]],
        }
    )


def segment_causes(attributed_time: pd.DataFrame, n_segments: int) -> pd.Categorical[str]:
    """Label of the cause with most time in each segment, the first of equals; missing for none."""
    segment = attributed_time["segment"].to_numpy()
    number, labels = _coded(attributed_time["cause"])
    cause = np.full(n_segments, -1, dtype=np.int16)
    cause[segment] = number
    is_several = np.bincount(segment, minlength=n_segments) > 1
    several = np.flatnonzero(gather(is_several, segment))
    n = len(labels)
    segment, code = segment[several].astype(np.int64), number[several].astype(np.int64)
    group, row = np.unique(segment * max(n, 1) + code, return_inverse=True)
    total = np.bincount(row, attributed_time["dur_ns"].to_numpy(np.float64)[several], len(group))
    segment, code = np.divmod(group, max(n, 1))
    last = np.lexsort((-code, total, segment))
    cause[segment[last]] = code[last]
    return categorical(cause, labels.tolist())


def segment_code(attributed_time: pd.DataFrame, n_segments: int) -> pd.Categorical[str]:
    """Untraced code, by segment: its frame; else its neighbour, if its range says little.

    Ranges that say little are steps. Missing for segments that are no such code. `attributed_time`:
    schema `frames.ATTRIBUTED_TIME` or `frames.JOB_ATTRIBUTED_TIME`.
    """
    gaps = attributed_time[attributed_time["bound"] == Bound.UNTRACED_CODE.label]
    (name, names), (frame, frames), (place, places) = (
        _coded(gaps[column]) for column in ("name", "frame", "place")
    )
    says_little = np.isin(names, [*_coded(gaps["step"])[1], NO_EVENT_NAMES[Bound.UNTRACED_CODE]])
    number, labels = pd.factorize(np.concatenate([frames, places]))
    has_frame = (frames != "")[frame]
    code = number[np.where(has_frame, frame, len(frames) + place.astype(np.int64))]
    rows = np.flatnonzero((has_frame | says_little[name]) & (labels != "")[code])
    rows = rows[::-1]  # the first piece of a segment counts
    out = np.full(n_segments, -1, dtype=np.int64)
    out[gaps["segment"].to_numpy(np.int64)[rows]] = code[rows]
    return categorical(out, labels.tolist())


def _coded(column: pd.Series[str]) -> tuple[Codes, Texts]:
    """The code of each row of a column, and the text of each code, in order of appearance."""
    if not isinstance(column.dtype, pd.CategoricalDtype):
        codes, texts = pd.factorize(column)
        return codes, np.asarray(texts, dtype=object)
    found = column.cat.codes.to_numpy()
    order = pd.unique(found)
    number = np.empty(len(column.cat.categories), dtype=found.dtype)
    number[order] = np.arange(len(order))
    return gather(number, found), column.cat.categories.to_numpy(object)[order]
