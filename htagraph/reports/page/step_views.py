"""Steps to choose from, with the critical path in each, of a rank or of a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from htagraph.algorithms.intervals import sum_by_code
from htagraph.explain.breakdown import sum_by
from htagraph.job.path import JobPath
from htagraph.lookup.steps import find_steps
from htagraph.model.arrays import I64
from htagraph.model.frames import BREAKDOWN
from htagraph.model.kinds import Bound, bound_in_words
from htagraph.model.schema import categorical
from htagraph.model.units import human_duration
from htagraph.path import CriticalPath

__all__ = ["StepChoice", "StepView", "job_step_choice", "step_choice"]

_MAX_STEPS = 12
"""Steps in the page: chosen, each adds two tables to the file."""
_LONGEST = 15
"""Segments listed for a step: chosen."""
_MIN_SHARE = 0.05
"""Share of the step from which a bound is in its summary: chosen."""


class _Steps(NamedTuple):
    """The segments of a path: some in words, and the bound of all; and its pieces by step."""

    segments_at: Callable[[I64], pd.DataFrame]
    bound: pd.Series[Any]
    pieces: pd.DataFrame


@dataclass(frozen=True)
class StepView:
    """A step: the path in it by bound, and its longest segments.

    Parameters
    ----------
    start_ns, end_ns : int, unit=ns
        First and last time of the path in the step.
    bounds : DataFrame, schema `frames.BREAKDOWN`
        With a column ``bound``; adds up to `dur_ns`.
    longest : DataFrame
        The longest segments, cut to the step; `segments` has their rows in the path.
    """

    name: str
    start_ns: int
    end_ns: int
    bounds: pd.DataFrame
    longest: pd.DataFrame
    segments: tuple[int, ...]

    @property
    def dur_ns(self) -> int:
        """Time of the path in the step."""
        return int(self.bounds["dur_ns"].sum())

    @property
    def summary(self) -> str:
        """Length of the step and its largest bounds."""
        shares = [
            f"{share:.0%} {bound_in_words(bound)}"
            for bound, share in zip(self.bounds["bound"], self.bounds["share"], strict=True)
            if share >= _MIN_SHARE
        ]
        return f"{human_duration(self.dur_ns)}, {' and '.join(shares[:2])}"


@dataclass(frozen=True)
class StepChoice:
    """The window and the steps in it to choose from.

    Parameters
    ----------
    window : str
        Name and length of the window.
    views : tuple of StepView
        In order of time.
    left_out : tuple of str
        Names and lengths of further steps.
    """

    window: str
    start_ns: int
    views: tuple[StepView, ...]
    left_out: tuple[str, ...] = ()


def step_choice(path: CriticalPath, window: str, usual: str = "") -> StepChoice:
    """Steps of the path of a rank, cut at the boundaries of steps.

    Parameters
    ----------
    window : str
        Its name.
    usual : str
        Name of a step that is always included.
    """
    steps = find_steps(path.dag.events)
    pieces = path.pieces(steps)
    bound = pd.Series(categorical(path.coded.bound, Bound.labels()))
    steps_of_path = _Steps(path.segments_at, bound, pieces)
    return _choice(steps_of_path, (window, path.window.start_ns, path.dur_ns), usual)


def job_step_choice(path: JobPath, window: str) -> StepChoice:
    """Steps of the path of a job; time counts to the step in which it begins on its rank."""
    pieces = path.attributed_time[["segment", "step", "start_ns", "dur_ns"]]
    pieces = pieces[pieces["step"] != ""]
    row = pieces.groupby("step", sort=False).ngroup()
    steps = _Steps(path.segments_at, path.segments["bound"], pieces.assign(row=row))
    return _choice(steps, (window, path.start_ns, path.dur_ns), "")


def _choice(path: _Steps, window: tuple[str, int, int], usual: str) -> StepChoice:
    """The longest steps, and names of the others."""
    name, start_ns, dur_ns = window
    row, times = path.pieces["row"], path.pieces["dur_ns"].to_numpy(np.int64)
    steps = path.pieces[~row.duplicated() & (row >= 0)].set_index("row")[["step"]]
    time_ns = sum_by_code(row.to_numpy() + 1, times, int(row.max()) + 2 if len(row) else 1)
    steps["dur_ns"] = time_ns[steps.index.to_numpy() + 1]
    first = (steps["step"] == usual).to_numpy()
    order = np.lexsort((-steps["dur_ns"].to_numpy(np.int64), ~first))
    kept = np.zeros(len(steps), dtype=bool)
    kept[order[:_MAX_STEPS]] = True
    shown = steps.index[kept]
    pieces = path.pieces[path.pieces["row"].isin(shown)]
    views = [_view(path, pieces[pieces["row"] == row]) for row in shown]
    others = steps[~kept]
    return StepChoice(
        f"{name}, {human_duration(dur_ns)}",
        start_ns,
        tuple(views),
        tuple(
            f"{step}, {human_duration(dur)}"
            for step, dur in zip(others["step"], others["dur_ns"].tolist(), strict=True)
        ),
    )


def _view(path: _Steps, pieces: pd.DataFrame) -> StepView:
    """One step from its pieces of the path."""
    start_ns = pieces["start_ns"].to_numpy(np.int64)
    inside = pieces.groupby("segment", sort=True).agg(
        start_ns=("start_ns", "min"), dur_ns=("dur_ns", "sum")
    )
    inside = inside.assign(bound=path.bound.iloc[inside.index.to_numpy()].array)
    total_ns = int(inside["dur_ns"].sum())
    longest = inside.sort_values("dur_ns", ascending=False, kind="stable").head(_LONGEST)
    rows = longest.index.to_numpy(np.int64)
    named = path.segments_at(rows).assign(
        start_ns=longest["start_ns"].to_numpy(), dur_ns=longest["dur_ns"].to_numpy()
    )
    shown = ("rank", "start_ns", "dur_ns", "bound", "name", "op", "track")
    return StepView(
        str(pieces["step"].iloc[0]),
        int(start_ns.min()),
        int((start_ns + pieces["dur_ns"].to_numpy(np.int64)).max()),
        sum_by(inside, "bound", total_ns, BREAKDOWN).rename_axis("bound").reset_index(),
        named[[name for name in shown if name in named.columns]],
        tuple(rows.tolist()),
    )
