"""JobRehearsal: replays of a job's window under changes, by every reading of its traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from htagraph.arrays.clocks import Clock
from htagraph.arrays.retime import DROPPED
from htagraph.errors import QueryError, TraceLimitError
from htagraph.job.merged_replay import MergedReplay, members_of
from htagraph.job.ranks import Request, WindowName
from htagraph.job.timeline import Timeline
from htagraph.lookup.steady_steps import steady_steps
from htagraph.model.arrays import I64, brief
from htagraph.model.dag import Dag
from htagraph.model.kinds import Cause
from htagraph.model.window import Window
from htagraph.replay.assumptions import Assumption, Reading, readings
from htagraph.replay.changes import Change, TokenSurplus
from htagraph.replay.charges import Charges, EdgeTimes
from htagraph.replay.collective_changes import equalise
from htagraph.replay.collective_members import without_waits
from htagraph.replay.draft import Draft
from htagraph.replay.rehearsal import Run, Saving, run_to_run_ns, step_spread
from htagraph.replay.replay import Replay, replay_of
from htagraph.run.graph import TraceGraph

_MOST_EVENTS = 30_000_000
"""Events of all ranks that are replayed together: about 13 GB at 430 bytes an event. Documented in
`docs/limits.md`; `tests/hostile/test_damage.py` compares."""

_SPREADS = 3
"""Error of a clock, in spreads of its collectives' ends: three standard deviations, by custom.
Pinned by test_what_if."""

JobRun = Mapping[int, Run]
"""One replayed run: of each rank, in common time."""


@brief
@dataclass(frozen=True)
class RankReplay:
    """A rank of a job, ready to be replayed."""

    dag: Dag  # On the rank's clock
    readings: tuple[Reading, ...]  # In common time, `Assumption.AS_BOUND` first
    window: Window  # In common time
    # How much typical steps differ, see `htagraph.replay.rehearsal.step_spread`
    spread: float = 0.0

    @property
    def replay(self) -> Replay:
        """The unchanged run, by the first reading."""
        return self.readings[0].replay


@dataclass(frozen=True)
class ReplayIn:
    """Work on one rank: its replay in common time, by the rank's clock."""

    clock: Clock

    def __call__(self, graph: TraceGraph) -> RankReplay:
        """The replay of a rank."""
        replay, clock = replay_of(graph.dag), self.clock
        ts_ns, release_ns = clock.to_common(replay.ts_ns), clock.to_common(replay.release_ns)
        moved = tuple(
            Reading(one.assumption, _moved(one.replay, clock, ts_ns, release_ns))
            for one in readings(graph.dag, replay, is_alone=False)
        )
        own = graph.interval
        start_ns, end_ns = clock.to_common([own.start_ns, own.end_ns]).tolist()
        window = replace(own, start_ns=start_ns, end_ns=end_ns)
        return RankReplay(graph.dag, moved, window, step_spread(steady_steps(graph.dag)))


def _moved(replay: Replay, clock: Clock, ts_ns: I64, release_ns: I64) -> Replay:
    """A replay in common time: what arrived in time still does, to the nanosecond.

    Weights are differences of moved times: a drift stretches them, but keeps their order.
    """
    tail_ns, there = replay.ts_ns[replay.tail], replay.lag_ns != DROPPED
    lag = np.where(there, replay.lag_ns, 0)
    lag_end = clock.to_common(tail_ns + lag)
    extra = clock.to_common(tail_ns + lag + replay.extra_ns) - lag_end
    return replace(
        replay,
        ts_ns=ts_ns,
        release_ns=release_ns,
        kept={},
        lag_ns=np.where(there, lag_end - ts_ns[replay.tail], DROPPED),
        extra_ns=extra,
    )


