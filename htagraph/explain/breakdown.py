"""Time of paths by what they ran, by step, and of many windows; the parts add up to the whole.

Windows may overlap, as the stretches before a rank's waits do. All together, they have many times
the segments of the trace, so each is walked back and summed by itself, in the memory of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.binding import walk_lengths
from htagraph.arrays.by_head import EdgeColumns
from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import not_tiled, sum_by_code
from htagraph.arrays.passes import compiled
from htagraph.errors import GraphError, QueryError, one_of
from htagraph.explain.critical_path import Openings, added_window, path_end
from htagraph.explain.edge_bounds import BoundRules
from htagraph.explain.segments import Coded, Segments, coded_texts
from htagraph.lookup.steps import step_at
from htagraph.model.arrays import I32, I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound
from htagraph.model.names import without_step_number
from htagraph.model.schema import Schema, categorical
from htagraph.model.window import Window

_KEYS = ("bound", "kind", "name", "op", "track", "rule", "step")

_AT_ONCE = 1 << 16
"""Segments a block: numpy widens codes and lengths, and the copies fit into the cache. Changes only
the speed."""

OUTSIDE_STEPS = "(outside steps)"
"""Group of time outside all steps."""


def label_sums(
    parts: Iterable[tuple[npt.NDArray[np.integer], Sequence[str], I64]],
    by: str,
    total_ns: int,
) -> dict[str, npt.NDArray[Any]]:
    """Time of segments by label, largest first; ties keep their order. `sum_by` for arrays.

    `parts`, at least one, have the position of each segment's label, all labels (the same in all
    parts), and the length of each segment. `total_ns`: what they must add up to.
    """
    n_segments, dur, first = np.zeros((3, 0), dtype=np.int64)
    n = 0
    for codes, labels, dur_ns in parts:
        if not n:
            n_segments, dur, first = np.zeros((3, len(labels)), dtype=np.int64)
        for begin in range(0, len(codes), _AT_ONCE):
            part = codes[begin : begin + _AT_ONCE]
            place = first.copy()
            place[part[::-1]] = np.arange(n + len(part) - 1, n - 1, -1)
            np.copyto(first, place, where=n_segments == 0)
            n_segments += np.bincount(part, minlength=len(labels))
            dur += sum_by_code(part, dur_ns[begin : begin + _AT_ONCE], len(labels))
            n += len(part)
    if int(dur.sum()) != total_ns:
        raise _not_the_sum(by, total_ns)
    present = np.flatnonzero(n_segments)
    present = present[np.lexsort((first[present], -dur[present]))]
    return {
        by: np.array(labels, dtype=object)[present],
        "dur_ns": dur[present],
        "share": dur[present] / max(total_ns, 1),
        "n_segments": n_segments[present],
    }


def _not_the_sum(by: str, total_ns: int) -> GraphError:
    return GraphError(f"the parts by {by} do not add up to {total_ns:,} ns.")


def sum_by(
    segments: pd.DataFrame, by: str, total_ns: int, schema: Schema, *, sort: bool = True
) -> pd.DataFrame:
    """Time of segments by a column, the largest first or as they appear; `total_ns` together."""
    if by not in segments.columns or by in ("start_ns", "dur_ns", "lag_ns", "residual_ns"):
        raise QueryError(
            f"a path cannot be broken down by {by!r}.",
            hint=one_of(by, [key for key in _KEYS if key in segments.columns], "by"),
        )
    groups = segments.groupby(by, observed=True, sort=False)["dur_ns"]
    frame = pd.DataFrame({"dur_ns": groups.sum(), "n_segments": groups.size()})
    if int(frame["dur_ns"].sum()) != total_ns:
        raise _not_the_sum(by, total_ns)
    frame["share"] = frame["dur_ns"] / max(total_ns, 1)
    if sort:
        frame = frame.sort_values("dur_ns", ascending=False, kind="stable")
    if isinstance(frame.index, pd.CategoricalIndex):
        frame.index = pd.Index(frame.index.astype(object), name=by)
    return frame[list(schema.columns)]


def split_by_steps(begin: I64, dur_ns: I64, steps: pd.DataFrame) -> pd.DataFrame:
    """Segments that tile a window, cut at the boundaries of steps.

    An overlapping step ends where the next one starts. Pieces in order of time: ``segment`` and
    ``row`` are those of the segment and of its step, -1 outside them.
    """
    step_begin = steps["start_ns"].to_numpy(np.int64)
    bounds = np.append(step_begin, step_begin + steps["dur_ns"].to_numpy(np.int64))
    end = begin[-1:] + dur_ns[-1:]
    bounds = np.unique(bounds[(bounds > begin[0]) & (bounds < end)] if len(begin) else bounds[:0])
    after = np.searchsorted(begin, bounds, side="right")
    inner = begin[after - 1] != bounds
    after, bounds = after[inner], bounds[inner]
    start_ns = np.insert(begin, after, bounds)
    row = step_at(steps, start_ns).astype(np.int32)
    number, names = pd.factorize(np.append(steps["name"].to_numpy(object), OUTSIDE_STEPS))
    number = number.astype(np.min_scalar_type(-len(names)))
    dur_ns = np.empty_like(start_ns)
    np.subtract(start_ns[1:], start_ns[:-1], out=dur_ns[:-1])
    dur_ns[-1:] = end - start_ns[-1:]
    return pd.DataFrame(
        {
            "segment": np.insert(np.arange(len(begin), dtype=np.int32), after, after - 1),
            "row": row,
            "step": categorical(gather(number, row, number[-1]), names.tolist()),
            "start_ns": start_ns,
            "dur_ns": dur_ns,
        },
        copy=False,
    )


def step_names(steps: pd.DataFrame, rows: npt.NDArray[np.integer], *, outside: str = "") -> Texts:
    """Names of steps by their rows, and `outside` for -1."""
    return gather(steps["name"].to_numpy(object), rows, outside)


_COMMUNICATION, _N_BOUNDS = int(Bound.COMMUNICATION), len(Bound)
_N_SEGMENTS = 1 << 20
"""Segments of the windows that are summed by one call. A limit of memory, not of the answer."""


class PathSums(NamedTuple):
    """Sums over the segments of paths, window by window, in the order of their first segments."""

    window: I64  # Position of the window
    cause: I32  # Row of the bound, name and operator that `path_sums` returns
    event: I32  # Of communication, which is summed by event; else -1
    start_ns: I64  # When it began in the window
    dur_ns: I64

    @classmethod
    def empty(cls, n: int) -> PathSums:
        """Uninitialised sums."""
        return cls(*(np.empty(n, dtype=code) for code in ("i8", "i4", "i4", "i8", "i8")))

    def first(self, n: int) -> PathSums:
        """The first of them, without the room for others."""
        return PathSums._make(column[:n].copy() for column in self)


class _Seen(NamedTuple):
    """Row of the sums of each bound and name, and of each event, that was last added to."""

    by_name: I64
    by_event: I64


def path_sums(dag: Dag, windows: Sequence[Window]) -> tuple[PathSums, list[tuple[str, str, str]]]:
    """Time of the paths of some windows by bound, name and operator, without step numbers."""
    edges, times, opening = dag.edges, dag.events.node_ts_ns, Openings(dag)
    ends = np.array([path_end(dag, one) for one in windows], dtype=np.int64).reshape(-1, 2)
    since_ns = np.array([one.start_ns for one in windows], dtype=np.int64)
    length, first = walk_lengths(ends[:, 0].copy(), since_ns, dag.binding, edges.tail, times)
    asked = np.array(
        [
            (one.start_ns, one.end_ns, n_edges, *opening.of(one, node), *end)
            for one, n_edges, node, end in zip(
                windows, length.tolist(), first.tolist(), ends.tolist(), strict=True
            )
        ],
        dtype=np.int64,
    ).reshape(-1, 9)
    number, names = _names(dag)
    n_segments = 2 * length + 5
    rows = np.empty(int(length.max(initial=0)) + 1, dtype=np.int32)
    found = Segments.empty(int(n_segments.max(initial=0)))
    columns, rules = EdgeColumns.of(edges.columns), BoundRules.of(dag)
    parts = [PathSums.empty(0)]
    cuts = np.flatnonzero(np.diff(np.cumsum(n_segments) // _N_SEGMENTS)) + 1
    for part in np.split(np.arange(len(windows)), cuts):
        out = PathSums.empty(int(n_segments[part].sum()))
        seen = _Seen(
            np.full(len(Bound) * len(names), -1, dtype=np.int64),
            np.full(len(dag.events), -1, dtype=np.int64),
        )
        walk = (dag.binding, rows)
        n, torn = _sum(part, asked, walk, columns, rules, found, number, seen, out)
        if torn >= 0:
            raise not_tiled("the critical path", windows[torn].start_ns, windows[torn].end_ns)
        parts.append(out.first(n))
    sums = PathSums(*map(np.concatenate, zip(*parts, strict=True)))
    keys, cause = np.unique(sums.cause, return_inverse=True)
    causes = [(Bound.labels()[key // len(names)], *names[key % len(names)]) for key in keys]
    return sums._replace(cause=cause.astype(np.int32)), causes


def _names(dag: Dag) -> tuple[I32, list[tuple[str, str]]]:
    """Number of the name and operator of each event, then of no event by bound; and these."""
    n, n_bounds = len(dag.events), len(Bound)
    every = Segments.empty(n + n_bounds)
    every.event[:n], every.event[n:], every.edge[:] = np.arange(n), -1, -1
    every.bound[:n], every.bound[n:] = 0, np.arange(n_bounds)
    (name, names), (op, ops) = (
        _without_numbers(coded_texts(dag, every, column)) for column in ("name", "op")
    )
    keys, number = np.unique(name.astype(np.int64) * len(ops) + op, return_inverse=True)
    both = [(names[key // len(ops)], ops[key % len(ops)]) for key in keys.tolist()]
    return number.astype(np.int32), both


def _without_numbers(column: Coded) -> tuple[npt.NDArray[np.integer], Sequence[str]]:
    texts = np.array([without_step_number(text) for text in column.texts], dtype=object)
    return Coded(column.codes, texts).distinct


@compiled
def _sum(  # noqa: PLR0917 - compiled
    part: I64,
    windows: I64,
    walk: tuple[I32, I32],
    edges: EdgeColumns,
    rules: BoundRules,
    found: Segments,
    number: I32,
    seen: _Seen,
    out: PathSums,
) -> tuple[int, int]:
    """Fill the sums of some windows; return their number, and a window that is not tiled, or -1.

    Of each window: start, end, number of edges, what `Openings` says, and what `path_end` says.
    """
    binding, rows = walk
    n_names, n_events = len(seen.by_name) // _N_BOUNDS, len(seen.by_event)
    n, torn = 0, -1
    for window in part:
        length, node, closing = windows[window, 2], windows[window, 7], windows[window, 8]
        for position in range(length - 1, -1, -1):
            rows[position] = binding[node]
            node = edges.tail[binding[node]]
        if closing >= 0:
            rows[length] = closing
            length += 1
        n_found, tiles = added_window(0, found, windows[window], (rows, 0, length), edges, rules)
        if not tiles:
            torn = window
        begun = n
        for segment in range(n_found):
            event, bound = found.event[segment], found.bound[segment]
            name = number[event] if event >= 0 else number[n_events + bound]
            key = bound * n_names + name
            apart = bound == _COMMUNICATION and event >= 0
            row = seen.by_event[event] if apart else seen.by_name[key]
            if row < begun:
                row = n
                n += 1
                if apart:
                    seen.by_event[event] = row
                else:
                    seen.by_name[key] = row
                out.window[row] = window
                out.cause[row] = key
                out.event[row] = event if apart else -1
                out.start_ns[row] = found.start_ns[segment]
                out.dur_ns[row] = 0
            out.dur_ns[row] += found.dur_ns[segment]
    return n, torn
