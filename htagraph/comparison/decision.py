"""Decision: whether a change saved what was predicted, by recordings before and after it.

Two recordings of one program differ by more than their steps tell: another program runs, caches
are warm, clocks drift. So a recording is one sample, whatever its number of steps, and its error is
at least `_BETWEEN` with the spread of single steps (steps of one recording share what is wrong with
it). Where there are several recordings of a side, their spread counts as well: both are pooled as
`_FREEDOM` degrees of freedom and those of the recordings, and give Student's interval of 99%.

Where steps vary, what differs in every step by more than any load explains is a change all the
same (`RunDiff.certain_ns`): it was never seen without one.

A machine that is faster or slower after the change moves all work. So the work that the change does
not touch is a clock: the median of by how much more time it takes. What is claimed has to hold by
the steps as measured, and by this clock. ``docs/try.md`` has measured decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, isfinite, log, log1p
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.welch import Error
from htagraph.comparison.causes import MATTERS
from htagraph.comparison.run_diff import RunDiff, damage_by_side
from htagraph.comparison.run_profile import OTHER, RunProfile
from htagraph.model.kinds import Bound
from htagraph.model.units import human_count, human_duration

State = Literal["confirmed", "smaller", "no effect", "worse", "not comparable", "unclear"]

_BETWEEN, _FREEDOM = 0.04, 4
"""Deviation of the mean step from recording to recording of one program, as a share, and how many
degrees of freedom it is worth. Chosen: of 288 edits that change nothing, recorded on a free and
on a loaded machine, none was confirmed (``python -m tests.benchmarks.bench_tries``). Pinned by
test_decision."""

_LEAST_PART = 0.5
"""Part of what was predicted that has to be saved to confirm it. Chosen: the other readings of a
trace move savings by less. Pinned by test_decision."""

_MOST_RUNS = 20
"""Recordings of each side that are suggested at most: more is not practical. Pinned by
test_decision."""

_UNKNOWN = 0.5
"""Spread of steps that is taken where only one was recorded: next to nothing can be decided."""

_WORK = tuple(one.label for one in (Bound.HOST, Bound.DATA_LOADING, Bound.COMPUTE, Bound.MEMORY))
"""Bounds of path time that is work of its own, and so a clock: no waits, no gaps."""

_AS_LONG = 0.99
"""Part of a call below which a replay makes it shorter: less is rounding. Pinned by test_plan."""

_AS_FAST = 0.01
"""Logarithm by which a clock has to differ to be told. Chosen. Pinned by test_decision."""

_CLOCK = 0.05
"""Share of a step that work has to take to be a clock. Chosen. Pinned by test_decision."""


class Expected(NamedTuple):
    """What a change is predicted to save, as shares of a step, before anything is measured."""

    saves: float
    # low, high: by any reading of the trace, in any recording like it
    low: float
    high: float
    touched: tuple[str, ...] = ()  # Operators and kernels of which each call is shorter, or gone

    @classmethod
    def of(
        cls, saves: float, low: float, high: float, run: RunProfile, changed: RunProfile
    ) -> Expected:
        """A prediction from one recording, widened by what recordings differ by."""
        before, after = map(_call_ns, (run, changed))
        is_shorter = after.reindex(before.index).fillna(0.0) < _AS_LONG * before
        touched = before.index[is_shorter]
        width = _noise(_square(run), 1, 1)
        low, high = (
            1 - (1 - min(end, 1.0)) * exp(by) for end, by in ((low, width), (high, -width))
        )
        return cls(saves, low, high, tuple(touched))


@dataclass(frozen=True, repr=False)
class Decision:
    """Whether a change saved what was predicted.

    Parameters
    ----------
    expected : Expected
        As shares of a step, written before anything was measured.
    before, after : tuple of RunProfile
        Recordings without and with the change; of several, in the order in which they were made.
    reasons : tuple of str, default=()
        Why they are not comparable, besides what their steps tell.
    unrecorded_ns : pair of tuple of int, default=((), ())
        How long a step takes that is not recorded, of each recording; 0: not known.
    """

    expected: Expected
    before: tuple[RunProfile, ...]
    after: tuple[RunProfile, ...]
    reasons: tuple[str, ...] = ()
    unrecorded_ns: tuple[tuple[int, ...], ...] = ((), ())

    @cached_property
    def sides(self) -> tuple[list[RunProfile], list[RunProfile]]:
        """The recordings of which most steps are like the others, where a side has any."""
        before, after = (
            [run for run in side if not run.most_are_odd] or [*side]
            for side in (self.before, self.after)
        )
        return before, after

    @cached_property
    def diffs(self) -> list[RunDiff]:
        """Each recording with its neighbor of the other side, of which the last may stay."""
        before, after = self.sides
        return [
            RunDiff(before[min(at, len(before) - 1)], after[min(at, len(after) - 1)])
            for at in range(max(map(len, self.sides)))
        ]

    @cached_property
    def not_comparable(self) -> tuple[str, ...]:
        """Why nothing can be decided; empty if something can."""
        damage = [
            said.rstrip(".")
            for found in self.diffs
            for said in damage_by_side(found.after, found.before)
        ]
        said = [why for found in self.diffs for why in (*found.not_comparable, *damage)]
        every = dict.fromkeys([*self.reasons, *said])
        return tuple(why for why in every if why not in self._restless)

    @cached_property
    def _restless(self) -> list[str]:
        """Clauses on recordings of a busy machine: their side has no others."""
        return [why for found in self.diffs for why in found.restless]

    @cached_property
    def _logs(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Logarithms of the mean step of each recording."""
        found = [
            [log(max(int(one.steps[key]), 1)) for one in self.diffs[: len(side)]]
            for key, side in zip(("before_ns", "after_ns"), self.sides, strict=True)
        ]
        return np.array(found[0]), np.array(found[1])

    @cached_property
    def _moved(self) -> float:
        """Logarithm of the change of the mean step."""
        before, after = self._logs
        return float(after.mean() - before.mean())

    @cached_property
    def _clocks(self) -> list[_Clock]:
        """What the work that the change does not touch tells about the machine."""
        return [_clock(one, self.expected.touched) for one in self.diffs]

    @property
    def clock(self) -> float:
        """By which factor that work takes longer after the change: 1 if nothing can tell."""
        return exp(float(np.mean([log(one.factor) for one in self._clocks])))

    @cached_property
    def _noise(self) -> float:
        """How far the logarithm is off in 99 of 100 cases, at most."""
        return self._noise_of(*map(len, self.sides))

    def _noise_of(self, n_before: int, n_after: int) -> float:
        """The same if there were so many recordings of this spread."""
        squares = sum(float(np.square(one - one.mean()).sum()) for one in self._logs)
        free = sum(map(len, self.sides)) - 2
        prior = _square(*self.sides[0], *self.sides[1])
        return _noise((_FREEDOM * prior + squares) / (_FREEDOM + free), n_before, n_after)

    @cached_property
    def _by_both(self) -> tuple[float, float]:
        """The change by the steps as measured, and by the clock; the longer steps first."""
        by_clock = float(np.mean([log(one.after_share) for one in self._clocks]))
        return max(self._moved, by_clock), min(self._moved, by_clock)

    @property
    def _claimed(self) -> float:
        """Of both, what claims less."""
        longer, shorter = self._by_both
        return longer if longer < 0 else shorter if shorter > 0 else self._moved

    @property
    def saved(self) -> float:
        """What steps are shorter by, as a share; negative if they are longer."""
        return 1 - exp(self._claimed)

    @property
    def interval(self) -> tuple[float, float]:
        """The least and the most that was saved, by 99 of 100 pairs of recordings."""
        return 1 - exp(self._claimed + self._noise), 1 - exp(self._claimed - self._noise)

    @cached_property
    def is_certain(self) -> bool:
        """Whether every step is shorter by what no load of a machine explains."""
        return all(
            -one.certain_ns > MATTERS * int(one.steps["before_ns"]) and isfinite(one.noise_share)
            for one in self.diffs
        )

    @cached_property
    def unrecorded(self) -> float | None:
        """What steps that are not recorded are shorter by, as a share; None if not known."""
        before, after = (np.array([ns for ns in side if ns]) for side in self.unrecorded_ns)
        if not len(before) or not len(after):
            return None
        return 1 - exp(float(np.log(after).mean() - np.log(before).mean()))

    @cached_property
    def state(self) -> State:
        """What is decided: by the steps as measured and by the clock, whichever claims less.

        Steps that are not recorded have to bear it out: recording makes some work slower.
        """
        if self.not_comparable:
            return "not comparable"
        state, share = self._by_recordings, self.unrecorded
        enough = _LEAST_PART * self.expected.saves
        bears_out = share is None or {
            "confirmed": share >= enough,
            "smaller": 0 < share < enough,
            "no effect": share < enough,
            "worse": share < 0,
        }.get(state, True)
        return state if bears_out else "unclear"

    @cached_property
    def _by_recordings(self) -> State:
        """What is decided by recorded steps."""
        if self._restless:
            return "unclear"
        least = 1 - exp(self._by_both[0])
        low, high = (
            1 - exp(end + by)
            for end, by in zip(self._by_both, (self._noise, -self._noise), strict=True)
        )
        enough = _LEAST_PART * self.expected.saves
        if (low > 0 and self._is_known) or (least > 0 and self.is_certain):
            return "confirmed" if least >= enough else "smaller" if high < enough else "unclear"
        if high < 0 and self._is_known:
            return "worse"
        # Much longer steps are none either: a busy machine may hide what is saved.
        is_near = -enough / (1 - enough) < low <= 0 <= high < enough
        return "no effect" if is_near else "unclear"

    @property
    def _is_known(self) -> bool:
        """Whether the code is the reason if steps differ: by several recordings, or all parts."""
        several = min(map(len, self.sides)) > 1
        return several or all(one.is_change for one in self.diffs)

    @property
    def n_runs(self) -> int:
        """Recordings of each side that would tell, if they spread as these; 0: no number would."""
        if self._restless or self._by_recordings != "unclear":
            return 0
        enough = -log1p(-_LEAST_PART * min(self.expected.saves, 1.0))
        fewest = max(map(len, self.sides)) + 1
        tell = (n for n in range(fewest, _MOST_RUNS + 1) if self._noise_of(n, n) < enough)
        return next(tell, 0)

    def verdict(self) -> str:
        """The decision in one sentence."""
        if self.state == "not comparable":
            return f"Not comparable: {self.not_comparable[0]}."
        before, after = (human_duration(exp(float(one.mean()))) for one in self._logs)
        takes = f"{before} a step is {after} now"
        if self._claimed > self._moved + _AS_FAST:
            takes += ", but other work is faster, too"
        part = f"{self.saved:.0%} of {self.expected.saves:.0%} predicted"
        low, high = (f"{max(end, -1.0):.0%}" for end in self.interval)
        ends = f"({low} to {high})"
        beyond = f" {ends}" if self.interval[0] > 0 else ", by what differs in every step"
        match self.state:
            case "confirmed":
                return f"Confirmed: {part} saved{beyond}; {takes}."
            case "smaller":
                return f"Smaller than predicted: {part} saved{beyond}; {takes}."
            case "worse":
                return f"Worse: {-self.saved:.0%} longer {ends}; {takes}."
            case "no effect":
                return f"No effect: {part} saved, within noise {ends}; {takes}."
        return f"Unclear: {part} saved {ends}; {takes}. {self._would_tell}"

    @property
    def _would_tell(self) -> str:
        """What would make it clear."""
        if self._restless:
            return f"{self._restless[0].capitalize()}: use a machine that does nothing else."
        if self._by_recordings != "unclear":
            said = f"they are {self._unrecorded_in_words}"
            return f"Steps that are not recorded do not bear it out: {said}."
        slower = self.clock - 1
        if self._moved + self._noise < 0:
            than = "faster" if slower < 0 else "slower"
            return (
                f"Work that the change does not touch is {abs(slower):.0%} {than}, too: the "
                "machine may be the reason. Record both sides in turn."
            )
        if not self.n_runs:
            return "Recordings differ too much to tell: use a machine that does nothing else."
        return f"{human_count(self.n_runs, 'recording')} of each side, in turn, would tell."

    @property
    def notes(self) -> list[str]:
        """What speaks for the decision: what changed most, and what recordings differ by."""
        if self.state == "not comparable":
            return [f"Also: {'; '.join(self.not_comparable[1:])}."] * (len(self.not_comparable) > 1)
        _, is_told, why = self.diffs[-1].verdict().rpartition("; ")
        said = [f"{why[0].upper()}{why[1:]}"] if is_told else []
        if self.clock != 1:
            amount = f"{abs(self.clock - 1):.0%} {'more' if self.clock > 1 else 'less'}"
            said.append(f"Work that the change does not touch takes {amount} time.")
        if self.unrecorded is not None and self.state != "unclear":
            said.append(f"Steps that are not recorded are {self._unrecorded_in_words}.")
        n = " and ".join(
            f"{human_count(len(side), 'recording')} {word}"
            for side, word in zip(self.sides, ("before", "after"), strict=True)
        )
        left = len(self.before) + len(self.after) - sum(map(len, self.sides))
        if left:
            said.append(
                f"{human_count(left, 'recording')} left out: most steps are unlike the others."
            )
        return [*said, f"{n}; noise between such recordings is {exp(self._noise) - 1:.0%}."]

    @property
    def _unrecorded_in_words(self) -> str:
        """By how much steps that are not recorded differ."""
        share = self.unrecorded or 0.0
        return f"{abs(share):.0%} {'longer' if share < 0 else 'shorter'}"

    def document(self) -> dict[str, Any]:
        """The decision as plain values, for programs.

        ``state``, ``verdict``, ``saved_share``, ``low_share``, ``high_share``,
        ``predicted_share``, ``unrecorded_share`` (of steps that are not recorded; None: not known),
        ``clock`` (the factor by which other work takes longer), ``n_before``,
        ``n_after``, ``n_runs`` (of each side that would tell; 0: not known), ``not_comparable``,
        ``notes``.
        """
        low, high = self.interval
        return {
            "state": self.state,
            "verdict": self.verdict(),
            "saved_share": self.saved,
            "low_share": low,
            "high_share": high,
            "predicted_share": self.expected.saves,
            "unrecorded_share": self.unrecorded,
            "clock": self.clock,
            "n_before": len(self.sides[0]),
            "n_after": len(self.sides[1]),
            "n_runs": self.n_runs if self.state == "unclear" else 0,
            "not_comparable": list(self.not_comparable),
            "notes": self.notes,
        }

    def __repr__(self) -> str:
        """Say what is decided."""
        return f"Decision({self.verdict()})"


