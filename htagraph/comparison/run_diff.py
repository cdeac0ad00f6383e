"""RunDiff: what changed from one run to another, per step, beyond noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.welch import Sample
from htagraph.comparison.causes import Tables, causes_in_words
from htagraph.comparison.comparability import why_not_comparable
from htagraph.comparison.noise import LEAST_CHANGE, noise_ns
from htagraph.comparison.run_profile import OTHER, PATH_PARTS, RunProfile
from htagraph.errors import GraphError, QueryError
from htagraph.model.frames import STEP_DIFF
from htagraph.model.schema import categorical
from htagraph.model.units import human_duration

__all__ = ["CHANGES", "RunDiff"]

I64 = npt.NDArray[np.int64]

CHANGES = ("added", "removed", "grown", "shrunk", "noise", "unknown")
"""The change of a group: beyond noise, within it, or unknown of too few steps."""

_NOISE, _UNKNOWN = CHANGES.index("noise"), CHANGES.index("unknown")
_KEY = ["bound", "name"]
_VALUES = ["calls", "total_ns", "std_ns", "first_ns", "last_ns", "least_ns", "most_ns"]
_LARGE = 0.05
"""Noise from which a verdict warns that it hides smaller changes.

Chosen, as `DEFAULT_FAIL_ABOVE`. Pinned by `test_run_diff.py::test_much_noise_hides_changes`.
"""


@dataclass(frozen=True, repr=False)
class RunDiff:
    """Two runs compared step by step: means of the steps that are alike; made by `diff`.

    Parameters
    ----------
    before, after : RunProfile

    Examples
    --------
    >>> import htagraph as hg
    >>> before, after = (hg.load(hg.demo_trace(name)) for name in ("dataloader", "none"))
    >>> hg.diff(before, after).runs
    RunDiff(Steps are 44.2% faster (7.92 ms -> 4.42 ms, noise 22.1%): -6.56 ms of data loading ...)
    """

    before: RunProfile
    after: RunProfile

    @cached_property
    def steps(self) -> pd.Series:
        """The row of `STEP_DIFF` for whole steps: their mean before and after."""
        return self._table("step").iloc[0]

    @property
    def delta_ns(self) -> int:
        """How much longer steps are, on average."""
        return int(self.steps["delta_ns"])

    @property
    def delta_share(self) -> float:
        """How much longer steps are, as a share of what they were."""
        return self.delta_ns / max(self.before.step_ns, 1.0)

    @property
    def noise_share(self) -> float:
        """The largest difference that counts as noise, as a share; infinite for too few steps."""
        return float(self.steps["noise_ns"]) / max(self.before.step_ns, 1.0)

    @property
    def is_change(self) -> bool:
        """Whether steps differ by more than noise."""
        return bool(self.steps["change"] in ("grown", "shrunk"))

    @cached_property
    def not_comparable(self) -> tuple[str, ...]:
        """Why the runs cannot be compared; empty if they can."""
        return why_not_comparable(self.before, self.after)

    def critical_path(self, *, by: Literal["bound", "op", "name"] = "bound") -> pd.DataFrame:
        """Change of the critical path per step; it adds up to that of the steps.

        Parameters
        ----------
        by : {"bound", "op", "name"}

        Returns
        -------
        DataFrame, schema `frames.STEP_DIFF`
            The largest change first.

        Raises
        ------
        QueryError
            If `by` is none of these.
        """
        if by not in PATH_PARTS:
            raise QueryError(
                f"steps cannot be compared by {by!r}.",
                hint="by bound, op or name; graphs also by kind, track and rule: "
                "hg.diff(before, after).critical_path(by=...).",
            )
        frame = self._table(by)
        if int(frame["delta_ns"].sum()) != self.delta_ns:
            raise GraphError(f"the differences by {by} do not add up to that of the steps.")
        return frame

    def kernels(self) -> pd.DataFrame:
        """Device work per step: added, removed, grown and shrunk; schema `frames.STEP_DIFF`."""
        return self._table("kernel")

    def ops(self) -> pd.DataFrame:
        """Host operators per step, with what they call; schema `frames.STEP_DIFF`."""
        return self._table("operator")

    def device_time(self) -> pd.DataFrame:
        """States of devices per step, including idle, on average; schema `frames.STEP_DIFF`."""
        return self._table("device")

    def verdict(self) -> str:
        """What changed, by how much, and why, in a sentence or two; or why that is not said."""
        if self.not_comparable:
            return f"Not comparable: {'; '.join(self.not_comparable)}."
        return " ".join([self._sentence, *self._odd_ones])

    @property
    def _sentence(self) -> str:
        """How much steps changed, and why."""
        several = self.before.unit == self.after.unit == "step"
        subject = "Steps take" if several else "It takes"
        before, after = (human_duration(run.step_ns) for run in (self.before, self.after))
        share, noise = self.delta_share, self.noise_share
        if self.steps["change"] == "noise":
            if noise > _LARGE and abs(share) > LEAST_CHANGE:
                return (
                    f"{subject} {after}, {before} before ({share:+.1%}): within noise, which is "
                    f"{noise:.1%} and hides smaller changes."
                )
            hidden = ", which hides smaller changes" if noise > _LARGE else ""
            return (
                f"No change: {subject.lower()} {after} ({share:+.1%}, noise {noise:.1%}{hidden})."
            )
        by_bound, by_op, by_name = (self._table(part) for part in PATH_PARTS)
        causes = causes_in_words(Tables(by_bound, by_op, by_name, self.kernels()))
        because = f": {causes}" if causes and (self.is_change or not several) else ""
        if self.is_change:
            how = "slower" if share > 0 else "faster"
            return (
                f"Steps are {abs(share):.1%} {how} ({before} -> {after}, noise {noise:.1%})"
                f"{because}."
            )
        few = " and ".join(
            f"{run.n_compared} {side}"
            for side, run in (("before", self.before), ("after", self.after))
        )
        what = "alike steps" if several else "windows"
        return (
            f"{before} -> {after} ({share:+.1%}); {few} {what} are too few to tell this from "
            f"noise{because}."
        )

    @property
    def _odd_ones(self) -> list[str]:
        """A note on more outlier steps than before, which the mean of the others does not show."""
        n_before, n_after = self.before.n_odd, self.after.n_odd
        if n_after * self.before.n_steps <= n_before * self.after.n_steps:
            return []
        several = f"{n_after} of {self.after.n_steps} steps after, {n_before} of "
        return [f"{several}{self.before.n_steps} before, are outliers, and not compared."]

    @property
    def notes(self) -> list[str]:
        """Notes for the reader: what is compared, and which steps are left out."""
        said = []
        for side, run in (("before", self.before), ("after", self.after)):
            said.append(f"{side}: {run.facts}")
            said += [f"{side}, left out: {step}" for step in run.left_out]
        return said

    def _table(self, part: str) -> pd.DataFrame:
        """Groups of one part on both sides."""
        sides = [run.frame[run.frame["part"] == part] for run in (self.before, self.after)]
        frames = [
            _folded(one, other).set_index(_KEY)[_VALUES]
            for one, other in (sides, reversed(sides))  # each by what the other has
        ]
        keys = frames[0].index.union(frames[1].index, sort=False)
        before, after = (frame.reindex(keys, fill_value=0) for frame in frames)
        before_ns = _means(before, self.before.n_compared)
        after_ns = _means(after, self.after.n_compared)
        delta_ns = after_ns - before_ns
        noise = noise_ns(
            _sample(before, self.before.n_compared),
            _sample(after, self.after.n_compared),
            first=self.before.has_first and self.after.has_first,
            last=part in PATH_PARTS and self.before.has_last and self.after.has_last,
            parts=part != "step",
        )
        change = np.select(
            [
                np.isinf(noise),
                np.abs(delta_ns) <= noise,
                (before["total_ns"] == 0).to_numpy(),
                (after["total_ns"] == 0).to_numpy(),
                delta_ns > 0,
            ],
            [_UNKNOWN, _NOISE, 0, 1, 2],
            default=3,
        )
        frame = STEP_DIFF.frame(
            {
                "bound": keys.get_level_values("bound").to_numpy(object),
                "name": keys.get_level_values("name").to_numpy(object),
                "change": categorical(change, CHANGES),
                "calls_before": before["calls"].to_numpy(float),
                "calls_after": after["calls"].to_numpy(float),
                "before_ns": before_ns,
                "after_ns": after_ns,
                "delta_ns": delta_ns,
                "noise_ns": noise,
            }
        )
        order = np.lexsort((np.arange(len(frame)), -np.abs(delta_ns)))
        return frame.take(order).reset_index(drop=True)

    def __repr__(self) -> str:
        """Say what changed."""
        return f"RunDiff({self.verdict()})"


def _means(side: pd.DataFrame, n: int) -> I64:
    """Means per step as whole nanoseconds that add up to the rounded mean of all."""
    until = np.rint(np.cumsum(side["total_ns"].to_numpy(np.int64)) / n).astype(np.int64)
    return np.diff(until, prepend=np.int64(0))


def _sample(side: pd.DataFrame, n: int) -> Sample:
    """Statistics of each group over the steps of a side."""
    total, *others = (side[name].to_numpy(float) for name in _VALUES[1:])
    return Sample(n, total / n, *others)


def _folded(side: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Groups of a side; those that the other side may have within its `OTHER` join this one's.

    The other side keeps its longest groups: a group without a row is absent there, or shorter than
    the shortest row.
    """
    is_other = other["name"] == OTHER
    if not is_other.any():
        return side
    least_ns = other.loc[~is_other, "total_ns"].min()
    known = set(zip(other["bound"], other["name"], strict=True))
    keys = list(zip(side["bound"], side["name"], strict=True))
    joins = np.array([key not in known for key in keys], dtype=bool)
    joins &= (side["total_ns"] <= least_ns).to_numpy() | (side["name"] == OTHER).to_numpy()
    named = side.assign(bound=side["bound"].mask(joins, ""), name=side["name"].mask(joins, OTHER))
    joined: pd.DataFrame = named.groupby(_KEY, as_index=False, sort=False)[_VALUES].sum()
    return joined
