"""RunDiff: what changed from one run to another, per step, beyond noise.

A difference of means is a change if it exceeds both what such means differ by in 99 of 100
comparisons without a change (`htagraph.arrays.welch`) and `LEAST_CHANGE` of the earlier value.
Means, not medians: they add up, so the differences of all bounds sum to that of the steps, to the
nanosecond. One slow step cannot move the mean far: steps far from the median are not typical
(`htagraph.lookup.steady_steps`), and are named instead.

Where steps come in kinds, a run is a sum: of each kind the mean, as often as it occurs. So are its
errors; each kind needs two steps in both runs, and no more than its own spread counts.

The first step of a trace starts with an idle device, and is left out if three others remain. Among
three steps it stays, and what sets it apart is taken to be the same in both runs. The path of the
last step ends with device work, that of the others with the next launches, so its parts say nothing
about their spread. If both runs have as many steps, the interval without these ends
(`ends_apart`) counts if it is narrower; else both ends are part of the spread.

If a change makes something else the bottleneck, parts of steps vary in other ways than before. So a
part has also changed if all steps of one run lie farther from all of the other than the steps of
either lie apart (`range_if_apart`).

The rule cannot see how runs differ as a whole: another node, another GPU clock. ``docs/gate.md``
has measured false alarms, and what to do about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.welch import FEWEST, Error, Sample, ends_apart, range_if_apart, welch
from htagraph.comparison.causes import (
    ALL_ALIKE,
    MATTERS,
    Causes,
    Tables,
    causes_of,
    in_every_step,
    where_in_words,
)
from htagraph.comparison.comparability import (
    Pairs,
    SharedWork,
    do_the_same_elsewhere,
    matched_kinds,
    other_work,
    restless,
    shared_work,
    why_not_comparable,
)
from htagraph.comparison.run_profile import KERNEL_PARTS, OTHER, PATH_PARTS, Kind, RunProfile
from htagraph.errors import GraphError, QueryError, one_of
from htagraph.lookup.work_groups import ComparedBy
from htagraph.model.arrays import F64, I64, Bools
from htagraph.model.frames import SHAPE_DIFF, STEP_DIFF
from htagraph.model.labels import name_label
from htagraph.model.schema import categorical
from htagraph.model.units import human_duration, human_number, human_percent
from htagraph.writers.answering import answers

LEAST_CHANGE = 0.01
"""Share by which a time must differ to count as changed, however small its spread. Chosen: runs of
one program differ as much for reasons that no capture shows. Documented in `docs/gate.md`, and
pinned by `test_run_diff.py::test_a_run_must_differ_by_one_percent`."""


def noise_ns(
    before: Sequence[Sample],
    after: Sequence[Sample],
    *,
    first: Sequence[bool] = (),
    last: Sequence[bool] = (),
    parts: bool = False,
) -> F64:
    """The largest difference of means that counts as noise; infinite for too few steps.

    `before`, `after`: times of one or several groups in the steps of each kind, unit=ns. A run is
    their sum. `first`, `last`: of each kind, whether its first or last step is unlike the others in
    both runs. `parts`: they are parts of steps, not steps.
    """
    least = LEAST_CHANGE * np.sum([one.mean for one in before], axis=0)
    fewest = min(one.n for one in (*before, *after))
    if fewest < (FEWEST if len(before) == 1 else 2):
        return np.full_like(least, np.inf)
    unlike = zip_longest(range(len(before)), first, last, fillvalue=False)
    errors = [
        _error(before[kind], after[kind], first=is_first, last=is_last)
        for kind, is_first, is_last in unlike
    ]
    width = Error.sum(errors).half_width
    if parts and len(before) == 1:
        width = np.minimum(width, range_if_apart(before[0], after[0]))
    return np.asarray(np.maximum(width, least))


def _error(before: Sample, after: Sample, *, first: bool, last: bool) -> Error:
    """The error of the difference of one kind of steps."""
    error = welch(before, after)
    if (first or last) and before.n == after.n:
        return error.or_narrower(ends_apart(before, after, first=first, last=last))
    return error


CHANGES = ("added", "removed", "grown", "shrunk", "noise", "unknown")
"""The change of a group: beyond noise, within it, or unknown of too few steps."""

_NOISE, _UNKNOWN = CHANGES.index("noise"), CHANGES.index("unknown")
_KEY = ["bound", "name"]
_VALUES = ["calls", "total_ns", "std_ns", "first_ns", "last_ns", "least_ns", "most_ns"]
_MOST_LEFT_OUT = 0.25
"""Share of steps that are left out as unlike the others, from which the rest tells too little.
Chosen: test_run_diff."""

_OPERATOR = 60
"""Characters of an operator with its shapes in a verdict: chosen, for one line."""
_N_NAMED = 2
"""Steps of each run that are left out and named; `left_out` has all. A limit of the screen. Pinned
by test_run_diff."""


@dataclass(frozen=True, repr=False)
class RunDiff:
    """Two runs compared step by step: means of their typical steps; made by `diff`.

    Steps that come in kinds are compared kind by kind: each kind counts as often as it occurs.

    Parameters
    ----------
    before, after : RunProfile

    Examples
    --------
    >>> import htagraph as hg
    >>> before, after = (hg.load(hg.demo_trace(name)) for name in ("dataloader", "none"))
    >>> hg.diff(before, after).runs
    RunDiff(Steps are 44% faster: 7.92 ms a step is 4.42 ms now; 6.56 ms less in data loading.)
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
        return self.delta_ns / max(int(self.steps["before_ns"]), 1)

    @property
    def noise_share(self) -> float:
        """The largest difference that counts as noise, as a share; infinite for too few steps."""
        return float(self.steps["noise_ns"]) / max(int(self.steps["before_ns"]), 1)

    @property
    def is_change(self) -> bool:
        """Whether steps differ by more than noise, and not as a busy machine makes them."""
        return self._differ and not self.doubt

    @property
    def _differ(self) -> bool:
        """Whether steps differ by more than noise."""
        return bool(self.steps["change"] in ("grown", "shrunk"))

    @cached_property
    def doubt(self) -> str:
        """Why steps that differ may do so for the machine's sake, as a clause; empty if not.

        Two runs differ as a whole if another program runs during one of them. What differs in every
        step, and by more than all else, is no such thing.
        """
        is_certain = self.certain_ns * np.sign(self.delta_ns) > MATTERS * int(
            self.steps["before_ns"]
        )
        if not self._differ or is_certain or not self._has_steps:
            return ""
        for run in self._runs:
            if _MOST_LEFT_OUT * run.n_steps <= run.n_odd:
                return f"{run.n_odd} of {run.n_steps} steps were left out"
        if self._causes.largest == ALL_ALIKE:
            return ALL_ALIKE
        if self.noise_share > MATTERS:
            return f"steps vary ({self.noise_in_words} is noise), and no part stands out"
        return ""

    @property
    def certain_ns(self) -> float:
        """How much longer steps are by what no load of the machine explains; negative: shorter."""
        return float(self._lasting.sum() or self._called.head(1).sum())

    @cached_property
    def _lasting(self) -> pd.Series:
        """By how much names on the path differ in every step, over all kinds; the largest first."""
        keys, before, after = self._sides("name")
        one, other = (side.whole for side in self._sides("step")[1:])
        is_longer = in_every_step(before.whole, after.whole, other.most / np.maximum(one.least, 1))
        is_shorter = in_every_step(after.whole, before.whole, one.most / np.maximum(other.least, 1))
        names = keys.get_level_values("name")
        more_ns = pd.Series(after.mean_ns - before.mean_ns, index=names)
        found = more_ns[(is_longer | is_shorter) & (names != OTHER)]
        return _largest_first(found.groupby(level=0, sort=False).sum())

    @cached_property
    def _called(self) -> pd.Series:
        """Time of calls that every step has more, or fewer; by operator, the largest first.

        No load of a machine changes how often a program calls what.
        """
        of_both = [run.frame[run.frame["part"] == "operator"] for run in self._runs]
        varies = {OTHER}.union(*(rows.loc[rows["varies"], "name"] for rows in of_both))
        rows = self.ops().set_index("name")
        rows = rows[~rows.index.isin(varies)]
        more = rows["calls_after"] - rows["calls_before"]
        time_ns = rows["after_ns"].where(more > 0, rows["before_ns"])
        found = time_ns * more / rows[["calls_before", "calls_after"]].max(axis=1)
        return _largest_first(found[found.abs() > MATTERS * float(self.steps["before_ns"])])

    @cached_property
    def not_comparable(self) -> tuple[str, ...]:
        """Why the runs cannot be compared; empty if they can."""
        return why_not_comparable(*self._runs)

    @property
    def restless(self) -> list[str]:
        """Of these reasons, those that another recording of a quiet machine would not give."""
        return restless(*self._runs)

    @cached_property
    def is_elsewhere(self) -> bool:
        """Whether the runs do the same, but on another device; `shapes` compares them."""
        return do_the_same_elsewhere(*self._runs)

    @cached_property
    def _matched(self) -> Pairs:
        """The kinds of steps that both runs have."""
        return matched_kinds(self.before, self.after)

    @cached_property
    def _pairs(self) -> Pairs:
        """Those that are compared: those that recur, if they are half of the steps.

        Else all: a capture of few steps may have each kind once.
        """
        recurring = [pair for pair in self._matched if min(self._n_compared(pair)) > 1]
        are_half = all(
            2 * sum(self._n_compared(pair)[side] for pair in recurring) >= run.n_steps
            for side, run in enumerate((self.before, self.after))
        )
        return tuple(recurring) if recurring and are_half else self._matched

    @cached_property
    def _runs(self) -> tuple[RunProfile, RunProfile]:
        """Both runs with these kinds only, in one order."""
        return self._shared.before, self._shared.after

    @cached_property
    def _shared(self) -> SharedWork:
        """The same, reduced to what all steps do if they vary."""
        before, after = zip(*self._pairs, strict=True)
        return shared_work(self.before.only(before), self.after.only(after))

    @property
    def is_part(self) -> bool:
        """Whether steps vary, so that only the work that all of them share is compared."""
        return self._shared.is_part

    def _n_compared(self, pair: tuple[int, int]) -> tuple[int, int]:
        """Typical steps of a kind before and after."""
        return self.before.kinds[pair[0]].n_compared, self.after.kinds[pair[1]].n_compared

    @answers(STEP_DIFF)
    def critical_path(self, *, by: Literal["bound", "op", "name"] = "bound") -> pd.DataFrame:
        """Change of the critical path per step; it adds up to that of the steps.

        Parameters
        ----------
        by : {"bound", "op", "name"}
            Names include the places of untraced code: ``after aten::mm``.

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
                hint="by bound, op or name; a diff of two graphs, in Python, also by kind, track "
                "and rule.",
            )
        frame = self._table(by)
        if int(frame["delta_ns"].sum()) != self.delta_ns:
            raise GraphError(f"the differences by {by} do not add up to that of the steps.")
        return frame

    @answers(STEP_DIFF)
    def kernels(self, *, by: ComparedBy = "name") -> pd.DataFrame:
        """Device work per step: added, removed, grown and shrunk; schema `frames.STEP_DIFF`.

        Parameters
        ----------
        by : {"name", "shape", "module", "annotation", "phase"}
            All but names compare runs whose kernels differ, on other devices or in other
            precisions: by operator and shapes without types, or by where they were launched.

        Raises
        ------
        QueryError
            If `by` is none of these.
        """
        if by not in KERNEL_PARTS:
            raise QueryError(
                f"kernels cannot be compared by {by!r}.", hint=one_of(by, tuple(KERNEL_PARTS), "by")
            )
        frame = self._table(KERNEL_PARTS[by])
        whole = self._table(KERNEL_PARTS["name"])
        off_ns = int(frame["delta_ns"].sum()) - int(whole["delta_ns"].sum())
        # Means over ranks are whole nanoseconds.
        if abs(off_ns) > len(frame) + len(whole):
            raise GraphError(f"the differences by {by} do not add up to that of kernels.")
        return frame

    @answers(SHAPE_DIFF)
    def shapes(self) -> pd.DataFrame:
        """Device work per step by operator and shapes, each against the roof of its device.

        Returns
        -------
        DataFrame, schema `frames.SHAPE_DIFF`
            The largest change first.
        """
        frame = self.kernels(by="shape")
        roofs = [run.roof_shares(KERNEL_PARTS["shape"]) for run in self._runs]
        columns = {name: frame[name] for name in ("name", "before_ns", "after_ns", "delta_ns")}
        before, after = (frame["name"].map(of_name).astype(float) for of_name in roofs)
        return SHAPE_DIFF.frame(columns | {"before_roof": before, "after_roof": after})

    @answers(STEP_DIFF)
    def ops(self) -> pd.DataFrame:
        """Host operators per step, with what they call; schema `frames.STEP_DIFF`."""
        return self._table("operator")

    @answers(STEP_DIFF)
    def device_time(self) -> pd.DataFrame:
        """States of devices per step, including idle, on average; schema `frames.STEP_DIFF`."""
        return self._table("device")

    def verdict(self) -> str:
        """How much steps changed, and in what most of that is; or why that is unknown."""
        if self.is_elsewhere:
            return self._elsewhere
        if self.not_comparable:
            return f"Not comparable: {self.not_comparable[0]}."
        before, after = (human_duration(int(self.steps[key])) for key in ("before_ns", "after_ns"))
        takes = f"{before}{self._each} is {after} now"
        why = self.doubt or self._causes.largest
        return f"{self._change}: {'; '.join(filter(None, [takes, why]))}."

    @property
    def _elsewhere(self) -> str:
        """What the same work takes on both devices, and in which shapes most of that is."""
        frame = self.shapes()
        first = frame[frame["name"].str.contains("[", regex=False)].iloc[0]
        took, takes, before, after = (
            human_duration(float(time_ns))
            for time_ns in (*frame[["before_ns", "after_ns"]].sum(), *first[1:3])
        )
        return (
            f"Same work on another device: its kernels took {took}{' a step' * self._has_steps}, "
            f"and take {takes} now; "
            f"{name_label(first['name'], width=_OPERATOR)} {before}, now {after}."
        )

    @property
    def _change(self) -> str:
        """By how much steps changed, or why that is unknown."""
        share, change = self.delta_share, self.steps["change"]
        if change == "unknown":
            n_before, n_after = (run.n_compared for run in self._runs)
            few = f"Too few steps ({n_before} before, {n_after} after)"
            return f"{few if self._has_steps else 'No steps'} to tell a change from noise"
        if change == "noise":
            of = " in the work that all steps share" if self.is_part else ""
            return f"No change beyond noise ({self.noise_in_words}){of}"
        if self.doubt:
            return f"Unknown whether the code is {'slower' if share > 0 else 'faster'}"
        what, are, take = ("Steps", "are", "take")
        if self.is_part:
            what, are, take = ("The work that all steps share", "is", "takes")
        if share >= 1:
            return f"{what} {take} {human_number(1 + share)} times as long"
        return f"{what} {are} {human_percent(abs(share))} {'slower' if share > 0 else 'faster'}"

    @property
    def _each(self) -> str:
        """What a time is of: a typical step, if the step time of a run has other steps, too."""
        if not self._has_steps:
            return ""
        if self.is_part:
            return " of a step"
        is_whole = all(run.n_compared == run.n_steps for run in self._runs)
        return " a step" if is_whole else " a typical step"

    @property
    def _has_steps(self) -> bool:
        """Whether steps are compared, not windows."""
        return self.before.unit == self.after.unit == "step"

    @property
    def noise_in_words(self) -> str:
        """The largest difference that counts as noise."""
        return human_duration(float(self.steps["noise_ns"]))

    @cached_property
    def _causes(self) -> Causes:
        """Why steps changed; of a few steps of one kind nothing is said."""
        is_whole = not self._has_steps or len(self._runs[0].kinds) > 1
        if not (self._differ or (is_whole and self.steps["change"] == "unknown")):
            return Causes(self._lasting_in_words)
        works = ("kernel", "operator", KERNEL_PARTS["shape"], KERNEL_PARTS["phase"])
        tables = Tables(*(self._table(part) for part in (*PATH_PARTS, *works)))
        return causes_of(tables, self._lasting_in_words)

    @property
    def details(self) -> str:
        """What the verdict has no room for: other reasons or causes, noise, unusual steps."""
        if self.is_elsewhere:
            steps = [human_duration(int(self.steps[key])) for key in ("before_ns", "after_ns")]
            return f"{_sentence(self.not_comparable[0])} {' a step is '.join(steps)} now."
        if self.not_comparable:
            others = "; ".join(self.not_comparable[1:])
            return f"Also: {others}." if others else ""
        noise = f"Noise: {self.noise_in_words} a step." if self._differ else ""
        said = self._lasting_in_words, other_work(*self._runs)
        lasting, other = (_sentence(one) if one not in self.verdict() else "" for one in said)
        more = [self._causes.where, lasting, noise, self._shared.said, *self._odd, other]
        return " ".join(filter(None, more))

    @property
    def _lasting_in_words(self) -> str:
        """What differs most in every step, if means tell little as steps vary; as a clause."""
        found = self._lasting if len(self._lasting) else self._called
        if not MATTERS < self.noise_share < np.inf or not self._has_steps or not len(found):
            return ""
        how = "in every step" if len(self._lasting) else "by the number of calls"
        return f"{how} {where_in_words(str(found.index[0]), float(found.iloc[0]))}"

    @property
    def _odd(self) -> list[str]:
        """Steps that the mean does not show: one of other work, and more outliers than before."""
        said = []
        for pair in self._matched:
            if pair in self._pairs or max(self._n_compared(pair)) > 1:
                continue
            lengths = [
                human_duration(run.only([kind]).typical_step_ns)
                for run, kind in zip((self.before, self.after), pair, strict=True)
            ]
            said.append(f"One step of each run does other work: {' is now '.join(lengths)}.")
        before, after = self._runs
        if after.n_odd * before.n_steps > before.n_odd * after.n_steps:
            several = f"{after.n_odd} of {after.n_steps} steps, {before.n_odd} of {before.n_steps}"
            said.append(f"Outliers: {several} before.")
        return said

    @property
    def facts(self) -> tuple[str, str]:
        """The names of the runs, and their compared steps."""
        before, after = self._runs
        return (
            before.described(int(self.steps["before_ns"])),
            after.described(int(self.steps["after_ns"])),
        )

    @property
    def left_out(self) -> list[str]:
        """Steps of both runs that are left out, and why."""
        sides = zip(("before", "after"), self._runs, strict=True)
        return [f"{side}, left out: {step}" for side, run in sides for step in run.left_out]

    @property
    def notes(self) -> list[str]:
        """What is damaged; then at most three lines: `details`, and what is compared."""
        sides = [
            f"{side}: {facts}{_without(run.left_out)}"
            for side, facts, run in zip(("before", "after"), self.facts, self._runs, strict=True)
        ]
        return [*self.damage, *filter(None, [self.details]), *sides]

    @property
    def damage(self) -> tuple[str, ...]:
        """What the recordings lack or have wrong, in sentences."""
        return damage_by_side(self.after, self.before)

    @property
    def _kinds(self) -> list[tuple[Kind, ...]]:
        """The kinds of steps that are compared, on both sides."""
        return list(zip(*(run.kinds for run in self._runs), strict=True))

    def _sides(self, part: str) -> tuple[pd.Index[Any], _Side, _Side]:
        """Groups of one part, and what they took on both sides."""
        tables = []
        for kind in range(len(self._kinds)):
            sides = [run.rows(part, kind) for run in self._runs]
            folded = (_folded(*sides), _folded(*reversed(sides)))  # each by what the other has
            tables.append([side.set_index(_KEY)[_VALUES] for side in folded])
        keys = pd.concat([table for pair in tables for table in pair]).index.unique()
        weights = [one.n_steps + other.n_steps for one, other in self._kinds]
        before, after = (
            _Side.of(
                [pair[side].reindex(keys, fill_value=0) for pair in tables],
                [pair[side].n_compared for pair in self._kinds],
                weights,
            )
            for side in (0, 1)
        )
        return keys, before, after

    def _table(self, part: str) -> pd.DataFrame:
        """Groups of one part on both sides."""
        kinds = self._kinds
        keys, before, after = self._sides(part)
        delta_ns = after.mean_ns - before.mean_ns
        noise = noise_ns(
            before.samples,
            after.samples,
            first=[all(kind.has_first for kind in pair) for pair in kinds],
            last=[part in PATH_PARTS and all(kind.has_last for kind in pair) for pair in kinds],
            parts=part != "step",
        )
        change = np.select(
            [
                np.isinf(noise),
                np.abs(delta_ns) <= noise,
                before.is_absent,
                after.is_absent,
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
                "calls_before": before.calls,
                "calls_after": after.calls,
                "before_ns": before.mean_ns,
                "after_ns": after.mean_ns,
                "delta_ns": delta_ns,
                "noise_ns": noise,
            }
        )
        order = np.lexsort((np.arange(len(frame)), -np.abs(delta_ns)))
        return frame.take(order).reset_index(drop=True)

    def __repr__(self) -> str:
        """Say what changed."""
        return f"RunDiff({self.verdict()})"


def _largest_first(times_ns: pd.Series) -> pd.Series:
    return times_ns.sort_values(key=np.abs, ascending=False, kind="stable")


def _sentence(clause: str) -> str:
    """A clause as a sentence."""
    return f"{clause[0].upper()}{clause[1:]}."


def _without(steps: Sequence[str]) -> str:
    """The first steps that are left out, and how many others."""
    if not steps:
        return ""
    more = [f"{len(steps) - _N_NAMED:,} more"] if len(steps) > _N_NAMED else []
    return f"; without {', '.join([*steps[:_N_NAMED], *more])}"


def damage_by_side(after: RunProfile, before: RunProfile) -> tuple[str, ...]:
    """The damage of two runs, in sentences that say of which it is."""
    sides = (("before", before), ("after", after))
    return tuple(f"{side}: {said}" for side, run in sides for said in run.damage)


class _Side(NamedTuple):
    """Groups of a run per step: over its kinds of steps, each as often as both runs have it."""

    calls: F64
    mean_ns: I64
    samples: list[Sample]
    is_absent: Bools

    @property
    def whole(self) -> Sample:
        """The sum of all kinds; of its extremes, those of each kind."""
        values = zip(*(one[1:] for one in self.samples), strict=True)
        return Sample(min(one.n for one in self.samples), *(np.sum(one, axis=0) for one in values))

    @classmethod
    def of(cls, tables: list[pd.DataFrame], n_steps: list[int], weights: list[int]) -> _Side:
        """The groups of each kind, of so many steps, with so much weight."""
        every = sum(weights)
        calls, sums, samples = np.zeros(len(tables[0])), np.zeros(len(tables[0]), np.int64), []
        for table, n, weight in zip(tables, n_steps, weights, strict=True):
            calls += table["calls"].to_numpy(float) * weight / every
            sums += weight * _means(table["total_ns"].to_numpy(np.int64), n)
            total, *others = (table[name].to_numpy(float) * weight / every for name in _VALUES[1:])
            samples.append(Sample(n, total / n, *others))
        is_absent = np.all([table["total_ns"].to_numpy() == 0 for table in tables], axis=0)
        return cls(calls, _means(sums, every), samples, is_absent)


def _means(total_ns: I64, n: int) -> I64:
    """Means as whole nanoseconds that add up to the rounded mean of all."""
    until = np.rint(np.cumsum(total_ns) / n).astype(np.int64)
    return np.diff(until, prepend=np.int64(0))


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
