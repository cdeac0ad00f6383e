"""Sums over segments, by group and by step; the parts add up to the whole."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.errors import GraphError, QueryError
from htagraph.lookup.steps import step_at
from htagraph.model.schema import Schema

__all__ = ["OUTSIDE_STEPS", "split_by_steps", "sum_by"]

OUTSIDE_STEPS = "(outside steps)"
"""Group of what lies in no step."""


def sum_by(
    segments: pd.DataFrame, by: str, total_ns: int, schema: Schema, *, sort: bool = True
) -> pd.DataFrame:
    """Return the time of segments by one of their columns.

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
            hint="by bound, kind, name, op, lane, rule or step.",
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
    """Return the segments cut at the boundaries of steps, with the name of the step of each piece.

    Parameters
    ----------
    segments : DataFrame, schema `frames.SEGMENTS`
    steps : DataFrame, schema `frames.STEPS`
        Steps that overlap are cut where the next one starts.

    Returns
    -------
    DataFrame
        Columns ``step`` and ``dur_ns``, in order of time.
    """
    if not len(segments):
        return pd.DataFrame(
            {"step": pd.Series([], dtype=object), "dur_ns": pd.Series([], dtype="int64")}
        )
    begin = segments["start_ns"].to_numpy(np.int64)
    end = begin + segments["dur_ns"].to_numpy(np.int64)
    step_begin = steps["start_ns"].to_numpy(np.int64)
    step_end = step_begin + steps["dur_ns"].to_numpy(np.int64)
    cuts = np.unique(
        np.concatenate(
            [begin, end, np.clip(np.concatenate([step_begin, step_end]), begin[0], end[-1])]
        )
    )
    names = np.append(steps["name"].to_numpy(dtype=object), OUTSIDE_STEPS)[
        step_at(steps, cuts[:-1])
    ]
    return pd.DataFrame({"step": names, "dur_ns": np.diff(cuts)})
