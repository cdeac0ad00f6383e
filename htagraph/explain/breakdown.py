"""Sums over segments, by group and by step; the parts add up to the whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code
from htagraph.errors import GraphError, QueryError, one_of
from htagraph.lookup.steps import step_at
from htagraph.model.arrays import I64, Texts
from htagraph.model.schema import Schema, categorical

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

    Parameters
    ----------
    parts : iterable of (codes, labels, dur_ns)
        Some of the segments each, at least one part: the position of each segment's label, all
        labels, which are the same in all parts, and the length of each segment in ns.
    by : str
        Name of the label column.
    total_ns : int, unit=ns
        What the parts must add up to.

    Raises
    ------
    GraphError
        If the parts do not add up: a bug in htagraph.

    Examples
    --------
    >>> part = np.array([1, 0, 1]), ["a", "b"], np.array([2, 4, 4])
    >>> sums = label_sums([part], "name", 10)
    >>> [column.tolist() for column in sums.values()]
    [['b', 'a'], [6, 4], [0.6, 0.4], [2, 1]]
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
    """Time of segments by one of their columns.

    Parameters
    ----------
    segments : DataFrame
        With ``dur_ns`` and the column `by`.
    total_ns : int, unit=ns
        What the parts must add up to.
    sort : bool, default=True
        Largest first; else in order of appearance.

    Raises
    ------
    QueryError
        If there is no such column.
    GraphError
        If the parts do not add up: a bug in htagraph.
    """
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
    """Segments cut at the boundaries of steps.

    Parameters
    ----------
    begin, dur_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Of segments that tile a window.
    steps : DataFrame, schema `frames.STEPS`
        An overlapping step ends where the next one starts.

    Returns
    -------
    DataFrame
        Pieces in order of time: ``segment``, the row of its segment; ``row``, that of `steps`, -1
        outside them; ``step``, its name; ``start_ns`` and ``dur_ns``.
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