@brief
@dataclass(frozen=True)
class JobRehearsal:
    """The replays of a job's ranks in common time; transfers begin once all members are there."""

    ranks: Mapping[int, RankReplay]
    merged: MergedReplay
    clock_error_ns: int = 0  # How far the clock of any rank may be off
    token_surplus: TokenSurplus = field(default_factory=TokenSurplus)  # In common time

    @classmethod
    def of(cls, timeline: Timeline, window: WindowName, ranks: Sequence[int]) -> JobRehearsal:
        """Open some ranks, and join their replays.

        This process keeps all graphs and replays: about 430 bytes an event, or 220 an edge. A run
        takes about 60 ns an edge and reading.
        """
        summaries = timeline.graphs.summaries
        n_events = sum(summaries[rank].n_events for rank in ranks)
        if n_events > _MOST_EVENTS:
            raise TraceLimitError(
                f"the ranks have {n_events:,} events; up to {_MOST_EVENTS:,} can be replayed "
                "together.",
                hint="load fewer ranks, or replay one: hg.what_if(job[0], …), or --rank 0.",
            )
        asked = replay_requests(timeline, window, ranks)
        found: dict[int, RankReplay] = dict(timeline.graphs.ask(asked))
        if not found:
            raise QueryError("no rank of the job has this window.", hint="see job.failures.")
        begun_ns = {
            rank: int(timeline.clocks[rank].to_common(one.dag.span.start_ns))
            for rank, one in found.items()
        }
        replays = {rank: one.replay for rank, one in found.items()}
        merged = MergedReplay.of(replays, members_of(timeline, begun_ns))
        for rank, one in found.items():
            met = tuple(
                Reading(said.assumption, without_waits(said.replay, merged.members[rank]))
                for said in one.readings
            )
            found[rank] = replace(one, readings=met)
        spread_ns = max((fit.spread_ns for fit in timeline.fitted.fits.values()), default=0)
        surplus = timeline.token_surplus.moved(timeline.clocks)
        return cls(found, merged, int(_SPREADS * spread_ns), surplus)

    @cached_property
    def window(self) -> Window:
        """From when all ranks are recorded to the last end of any."""
        windows = [one.window for one in self.ranks.values()]
        start_ns = max(window.start_ns for window in windows)
        end_ns = max(window.end_ns for window in windows)
        return replace(windows[0], start_ns=start_ns, end_ns=end_ns, anchor=-1)

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The assumptions that apply to any rank, `Assumption.AS_BOUND` first.

        Each is made of all ranks at once; a rank that it does not apply to is read as bound.
        """
        applied = {said.assumption for one in self.ranks.values() for said in one.readings}
        return tuple(said for said in Assumption if said in applied)

    @property
    def spread(self) -> float:
        """How much steps of the same work differ, on the rank in the middle."""
        return float(np.median([one.spread for one in self.ranks.values()]))

    @property
    def run_to_run_ns(self) -> int:
        """By how much a saving may differ in another run."""
        return run_to_run_ns(self.spread, self.window.dur_ns)

    def run(
        self, changes: Sequence[Change], assumption: Assumption = Assumption.AS_BOUND
    ) -> JobRun:
        """Replay all ranks under changes, each made on every rank that has what it names."""
        return self._run(self._changed(changes, assumption))

    def _run(self, drafts: Mapping[int, Draft]) -> JobRun:
        times = self.merged.times_ns(drafts)
        return {
            rank: Run(one.replay, one.lag_ns, one.extra_ns, times[rank])
            for rank, one in drafts.items()
        }

    def _changed(self, changes: Sequence[Change], assumption: Assumption) -> dict[int, Draft]:
        drafts = {rank: self._draft(rank, assumption) for rank in self.ranks}
        for change in changes:
            _make(change, drafts)
        return drafts

    def _draft(self, rank: int, assumption: Assumption) -> Draft:
        one = self.ranks[rank]
        said = [reading for reading in one.readings if reading.assumption is assumption]
        return Draft(one.dag, (said or one.readings)[0], self.merged.members[rank])

    def charges(self, segments: pd.DataFrame, attributed_time: pd.DataFrame) -> Charges:
        """The causes of all time of all ranks, on the job's path or not.

        What makes a rank late is its lateness, and no other cause; but what it does with tokens
        beyond the mean is their imbalance.
        """
        ranks = (self._charges(rank, one) for rank, one in self.ranks.items())
        found = Charges.joined(ranks).with_path(segments, attributed_time)
        late, overfull = (
            set(attributed_time.loc[attributed_time["cause"] == cause, "rank"].tolist())
            for cause in (Cause.LATE_RANK, Cause.EXPERT_IMBALANCE)
        )
        for rank in sorted(late - overfull):
            draft, one = self._draft(rank, Assumption.AS_BOUND), self.ranks[rank]
            equalise().apply(draft)
            shorter = np.maximum(one.replay.weight_ns - draft.weight_ns, 0)
            spared_ns = np.bincount(
                one.replay.row[one.replay.row >= 0],
                shorter[one.replay.row >= 0],
                len(one.dag.edges),
            )
            found = found.less(rank, spared_ns.astype(np.int64))
        return found

    def _charges(self, rank: int, one: RankReplay) -> Charges:
        """The causes of all time of a rank by itself, and of its part of the imbalance."""
        found = Charges.of(one.dag, one.replay, rank)
        if rank not in self.token_surplus.times_ns:
            return found
        replay, share = one.replay, np.zeros(len(one.dag.edges))
        begin, end = replay.ts_ns[replay.tail], replay.ts_ns[replay.head]
        surplus_ns = self.token_surplus.within(rank, begin, np.maximum(begin, end))
        known = replay.row >= 0
        share[replay.row[known]] = (surplus_ns / np.maximum(end - begin, 1))[known]
        return found.split(share, Cause.EXPERT_IMBALANCE)

    def windows(self, run: JobRun) -> dict[int, Window]:
        """The window of each rank in a run, in common time."""
        return {
            rank: one.replay.window_in(run[rank].times_ns, one.window)
            for rank, one in self.ranks.items()
        }

    def dur_ns(self, run: JobRun) -> int:
        """Length of the job's window in a run."""
        windows = self.windows(run).values()
        start_ns = max(window.start_ns for window in windows)
        return max(max(window.end_ns for window in windows) - start_ns, 0)

    def saved_ns(self, changes: Sequence[Change]) -> int:
        """Time that changes are expected to save in the window."""
        known, key = self._expected_ns, tuple(map(id, changes))
        if key not in known:
            known[key] = changes, self.window.dur_ns - self.dur_ns(self.run(changes))
        return known[key][1]

    @cached_property
    def _expected_ns(self) -> dict[tuple[int, ...], tuple[Sequence[Change], int]]:
        """Expected savings found so far, by the ids of the changes."""
        return {}

    def path_after(self, changes: Sequence[Change]) -> EdgeTimes:
        """The critical path across ranks under changes, as time of edges."""
        drafts = self._changed(changes, Assumption.AS_BOUND)
        windows = self.windows(self._run(drafts))
        last = max(windows, key=lambda rank: (windows[rank].end_ns, rank))
        if windows[last].anchor < 0:
            none = np.zeros(0, dtype=np.int64)
            return EdgeTimes(none, none, none)
        place = int(drafts[last].replay.places[windows[last].anchor])
        start_ns = max(window.start_ns for window in windows.values())
        found = [
            EdgeTimes(np.full(len(row), rank), drafts[rank].replay.row[row], dur_ns)
            for rank, row, dur_ns in self.merged.path(drafts, last, place, since_ns=start_ns)
        ]
        return EdgeTimes(*map(np.concatenate, zip(*found, strict=True)))

    def saving(self, changes: Sequence[Change]) -> Saving:
        """Time that changes save in the window, by every reading and within clock errors."""
        expected, *others = self.assumptions
        found = [(expected, self.saved_ns(changes))] + [
            (assumption, self.window.dur_ns - self.dur_ns(self.run(changes, assumption)))
            for assumption in others
        ]
        return Saving.of(
            found, clock_error_ns=self.clock_error_ns, run_to_run_ns=self.run_to_run_ns
        )


def replay_requests(
    timeline: Timeline, window: WindowName, ranks: Sequence[int]
) -> dict[int, Request]:
    """Requests for the replays of some ranks."""
    return {rank: Request(window, ReplayIn(timeline.clocks[rank])) for rank in ranks}


def _make(change: Change, drafts: Mapping[int, Draft]) -> None:
    """Make a change on every rank that has what it names; raise if none has."""
    if change.rank is not None:
        if change.rank not in drafts:
            hint = f"the job has {', '.join(map(str, drafts))}."
            raise QueryError(f"there is no rank {change.rank} to change.", hint=hint)
        change.apply(drafts[change.rank])
        return
    missing = []
    for draft in drafts.values():
        try:
            change.apply(draft)
        except QueryError as exc:
            missing.append(exc.with_traceback(None))
    if len(missing) == len(drafts):
        # Left in the list, it would keep this frame, and so all ranks, in memory.
        raise missing.pop(0)
