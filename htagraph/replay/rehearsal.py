"""Rehearsal: replays of one window under changes, by every reading of its trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from htagraph.algorithms.retime import retime
from htagraph.model.arrays import I8, I32, I64
from htagraph.model.dag import Dag
from htagraph.model.frozen import brief
from htagraph.model.units import human_duration
from htagraph.model.window import Window
from htagraph.native.passes import compiled
from htagraph.replay.assumptions import Assumption, Reading, readings
from htagraph.replay.changes import Change
from htagraph.replay.charges import EdgeTimes
from htagraph.replay.draft import Draft, weights
from htagraph.replay.hold_out import HoldOut, hold_out, run_to_run_ns
from htagraph.replay.replay import Bounds, Replay, replay_of


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
    """One replayed run.

    Parameters
    ----------
    replay : Replay
        With the edges that the changes added.
    lag_ns, extra_ns : ndarray of shape (m,), dtype=int64, unit=ns
        Of each edge, and its unknown waits.
    times_ns : ndarray of shape (n,), dtype=int64, unit=ns
    """

    replay: Replay
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


@compiled
def _walk(walk: tuple[int, int], timed: tuple[I64, I32, I64, I64], kind: I8, walked: I64) -> int:
    """Edges of the path from a time to a position, the last first; ties as in `bind`."""
    offsets, tail, weight, times = timed
    since_ns, node = walk
    n = 0
    while times[node] > since_ns and offsets[node] < offsets[node + 1]:
        best = offsets[node]
        for edge in range(best + 1, offsets[node + 1]):
            later = times[tail[edge]] + weight[edge] - times[tail[best]] - weight[best]
            if later == 0:
                later = times[tail[edge]] - times[tail[best]]
            if later > 0 or (later == 0 and kind[edge] > kind[best]):
                best = edge
        walked[n] = best
        n += 1
        node = tail[best]
    return n


@brief
@dataclass(frozen=True)
class Rehearsal:
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

    @cached_property
    def _expected_ns(self) -> dict[tuple[int, ...], tuple[Sequence[Change], int]]:
        """Expected savings found so far, by the ids of the changes."""
        return {}

    @cached_property
    def hold_out(self) -> HoldOut:
        """How well steps predict each other."""
        return hold_out(self.dag, self.expected.replay)

    @cached_property
    def bounds(self) -> Bounds:
        """The work done by the start and by the end of the window."""
        return self.replay.bounds(self.window)

    @property
    def clock_error_ns(self) -> int:
        """Error of the clocks in a saving: none, as there is one clock."""
        return 0

    @cached_property
    def run_to_run_ns(self) -> int:
        """By how much a saving may differ in another run."""
        return run_to_run_ns(self.hold_out.spread, self.window.dur_ns)

    def run(self, changes: Sequence[Change], reading: Reading | None = None) -> Run:
        """Replay the whole trace under changes.

        Raises
        ------
        QueryError
            If a change names nothing in the trace.
        """
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

    def saved_ns(self, changes: Sequence[Change]) -> int:
        """Expected saving of changes in the window."""
        known, key = self._expected_ns, tuple(map(id, changes))
        if key not in known:
            known[key] = changes, self.window.dur_ns - self.dur_ns(self.run(changes).times_ns)
        return known[key][1]

    def path_after(self, changes: Sequence[Change]) -> EdgeTimes:
        """The critical path of the changed window, as time of edges."""
        run = self.run(changes)
        replay, times_ns = run.replay, run.times_ns
        window = replay.window_in(times_ns, self.window)
        walked = np.empty(len(times_ns), dtype=np.int64)
        n = 0
        if window.anchor >= 0:
            walk = window.start_ns, int(replay.places[window.anchor])
            timed = replay.offsets, replay.tail, run.weight_ns, times_ns
            n = _walk(walk, timed, replay.kind, walked)
        edge = walked[:n]
        begin_ns = np.maximum(times_ns[replay.tail[edge]], window.start_ns)
        dur_ns = times_ns[replay.head[edge]] - begin_ns
        return EdgeTimes(np.full(n, -1), replay.row[edge], dur_ns)

    def saving(self, changes: Sequence[Change]) -> Saving:
        """Saving of changes in the window, by every reading."""
        expected, *others = self.readings
        return Saving.of(
            [
                (expected.assumption, self.saved_ns(changes)),
                *(
                    (
                        reading.assumption,
                        self.window.dur_ns - self.dur_ns(self.run(changes, reading).times_ns),
                    )
                    for reading in others
                ),
            ],
            run_to_run_ns=self.run_to_run_ns,
        )
