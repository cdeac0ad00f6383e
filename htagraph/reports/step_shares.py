"""The critical path step by step: how long each step took, and what limits it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code
from htagraph.explain.breakdown import OUTSIDE_STEPS, step_names
from htagraph.model.arrays import I64
from htagraph.model.frames import STEP_SHARES
from htagraph.model.kinds import Bound
from htagraph.path import CriticalPath


def time_by_step(path: CriticalPath) -> tuple[pd.DataFrame, I64]:
    """Steps of the trace, and the time of the path in each by bound; the last row is outside steps.

    Returns
    -------
    steps : DataFrame
        ``name``, ``start_ns``, ``dur_ns``.
    time_ns : ndarray of shape (n_steps + 1, n_bounds), dtype=int64, unit=ns
    """
    steps, pieces = path.steps.frame, path.pieces
    code = pieces["row"].to_numpy() + 1  # from 0, which is outside steps
    code *= len(Bound)
    code += gather(path.bounds, pieces["segment"].to_numpy())
    table = sum_by_code(code, pieces["dur_ns"].to_numpy(), (len(steps) + 1) * len(Bound))
    return steps, np.roll(table.reshape(-1, len(Bound)), -1, axis=0)


def step_shares(path: CriticalPath) -> pd.DataFrame:
    """Bounds of each step that the window touches, then of the time outside steps.

    Returns
    -------
    DataFrame, schema `frames.STEP_SHARES`
        Empty if the window touches no step.
    """
    steps, table = time_by_step(path)
    if not table[:-1].any():
        return STEP_SHARES.empty()
    total = table.sum(axis=1)
    rows = np.flatnonzero(total)
    order = np.argsort(-table[rows], axis=1, kind="stable")[:, :2]
    share = np.take_along_axis(table[rows], order, axis=1) / total[rows][:, None]
    labels = np.array([*Bound.labels(), ""], dtype=object)
    order = np.where(share > 0, order, len(labels) - 1)
    return STEP_SHARES.frame(
        {
            "step": step_names(
                steps, np.append(np.arange(len(steps)), -1)[rows], outside=OUTSIDE_STEPS
            ),
            "dur_ns": total[rows],
            "bound": labels[order[:, 0]],
            "bound_share": share[:, 0],
            "next_bound": labels[order[:, 1]],
            "next_share": share[:, 1],
        }
    )
