"""Rehearsal: replays of one window under changes, by every reading of its trace.

The hold-out test predicts each step from the step before: with its own durations of work and host
code, but the edges, launch delays, gaps and returns of the other. Its error is the least that a
prediction of another run has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from htagraph.arrays.binding import bind, walk_back
from htagraph.arrays.codes import marked
from htagraph.arrays.retime import retime
from htagraph.lookup.steady_steps import SteadySteps, steady_steps
from htagraph.model.arrays import I64, Bools, brief
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind
from htagraph.model.rules import Rule
from htagraph.model.units import human_duration
from htagraph.model.window import Window
from htagraph.replay.assumptions import Assumption, Reading, readings
from htagraph.replay.changes import Change
from htagraph.replay.charges import EdgeTimes
from htagraph.replay.draft import Draft, weights
from htagraph.replay.replay import Bounds, Replay, replay_of

HOLD_OUT_LIMIT = 0.2
"""Median error above which nothing is predicted. Chosen: test_assumptions has 15% and 25%."""
_MOST_PAIRS = 12
"""Last pairs of steps to replay. Chosen: enough for a median; test_assumptions has 15 pairs."""
_MOST_NS = 2**60
"""A limit, so that intervals stay in 64 bits. Pinned by test_assumptions."""
_DEVIATIONS = 3
"""Standard deviations of steps by which a saving may differ in another run. Measured on the fit
pairs of `bench_intervals`: 92% of intervals hold, with 2 it is 87%; ``test_intervals`` compares."""


@dataclass(frozen=True)
class HoldOut:
    """Errors of steps predicted from the step before.

    Parameters
    ----------
    errors : tuple of float
        Of each pair, as a share of the step; positive if predicted too long.
    spread : float
        How much typical steps differ, see `step_spread`: no prediction of another run is better.
    """

    errors: tuple[float, ...]
    spread: float = 0.0

    @property
    def error(self) -> float | None:
        """Median absolute error; None without two steps that do the same."""
        return float(np.median(np.abs(self.errors))) if self.errors else None

    def __str__(self) -> str:
        if self.error is None:
            return "no two steps do the same, so no step was predicted from another"
        worst = max(map(abs, self.errors))
        return (
            f"steps predict each other within {self.error:.1%} (worst {worst:.1%}, of "
            f"{len(self.errors)}); typical steps differ by {self.spread:.1%}"
        )

    @property
    def is_too_large(self) -> bool:
        """Whether predictions from this trace are withheld."""
        return self.error is not None and self.error > HOLD_OUT_LIMIT


def hold_out(dag: Dag, replay: Replay) -> HoldOut:
    """Errors of neighboring steps that run the same events in the same order.

    They may differ in length: to compare only steps of one length would flatter the prediction.
    """
    steps = steady_steps(dag)
    found = []
    for first in range(len(steps.is_steady) - 1)[-_MOST_PAIRS:]:
        rows = [steps.parts.event[steps.parts.part >> 1 == first + place] for place in (0, 1)]
        mapped = _same(dag, rows[0], rows[1])
        if mapped is not None:
            found.append(_error(replay, *mapped))
    return HoldOut(tuple(found), step_spread(steps))


def step_spread(steps: SteadySteps) -> float:
    """Standard deviation of the lengths of steps of the same work, as a share of their mean.

    0 of fewer than two. Long ones count: they show what may happen in another run.
    """
    alike = steps.compared_ns[steps.is_same_work]
    return float(alike.std(ddof=1) / max(alike.mean(), 1)) if len(alike) > 1 else 0.0


def run_to_run_ns(spread: float, window_ns: int) -> int:
    """By how much what a window takes may differ in another run."""
    # Steps of damaged times differ by centuries.
    return min(round(_DEVIATIONS * spread * window_ns), _MOST_NS)


def _same(dag: Dag, first: I64, second: I64) -> tuple[I64, I64] | None:
    """Events of two steps in the same order; None if they differ."""
    events = dag.events
    if not len(first) or len(first) != len(second):
        return None
    both = []
    for rows in (first, second):
        order = np.lexsort(
            (-events.dur_ns[rows], events.ts_ns[rows], events.stream[rows], events.lane[rows])
        )
        both.append(rows[order])
    first, second = both
    same = (events.name[first] == events.name[second]) & (events.lane[first] == events.lane[second])
    return (first, second) if same.all() else None


def _error(replay: Replay, first: I64, second: I64) -> float:
    """Error of the second step, predicted from the first, as a share of its length."""
    places = replay.places
    mine, other = (
        np.concatenate([places[2 * rows], places[2 * rows + 1]]) for rows in (first, second)
    )
    order = np.argsort(mine)
    mine, other = mine[order], other[order]
    ts_ns = replay.ts_ns[other]
    edges, tail, head = _inside(replay, mine)
    release, is_carried = _carried(replay, other, int(ts_ns.min()))
    is_entered = is_carried.copy()
    is_entered[head] = True
    release[~is_entered] = ts_ns[~is_entered]
    own = np.isin(replay.kind[edges], (EdgeKind.SPAN,)) | (replay.rule[edges] == Rule.PROGRAM_ORDER)
    elapsed = ts_ns[head] - ts_ns[tail]
    weight = np.where(own, elapsed, replay.lag_ns[edges] + replay.extra_ns[edges])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(head, minlength=len(mine)))])
    times = retime(offsets.astype(np.int64), tail.astype(np.int32), weight, release)
    length = int(ts_ns.max() - ts_ns.min())
    return float(times.max() - ts_ns.max()) / max(length, 1)


def _local(replay: Replay, nodes: I64) -> I64:
    """Number of each position among those of a step, -1 for others."""
    found = np.full(len(replay.node), -1, dtype=np.int64)
    found[nodes] = np.arange(len(nodes))
    return found


def _inside(replay: Replay, nodes: I64) -> tuple[I64, I64, I64]:
    """Edges within a step, with the numbers of their tails and heads."""
    local = _local(replay, nodes)
    edges = replay.rows_at(nodes)
    edges = edges[local[replay.tail[edges]] >= 0]
    return edges, local[replay.tail[edges]], local[replay.head[edges]]


def _carried(replay: Replay, nodes: I64, first_ns: int) -> tuple[I64, Bools]:
    """Earliest times that edges from before a step allow its nodes, and which nodes have any."""
    local = _local(replay, nodes)
    edges = replay.rows_at(nodes)
    edges = edges[local[replay.tail[edges]] < 0]
    release = np.full(len(nodes), first_ns, dtype=np.int64)
    arrival = replay.ts_ns[replay.tail[edges]] + replay.lag_ns[edges] + replay.extra_ns[edges]
    np.maximum.at(release, local[replay.head[edges]], arrival)
    is_carried = marked(local[replay.head[edges]], len(nodes))
    return release, is_carried


class Saving(NamedTuple):
    """Time that a change saves; negative if it costs time.

    Parameters
    ----------
    low_ns, high_ns : int, unit=ns
        The least and the most by any reading of the trace, in any run like it.
    expected_ns : int, unit=ns
        By the first reading, `Assumption.AS_BOUND`.
    readings : tuple of (Assumption, int)
        The saving by each.
    """

    low_ns: int
    expected_ns: int
    high_ns: int
    readings: tuple[tuple[Assumption, int], ...] = ()

    @classmethod
    def of(
        cls,
        found: Iterable[tuple[Assumption, int]],
        *,
        clock_error_ns: int = 0,
        run_to_run_ns: int = 0,
    ) -> Self:
        """Saving by some readings, the expected one first, plus or minus two errors.

        The error of the clocks is in both runs, so it is at most half of the saving. Another run
        differs even where nothing was changed, so that may be more than is saved; a change that
        does nothing saves nothing.
        """
        readings = tuple(found)
        saved = [saved_ns for _, saved_ns in readings]
        most_ns = max(map(abs, saved))
        error_ns = min(clock_error_ns, most_ns // 2) + (run_to_run_ns if most_ns else 0)
        return cls(min(saved) - error_ns, saved[0], max(saved) + error_ns, readings)

    @property
    def width_ns(self) -> int:
        """Width of the interval."""
        return self.high_ns - self.low_ns

    def __str__(self) -> str:
        """The interval, for people; only its upper end if it may be that nothing is saved."""
        ends = [human_duration(end_ns) for end_ns in (self.low_ns, self.high_ns)]
        if self.low_ns <= 0 < self.high_ns:
            return f"at most {ends[1]}"
        return ends[0] if ends[0] == ends[1] else " to ".join(ends)


class Run(NamedTuple):
    """One replayed run."""

    replay: Replay  # With the edges that the changes added
    # lag_ns, extra_ns: of shape (m,). Of each edge, and its unknown waits.
    lag_ns: I64
    extra_ns: I64
    times_ns: I64

    @property
    def weight_ns(self) -> I64:
        """Time from the tail of each edge to its head."""
        return weights(self.lag_ns, self.extra_ns)

    @classmethod
    def of(cls, draft: Draft) -> Self:
        """The run of a draft."""
        replay, lag_ns, extra_ns = draft.replay, draft.lag_ns, draft.extra_ns
        times_ns = retime(replay.offsets, replay.tail, lag_ns, draft.release_ns, extra_ns=extra_ns)
        return cls(replay, lag_ns, extra_ns, times_ns)


class Rehearsed(ABC):
    """A window of a trace or of a job that can be replayed under changes."""

    window: Window
    clock_error_ns: int = 0  # Error of the clocks in every saving; none of one clock

    @property
    @abstractmethod
    def spread(self) -> float:
        """How much steps of the same work differ."""

    @property
    @abstractmethod
    def assumptions(self) -> Sequence[Assumption]:
        """The assumptions that apply, `Assumption.AS_BOUND` first."""

    @abstractmethod
    def changed_ns(
        self, changes: Sequence[Change], assumption: Assumption = Assumption.AS_BOUND
    ) -> int:
        """Length of the window under changes."""

    @abstractmethod
    def path_after(self, changes: Sequence[Change]) -> EdgeTimes:
        """The critical path of the changed run, as time of edges."""

    @property
    def run_to_run_ns(self) -> int:
        """By how much every saving may differ in another run."""
        return run_to_run_ns(self.spread, self.window.dur_ns)

    @cached_property
    def _expected_ns(self) -> dict[tuple[int, ...], tuple[Sequence[Change], int]]:
        """Expected savings found so far, by the ids of the changes."""
        return {}

    def saved_ns(self, changes: Sequence[Change]) -> int:
        """Expected saving of changes."""
        known, key = self._expected_ns, tuple(map(id, changes))
        if key not in known:
            known[key] = changes, self.window.dur_ns - self.changed_ns(changes)
        return known[key][1]

    def saving(self, changes: Sequence[Change]) -> Saving:
        """Saving of changes by every reading, and within errors of clocks."""
        expected, *others = self.assumptions
        found = [(one, self.window.dur_ns - self.changed_ns(changes, one)) for one in others]
        return Saving.of(
            [(expected, self.saved_ns(changes)), *found],
            clock_error_ns=self.clock_error_ns,
            run_to_run_ns=self.run_to_run_ns,
        )


@brief
@dataclass(frozen=True)
class Rehearsal(Rehearsed):
    """A window of a graph, to replay under changes."""

    dag: Dag
    window: Window

    @cached_property
    def replay(self) -> Replay:
        """The recorded run: nodes, edges and lags."""
        return replay_of(self.dag)

    @cached_property
    def expected(self) -> Reading:
        """The first reading, which gives the expected saving."""
        return next(readings(self.dag, self.replay))

    @cached_property
    def readings(self) -> tuple[Reading, ...]:
        """The readings that apply, `Assumption.AS_BOUND` first."""
        _, *others = readings(self.dag, self.replay)
        return (self.expected, *others)

    @property
    def assumptions(self) -> Sequence[Assumption]:
        """Those of the readings."""
        return [one.assumption for one in self.readings]

    @cached_property
    def hold_out(self) -> HoldOut:
        """How well steps predict each other."""
        return hold_out(self.dag, self.expected.replay)

    @cached_property
    def bounds(self) -> Bounds:
        """The work done by the start and by the end of the window."""
        return self.replay.bounds(self.window)

    @property
    def spread(self) -> float:
        """How much steps of the same work differ."""
        return self.hold_out.spread

    def run(self, changes: Sequence[Change], reading: Reading | None = None) -> Run:
        """Replay the whole trace under changes."""
        draft = Draft(self.dag, reading or self.expected)
        for change in changes:
            change.apply(draft)
        return Run.of(draft)

    def dur_ns(self, times_ns: I64) -> int:
        """Length of the window at other times."""
        before, until, lead_ns, tail_ns = self.bounds
        if not len(until):
            return self.window.dur_ns
        end_ns = int(times_ns[until].max()) + tail_ns
        start_ns = int(times_ns[before].max()) + lead_ns if len(before) else self.window.start_ns
        return max(end_ns - start_ns, 0)

    def changed_ns(
        self, changes: Sequence[Change], assumption: Assumption = Assumption.AS_BOUND
    ) -> int:
        """Length of the window under changes."""
        # The other readings take far longer to find than the first.
        readings = [self.expected] if assumption is Assumption.AS_BOUND else self.readings
        reading = next(one for one in readings if one.assumption is assumption)
        return self.dur_ns(self.run(changes, reading).times_ns)

    def path_after(self, changes: Sequence[Change]) -> EdgeTimes:
        """The critical path of the changed window, as time of edges."""
        run = self.run(changes)
        replay, times_ns = run.replay, run.times_ns
        window = replay.window_in(times_ns, self.window)
        edge = np.empty(0, dtype=np.int32)
        if window.anchor >= 0:
            last, alike = int(replay.places[window.anchor]), np.zeros(len(times_ns), dtype=np.int64)
            edges = replay.tail, replay.head, replay.kind, run.weight_ns
            binding = bind(*edges, times_ns, alike)
            edge = walk_back(last, binding, replay.tail, times_ns, until_ns=window.start_ns)
        begin_ns = np.maximum(times_ns[replay.tail[edge]], window.start_ns)
        dur_ns = times_ns[replay.head[edge]] - begin_ns
        return EdgeTimes(np.full(len(edge), -1), replay.row[edge], dur_ns)