def _square(*runs: RunProfile) -> float:
    """What the logarithm of the mean step of a recording differs by, squared, before any other."""
    return _BETWEEN**2 + float(np.mean(np.square([_spread(one) for one in runs])))


def _noise(square: float, n_before: int, n_after: int) -> float:
    """How far a difference of means of recordings is off in 99 of 100 cases, at most."""
    of_means = square * (1 / n_before + 1 / n_after)
    freedom = float(_FREEDOM + n_before + n_after - 2)
    return float(Error(np.array(of_means), np.array(freedom)).half_width)


def _spread(run: RunProfile) -> float:
    """Standard deviation of single steps, as a share."""
    whole = run.usual.frame[run.usual.frame["part"] == "step"]
    n = np.array([one.n_compared for one in run.usual.kinds])[whole["kind"]]
    known = whole[n > 1]
    if known.empty:
        return _UNKNOWN
    mean_ns = known["total_ns"] / n[n > 1]
    return float((known["std_ns"] / mean_ns.clip(lower=1)).max())


def _call_ns(run: RunProfile) -> pd.Series:
    """How long a call of each operator and kernel takes."""
    rows = run.frame[run.frame["part"].isin(("operator", "kernel"))]
    n_calls = rows["calls"] * np.array([one.n_compared for one in run.kinds])[rows["kind"]]
    both = rows.assign(n_calls=n_calls).groupby("name")[["total_ns", "n_calls"]].sum()
    return both["total_ns"] / both["n_calls"].clip(lower=1)


