"""The critical path step by step: how long each step took, and what bounds it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.model.frames import Column, Schema
from htagraph.model.kinds import Bound
from htagraph.path import CriticalPath
from htagraph.queries.breakdown import OUTSIDE_STEPS
from htagraph.queries.steps import find_steps

__all__ = ["STEP_SHARES", "step_shares"]

STEP_SHARES = Schema(
    "STEP_SHARES",
    {
        "step": Column("object", "name", "name of the step, or `(outside steps)`"),
        "dur_ns": Column("int64", "ns", "time of the path in the step; adds up to the window"),
        "bound": Column("object", "Bound", "what most of it goes to"),
        "bound_share": Column("float64", "share", "that part of the step"),
        "next_bound": Column("object", "Bound", "what goes to next, empty for nothing"),
        "next_share": Column("float64", "share", "that part of the step"),
    },
)


def step_shares(path: CriticalPath) -> pd.DataFrame:
    """Return what bounds each step that the window touches; what lies in no step comes last.

    Parameters
    ----------
    path : CriticalPath
        Cut at the boundaries of steps; steps that overlap are cut where the next one starts.

    Returns
    -------
    DataFrame, schema `STEP_SHARES`
        Empty where the trace has no steps.
    """
    steps, segments = find_steps(path.dag.events), path.segments
    if not len(steps) or not len(segments):
        return STEP_SHARES.empty()
    begin = segments["start_ns"].to_numpy()
    step_begin = steps["start_ns"].to_numpy()
    step_end = step_begin + steps["dur_ns"].to_numpy()
    start_ns, end_ns = path.window.start_ns, path.window.end_ns
    step_bounds = np.clip(np.concatenate([step_begin, step_end]), start_ns, end_ns)
    cuts = np.unique(np.concatenate([begin, step_bounds, [start_ns, end_ns]]))
    at, dur = cuts[:-1], np.diff(cuts)
    step = np.searchsorted(step_begin, at, side="right") - 1
    step = np.where((step >= 0) & (at < step_end[np.maximum(step, 0)]), step, len(steps))
    codes = segments["bound"].cat.codes.to_numpy()[np.searchsorted(begin, at, side="right") - 1]
    table = np.zeros((len(steps) + 1, len(Bound)), dtype=np.int64)
    np.add.at(table, (step, codes), dur)
    total = table.sum(axis=1)
    rows = np.flatnonzero(total)
    order = np.argsort(-table[rows], axis=1, kind="stable")[:, :2]
    share = np.take_along_axis(table[rows], order, axis=1) / total[rows][:, None]
    labels = np.array([*segments["bound"].cat.categories, ""], dtype=object)
    order = np.where(share > 0, order, len(labels) - 1)
    return STEP_SHARES.frame(
        {
            "step": np.array([*steps["name"], OUTSIDE_STEPS], dtype=object)[rows],
            "dur_ns": total[rows],
            "bound": labels[order[:, 0]],
            "bound_share": share[:, 0],
            "next_bound": labels[order[:, 1]],
            "next_share": share[:, 1],
        }
    )
