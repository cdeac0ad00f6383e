"""Typical steps: those of the same work and length, and the representative one.

The same work: the events on the steps' thread and the launches differ by at most a hundredth, name
by name, from the usual step. Steps of another kind may do the same work among themselves, as where
the optimizer runs in every fourth: steps of one kind do it in the same named ranges. The same
length: within a tenth of the median, or within three deviations (1.4826 times the median absolute
deviation), but never more than a quarter. First and last steps are judged like all others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import distinct, sum_by_code
from htagraph.lookup.steps import last_begun, step_events
from htagraph.model.api_calls import POLLS
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.symbols import alphabetical

_DIGITS = re.compile(r"\d+")

FEWEST_ALIKE = 3
"""Steps of the same work and length that make them typical: of two that differ, either may be usual
(test_memory_and_steps: of two, or three of which two are the same, none is)."""

_OTHER_EVENTS = 0.01
"""Share of a step's events that may differ: a few extra calls, not another kind of step. Chosen:
test_phases draws steps of 151 and of 152 instead of 150."""
MOST_KINDS = 4
"""Kinds of steps that are found; further steps are each of a kind of their own. Chosen:
micro-steps, the optimizer's, and those that log or save are four. Pinned by test_kinds.
"""
_NEAR = 0.1
"""Share of the median by which any length may differ. Chosen: test_phases has lengths on both
sides, as of the two below."""
_FAR = 0.25
"""Share of the median by which no length may differ, however widely they spread. Chosen."""
_DEVIATIONS = 3 * 1.4826
"""Median absolute deviations of three standard deviations, if lengths are normal."""


@dataclass(frozen=True)
class StepParts:
    """The steps, each in two parts: its range, and from there to the next step."""

    step: I64  # Event of each step, in order of time
    # start_ns, end_ns, next_ns: bounds of the two parts; the second part of the last step is empty
    start_ns: I64
    end_ns: I64
    next_ns: I64
    # Of shape (k,). Events on the thread of their step, and device work launched there; without
    # steps and polls.
    event: I64
    part: I64  # Of shape (k,). Part in which each event begins: ``2 * step`` or ``2 * step + 1``.


@dataclass(frozen=True)
class SteadySteps:
    """Which steps are typical."""

    parts: StepParts
    # Length to the start of the next step; after the last step, the median gap is added
    compared_ns: I64
    n_different: I64  # Events more or fewer than in the typical step, name by name
    kind: I64  # What each does: steps of one number do the same work in the same named ranges
    # is_same_work, is_same_length: `n_different` is small; the length is near the median of the
    # steps of the same work
    is_same_work: Bools
    is_same_length: Bools
    is_steady: Bools  # Both; for no step if fewer than `FEWEST_ALIKE` are
    # The steady step of median length, the shorter of two; not the trace's first, if others are
    # left, since nothing was prepared for it. Without steady steps, the same of those of the same
    # work; -1 without steps.
    usual: int

    def lengths_ns(self, dag: Dag) -> dict[str, int]:
        """Lengths of the steady steps with unique names, by name."""
        names = dag.events.names(self.parts.step)
        _, at, count = np.unique(alphabetical(names)[1], return_index=True, return_counts=True)
        own = at[(count == 1) & self.is_steady[at]]
        return dict(zip(names[own].tolist(), self.compared_ns[own].tolist(), strict=True))


def _step_parts(dag: Dag) -> StepParts:
    """Steps of a trace and their events."""
    events, (step, _) = dag.events, step_events(dag.events)
    start, end = events.ts_ns[step], events.end_ns[step]
    following = np.append(start[1:], end[-1:])
    end = np.minimum(end, following)
    caller = np.where(events.is_device, dag.launch, np.arange(len(events)))
    called_ns = gather(events.ts_ns, caller, default=np.iinfo(np.int64).min)
    number = last_begun(start, following, called_ns)
    lane = gather(events.lane[step], number)
    counted = (number >= 0) & (
        (events.is_device & (dag.launch >= 0)) | (events.is_host & (events.lane == lane))
    )
    counted &= ~events.searched(POLLS)
    counted[step] = False
    event = np.flatnonzero(counted)
    number = number[event]
    is_after = events.ts_ns[caller[event]] >= end[number]
    return StepParts(step, start, end, following, event, 2 * number + is_after)


def _lower_median(values: I64) -> I64:
    middle = (len(values) - 1) // 2
    median: I64 = np.partition(values, middle)[middle]
    return median


@dataclass(frozen=True)
class _Counts:
    """How many events of each name each step has; pairs of step and name that are not here have 0.

    Names may be many, and each in one step only: a table of all pairs would be their square.
    """

    step: I64
    name: I64
    n: I64
    shape: tuple[int, int]

    @classmethod
    def of(cls, step: I64, name: I64, n: I64, shape: tuple[int, int]) -> _Counts:
        """The sums of some numbers by step and name."""
        pairs, at = distinct(step * shape[1] + name, shape[0] * shape[1])
        return cls(*np.divmod(pairs, max(shape[1], 1)), sum_by_code(at, n, len(pairs)), shape)

    def median(self, among: Bools) -> I64:
        """The lower median of each name in some steps."""
        rows = np.flatnonzero(among[self.step])
        name, n = self.name[rows], self.n[rows]
        order = np.lexsort((n, name))
        n_there = np.bincount(name, minlength=self.shape[1])
        first, n_steps = np.cumsum(n_there) - n_there, int(among.sum())
        place = (n_steps - 1) // 2 - (n_steps - n_there)  # what is not there comes first
        found = place >= 0
        median = np.zeros(self.shape[1], dtype=np.int64)
        median[found] = n[order[(first + place)[found]]]
        return median

    def of_step(self, step: int) -> I64:
        """The events of a step, by name."""
        own = self.step == step
        counts = np.zeros(self.shape[1], dtype=np.int64)
        counts[self.name[own]] = self.n[own]
        return counts

    def away(self, usual: I64) -> I64:
        """How far each step is from other numbers, name by name."""
        there = usual[self.name]
        more = np.abs(self.n - there) - there
        return int(usual.sum()) + sum_by_code(self.step, more, self.shape[0])


def _contents(dag: Dag, parts: StepParts) -> tuple[_Counts, Bools]:
    """Events of each step by name, and which named ranges it has; numbers in names do not count.

    A range that one step alone has tells nothing.
    """
    n = len(parts.step)
    names, column = distinct(dag.events.name[parts.event], len(dag.events.symbols))
    n_names = len(names)
    step, name, count = parts.part // 2, column, np.ones(len(column), dtype=np.int64)
    if n > 1:  # what follows the last step is not there: as much as follows the others
        is_after = (parts.part % 2 == 1) & (step < n - 1)
        after = _Counts.of(step[is_after], name[is_after], count[is_after], (n - 1, n_names))
        usual = after.median(np.ones(n - 1, dtype=bool))
        kept, more = parts.part != 2 * n - 1, np.flatnonzero(usual)
        step = np.concatenate([step[kept], np.full(len(more), n - 1)])
        name, count = np.concatenate([name[kept], more]), np.append(count[kept], usual[more])
    whole = _Counts.of(step, name, count, (n, n_names))
    is_range = np.zeros(n_names, dtype=bool)
    is_range[column[dag.events.kind[parts.event] == EventKind.ANNOTATION]] = True
    ranges = np.flatnonzero(is_range)
    texts = dag.events.symbols.array[names[ranges]]
    codes, group = alphabetical([_DIGITS.sub("#", str(text)) for text in texts.tolist()])
    rows = np.flatnonzero(is_range[whole.name])
    own = group[np.searchsorted(ranges, whole.name[rows])]
    pairs = np.unique(own * n + whole.step[rows])
    own, of_step = np.divmod(pairs, n)
    shared = np.bincount(own, minlength=len(codes)) > 1
    has = np.zeros((n, int(shared.sum())), dtype=bool)
    kept = shared[own]
    has[of_step[kept], (np.cumsum(shared) - 1)[own[kept]]] = True
    return whole, has


def _kinds(counts: _Counts, has_range: Bools) -> tuple[I64, I64, Bools]:
    """The kind of each step, its difference from the typical one, and whether that is small.

    The typical step is nearest to the median of each name. What is unlike it is searched again.
    """
    n = counts.shape[0]
    kind = np.arange(n) + MOST_KINDS
    rest = np.ones(n, dtype=bool)
    first: tuple[I64, Bools] | None = None
    for number in range(MOST_KINDS):
        if not rest.any():
            break
        left = np.flatnonzero(rest)
        typical = int(left[counts.away(counts.median(rest))[left].argmin()])
        usual = counts.of_step(typical)
        away = counts.away(usual)
        near = away <= _OTHER_EVENTS * usual.sum()
        first = first or (away, near)
        of_kind = rest & near & (has_range == has_range[typical]).all(axis=1)
        kind[of_kind] = number
        rest &= ~of_kind
    assert first is not None
    return kind, *first


def are_near(lengths_ns: I64, among: Bools) -> Bools:
    """Whether each length is near the median of some of them.

    `among` are those whose median and spread count, at least one.
    """
    median = _lower_median(lengths_ns[among])
    away = np.abs(lengths_ns - median)
    near = _DEVIATIONS * _lower_median(away[among])
    return np.asarray(away <= np.clip(near, _NEAR * median, _FAR * median))


def steady_steps(dag: Dag) -> SteadySteps:
    """Which steps of a trace are typical."""
    parts = _step_parts(dag)
    n = len(parts.step)
    none = np.zeros(n, dtype=bool)
    if not n:
        nothing = parts.start_ns
        return SteadySteps(parts, nothing, nothing, nothing, none, none, none, -1)
    kind, n_different, is_same_work = _kinds(*_contents(dag, parts))
    compared = parts.next_ns - parts.start_ns
    if n > 1:
        compared[-1] += _lower_median((parts.next_ns - parts.end_ns)[:-1])
    is_same_length = are_near(compared, is_same_work)
    is_alike = is_same_work & is_same_length
    is_steady = is_alike if is_alike.sum() >= FEWEST_ALIKE else none
    among = np.flatnonzero(is_steady if is_steady.any() else is_same_work)
    if is_steady.sum() > FEWEST_ALIKE:
        among = among[among > 0]
    usual = among[np.lexsort((among, compared[among]))[(len(among) - 1) // 2]]
    return SteadySteps(
        parts, compared, n_different, kind, is_same_work, is_same_length, is_steady, int(usual)
    )