class _Clock(NamedTuple):
    """The work that a change does not touch, as a clock of the machine."""

    factor: float  # By which it takes longer after the change
    after_share: float  # Of a step before, what one takes after it by this clock


def _clock(found: RunDiff, touched: Sequence[str]) -> _Clock:
    """The clock of two recordings; if nothing can tell, the machine is the same."""
    before_ns, after_ns = (max(float(found.steps[key]), 1.0) for key in ("before_ns", "after_ns"))
    same = _Clock(1.0, after_ns / before_ns)
    if found.not_comparable:
        return same
    path = found.critical_path(by="name")
    work = _untouched(path[path["bound"].isin(_WORK)], touched)
    frame = _untouched(found.kernels(), touched)
    frame = frame if len(frame) else work
    if float(frame["before_ns"].sum()) < _CLOCK * before_ns:
        return same
    each = (frame["after_ns"] / frame["before_ns"]).sort_values()
    weight = frame.loc[each.index, "before_ns"].cumsum()
    factor = float(each.iloc[int(np.searchsorted(weight, weight.iloc[-1] / 2))])
    rest_ns = max(after_ns - float(work["after_ns"].sum()), 0.0) / factor
    return _Clock(factor, (float(work["before_ns"].sum()) + rest_ns) / before_ns)


def _untouched(frame: pd.DataFrame, touched: Sequence[str]) -> pd.DataFrame:
    """Work of both runs that the change does not touch."""
    is_both = (frame["before_ns"] > 0) & (frame["after_ns"] > 0)
    return frame[is_both & ~frame["name"].isin([OTHER, *touched])]
