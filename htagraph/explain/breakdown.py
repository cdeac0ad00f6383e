"""Sums over segments, by group and by step; the parts add up to the whole."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.errors import GraphError, QueryError, one_of
from htagraph.lookup.steps import step_at
from htagraph.model.schema import Schema

__all__ = ["OUTSIDE_STEPS", "split_by_steps", "step_names", "sum_by"]

_KEYS = ("bound", "kind", "name", "op", "track", "rule", "step")

OUTSIDE_STEPS = "(outside steps)"
"""Group of what lies in no step."""


def sum_by(
    segments: pd.DataFrame, by: str, total_ns: int, schema: Schema, *, sort: bool = True
) -> pd.DataFrame:
    """Time of segments by one of their columns.

    Parameters
    ----------
    segments : DataFrame
        With ``dur_ns`` and the column `by`.
    by : str
    total_ns : int, unit=ns
        What the parts must add up to.
    schema : Schema
    sort : bool, default=True
        Largest first; else in order of appearance.

    Returns
    -------
    DataFrame, indexed by group

    Raises
    ------
    QueryError
        If there is no such column.
    GraphError
        If the parts do not add up: a defect of this package.
    """
    if by not in segments.columns or by in ("start_ns", "dur_ns", "lag_ns", "residual_ns"):
        raise QueryError(
            f"a path cannot be broken down by {by!r}.",
            hint=one_of(by, _KEYS, "by"),
        )
    groups = segments.groupby(by, observed=True, sort=False)["dur_ns"]
    frame = pd.DataFrame({"dur_ns": groups.sum(), "n_segments": groups.size()})
    if int(frame["dur_ns"].sum()) != total_ns:
        raise GraphError(f"the parts by {by} do not add up to {total_ns:,} ns.")
    frame["share"] = frame["dur_ns"] / max(total_ns, 1)
    if sort:
        frame = frame.sort_values("dur_ns", ascending=False, kind="stable")
    if isinstance(frame.index, pd.CategoricalIndex):
        frame.index = pd.Index(frame.index.astype(object), name=by)
    return frame[list(schema.columns)]


def split_by_steps(segments: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Segments cut at the boundaries of steps.

    Parameters
    ----------
    segments : DataFrame, schema `frames.SEGMENTS`
        They tile a window.
    steps : DataFrame, schema `frames.STEPS`
        Steps that overlap are cut where the next one starts.

    Returns
    -------
    DataFrame
        Pieces in order of time: ``segment``, the row of `segments`; ``row``, that of `steps`, -1
        outside them; ``step``, its name; and ``dur_ns``.
    """
    begin = segments["start_ns"].to_numpy(np.int64)
    end = begin + segments["dur_ns"].to_numpy(np.int64)
    step_begin = steps["start_ns"].to_numpy(np.int64)
    step_end = step_begin + steps["dur_ns"].to_numpy(np.int64)
    bounds = np.concatenate([step_begin, step_end])
    inside = np.clip(bounds, begin[0], end[-1]) if len(begin) else bounds[:0]
    cuts = np.unique(np.concatenate([begin, end, inside]))
    row = step_at(steps, cuts[:-1])
    return pd.DataFrame(
        {
            "segment": np.searchsorted(begin, cuts[:-1], side="right") - 1,
            "row": row,
            "step": step_names(steps, row, outside=OUTSIDE_STEPS),
            "dur_ns": np.diff(cuts),
        }
    )


def step_names(
    steps: pd.DataFrame, rows: npt.NDArray[np.integer], *, outside: str = ""
) -> npt.NDArray[np.object_]:
    """Names of steps by their rows, and `outside` for -1."""
    return gather(steps["name"].to_numpy(object), rows, outside)
