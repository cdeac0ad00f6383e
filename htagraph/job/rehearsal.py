"""JobRehearsal: replays of a job's window under changes, by every reading of its traces.

The replays of all ranks are one, joined at matched collectives::

    start of member i  --0-->  all are there  --transfer-->  what waits for member i

Each matched collective has a node of its own: the last arrival of those that others wait for. Nodes
are numbered rank by rank, so that a rank's changes stay an array of its own; one topological order
goes through all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from htagraph.arrays.binding import bind, topological_order, walk_back
from htagraph.arrays.clocks import Clock
from htagraph.arrays.codes import gather, lower_medians
from htagraph.arrays.delays import new_delays
from htagraph.arrays.retime import DROPPED, retime
from htagraph.errors import QueryError, TraceLimitError
from htagraph.job.bandwidths import fitted_latencies
from htagraph.job.ranks import Request, WindowName
from htagraph.job.timeline import Timeline
from htagraph.lookup.steady_steps import steady_steps
from htagraph.model.arrays import I32, I64, Bools, brief
from htagraph.model.dag import Dag
from htagraph.model.kinds import Cause
from htagraph.model.window import Window
from htagraph.replay.assumptions import Assumption, Reading, readings
from htagraph.replay.changes import Change, TokenSurplus, equalise
from htagraph.replay.charges import Charges, EdgeTimes
from htagraph.replay.draft import Draft
from htagraph.replay.rehearsal import Rehearsed, Run, step_spread
from htagraph.replay.replay import Members, Replay, replay_of, transfers, without_waits
from htagraph.run.graph import TraceGraph

_NEVER = np.iinfo(np.int64).min


class _Joined(NamedTuple):
    """Edges of all ranks and of matched collectives, sorted by head."""

    # offsets, tail, weight, release: as `retime` takes them
    offsets: I64
    tail: I32
    weight: I64
    release: I64
    # rank, row: of shape (n_edges,). Of a rank's own edge, -1 for arrivals at collectives.
    rank: I64
    row: I64


@brief
@dataclass(frozen=True)
class MergedReplay:
    """The order of the nodes of all ranks, which changes do not touch."""

    first: Mapping[int, int]  # Number of the first node of each rank
    n_nodes: int  # Of all ranks; nodes of collectives follow
    # Of shape (n_nodes + n_collectives,). Topological: by time, then by depth. It keeps the order
    # within each rank.
    order: I32
    members: Mapping[int, Members]
    n_collectives: int

    @classmethod
    def of(cls, replays: Mapping[int, Replay], members: Mapping[int, Members]) -> Self:
        """Put the nodes of all ranks in order; replays are in common time."""
        sizes = [len(replay.node) for replay in replays.values()]
        n_nodes = sum(sizes)
        first = dict(zip(replays, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
        n = 1 + max((int(one.match.max(initial=-1)) for one in members.values()), default=-1)
        met_ns = np.zeros(n, dtype=np.int64)
        edges: list[tuple[I64, I64]] = []
        for rank, replay in replays.items():
            own = members[rank]
            met_ns[own.match] = own.met_ns
            came = np.flatnonzero(own.is_awaited)
            row, member = transfers(replay, own)
            at_once = np.flatnonzero(np.diff(replay.ts_ns) == 0)
            edges += [
                (first[rank] + replay.places[2 * own.came[came]], n_nodes + own.match[came]),
                (n_nodes + own.match[member], first[rank] + replay.head[row].astype(np.int64)),
                (first[rank] + at_once, first[rank] + at_once + 1),
            ]
        tail, head = (
            np.concatenate([np.empty(0, dtype=np.int64), *ends]).astype(np.int32)
            for ends in zip(*edges, strict=True)
        )
        times = np.concatenate([*(replay.ts_ns for replay in replays.values()), met_ns])
        order, cyclic = topological_order(tail, head, times)
        if cyclic.any():  # collectives at one instant, in another order on each rank
            unclear = np.maximum(tail[cyclic], head[cyclic]) - n_nodes
            return cls.of(replays, {r: own.without(unclear) for r, own in members.items()})
        return cls(first, n_nodes, order, members, n)

    def times_ns(self, drafts: Mapping[int, Draft]) -> dict[int, I64]:
        """When each node of each rank happens under drafts, which are in the order of the ranks."""
        times = self._times_ns(self._joined(drafts))
        return {
            rank: times[self.first[rank] : self.first[rank] + len(draft.replay.node)]
            for rank, draft in drafts.items()
        }

    def path(
        self, drafts: Mapping[int, Draft], rank: int, place: int, *, since_ns: int
    ) -> Iterator[tuple[int, I64, I64]]:
        """Yield each rank's edges on the critical path to a place of a rank, and their times.

        Rows are those of the rank's draft. The time after a wait for others is its transfer's.
        """
        joined = self._joined(drafts)
        times = self._times_ns(joined)
        head = np.repeat(np.arange(len(times), dtype=np.int32), np.diff(joined.offsets))
        kind, alike = np.zeros(len(head), dtype=np.int8), np.zeros(len(times), dtype=np.int64)
        binding = bind(joined.tail, head, kind, joined.weight, times, alike)
        last = self.first[rank] + place
        walked = walk_back(last, binding, joined.tail, times, until_ns=since_ns)
        dur_ns = times[head[walked]] - np.maximum(times[joined.tail[walked]], since_ns)
        row, of_rank = joined.row[walked], joined.rank[walked]
        for number in drafts:
            mine = np.flatnonzero(of_rank == number)
            yield number, row[mine], dur_ns[mine]

    def _times_ns(self, joined: _Joined) -> I64:
        return retime(joined.offsets, joined.tail, joined.weight, joined.release, self.order)

    def _joined(self, drafts: Mapping[int, Draft]) -> _Joined:
        """The edges of all ranks, and those to and from matched collectives, sorted by head."""
        tails, weights, counts, releases, at, joined = [], [], [], [], [], []
        came, into, n_edges = [], [], 0
        own_rows, own_ranks = [], []
        for rank, draft in drafts.items():
            replay, own, first = draft.replay, self.members[rank], self.first[rank]
            weight = draft.weight_ns
            row, member = draft.transfers
            kept = ~draft.is_out[own.event[member]] & (weight[row] != DROPPED)
            row, member = row[kept], member[kept]
            arrives = np.flatnonzero(own.is_awaited & ~draft.is_out[own.event])
            came.append(first + replay.places[2 * own.came[arrives]])
            into.append(own.match[arrives])
            at.append(n_edges + row)
            joined.append(self.n_nodes + own.match[member])
            tails.append(replay.tail + np.int32(first))
            weights.append(weight)
            own_rows.append(np.arange(len(weight)))
            own_ranks.append(np.full(len(weight), rank))
            count = np.diff(replay.offsets)
            np.add.at(count, replay.head[row], 1)
            counts.append(count)
            releases.append(draft.release_ns)
            n_edges += len(weight)
        order = np.argsort(np.concatenate(into), kind="stable")
        rows, weight = np.concatenate(at), np.concatenate(weights)
        row, of_rank = np.concatenate(own_rows), np.concatenate(own_ranks)
        counts.append(np.bincount(np.concatenate(into), minlength=self.n_collectives))
        met = np.concatenate(came)[order]
        nothing = np.full(len(order), -1)
        return _Joined(
            offsets=np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64),
            tail=np.concatenate(
                [np.insert(np.concatenate(tails), rows, np.concatenate(joined)), met]
            ).astype(np.int32),
            weight=np.concatenate([np.insert(weight, rows, weight[rows]), 0 * order]),
            release=np.concatenate([*releases, np.full(self.n_collectives, DROPPED)]),
            row=np.concatenate([np.insert(row, rows, row[rows]), nothing]),
            rank=np.concatenate([np.insert(of_rank, rows, of_rank[rows]), nothing]),
        )


def members_of(timeline: Timeline, begun_ns: Mapping[int, int]) -> dict[int, Members]:
    """The members of matched collectives, by rank: whom each meets, and how late it is.

    No rank waits in a collective that misses members, nor in one that ended, by the clocks, before
    the last one arrived. `begun_ns`: when the capture of each rank begins, in common time. A rank
    is not to blame for being late by then: its profiler started later.
    """
    roles, measured = timeline.members, timeline.collectives
    here = measured["rank"].isin(begun_ns).to_numpy(dtype=bool, copy=True)
    here &= ~measured["is_partial"].to_numpy(dtype=bool)
    roles, measured = roles[here], measured[here]
    match, rank, event, arrived, overrun = (
        measured[name].to_numpy(np.int64)
        for name in ("match", "rank", "event", "arrived_ns", "overrun_ns")
    )
    awaited, waits = (roles[name].to_numpy(dtype=bool) for name in ("is_awaited", "waits"))
    met = pd.Series(np.where(awaited, arrived, _NEVER)).groupby(match).transform("max").to_numpy()
    begun = pd.Series(begun_ns).reindex(rank).to_numpy(np.int64)
    came, left = np.empty_like(event), np.empty_like(event)
    # A transfer that was there already is no meeting: the rank may have been late before it.
    passed = (~roles["is_rendezvous"] & (measured["wait_ns"] == 0)).to_numpy(dtype=bool)
    if timeline.late_hosts:
        # Nor is a meeting of ranks that are late together.
        host = measured["rank"].map(timeline.late_hosts).fillna("")
        of_match = host.groupby(match)
        is_inside = (of_match.transform("nunique") == 1) & (host != "")
        passed = passed | is_inside.to_numpy(dtype=bool)
    for number in begun_ns:
        rows = np.flatnonzero(rank == number)
        mine = roles["collective"].iloc[rows]
        came[rows], left[rows] = _came(timeline, number, mine, passed[rows])
    median = lower_medians(match, arrived)
    # A rank that waited in a collective, like the median rank, was not late before it left.
    left = np.maximum(left, left[median])
    since = np.where(left > _NEVER, left, begun)
    late = arrived - arrived[median]
    at_first = arrived - begun - (arrived - begun)[lower_medians(match, arrived - begun)]
    late = np.where(left > _NEVER, late, np.minimum(late, at_first))
    late = np.where(roles["is_rendezvous"], np.maximum(late, 0), 0)
    least = np.minimum(late, np.maximum(arrived - _latest_other(match, arrived), 0))
    latency, error = fitted_latencies(timeline.collectives, timeline.tables, match)
    found = {}
    for number in begun_ns:
        rows = np.flatnonzero(rank == number)
        rows = rows[np.argsort(arrived[rows], kind="stable")]
        seen, met_there = arrived[rows], np.flatnonzero(~passed[rows])
        begin, own, least_begin, least_own = seen.copy(), 0 * seen, seen.copy(), 0 * seen
        at, earliest = seen[met_there], np.minimum(since[rows], seen)[met_there]
        begin[met_there], own[met_there] = new_delays(at, earliest, late[rows][met_there])
        least_begin[met_there], least_own[met_there] = new_delays(
            at, earliest, least[rows][met_there]
        )
        found[number] = Members(
            rank=number,
            match=match[rows],
            event=event[rows],
            came=came[rows],
            waits=waits[rows] & (overrun[rows] == 0) & (met[rows] > _NEVER),
            is_awaited=awaited[rows],
            arrived_ns=arrived[rows],
            met_ns=met[rows],
            since_ns=begin,
            late_ns=own,
            least_since_ns=least_begin,
            least_late_ns=least_own,
            latency_ns=latency[rows],
            latency_error=error[rows],
        )
    return found


def _came(
    timeline: Timeline, rank: int, collective: pd.Series[int], passed: Bools
) -> tuple[I64, I64]:
    """The event with which a rank arrived at collectives, and when it had left the one before.

    That is the collective that its arrival goes back to, if there is one, without those that it
    passed.
    """
    table = timeline.graphs.summaries[rank].collectives
    row = np.searchsorted(table["collective"], collective)
    arrival = table["arrival"].to_numpy(np.int64)[row]
    row = np.where(arrival >= 0, arrival, row)
    ends = timeline.clocks[rank].to_common(table["end_ns"])
    all_after, is_passed = table["after"].to_numpy(np.int64), np.zeros(len(table), dtype=bool)
    after, is_passed[np.searchsorted(table["collective"], collective)] = all_after[row], passed
    while (at := np.flatnonzero(gather(is_passed, after, default=False))).size:
        after[at] = all_after[after[at]]
    return table["event"].to_numpy(np.int64)[row], gather(ends, after, _NEVER)


def _latest_other(match: I64, arrived: I64) -> I64:
    """When the last of the others arrived at the collective of each row; its own if alone."""
    order = np.lexsort((arrived, match))
    ends = np.flatnonzero(np.diff(match[order], append=-1))
    sizes = np.diff(ends, prepend=-1)
    last, runner_up = order[ends], order[np.where(sizes > 1, ends - 1, ends)]
    row = np.empty(len(match), dtype=np.int64)
    row[order] = np.repeat(last, sizes)
    row[last] = runner_up
    return arrived[row]


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
class JobRehearsal(Rehearsed):
    """The replays of a job's ranks in common time; transfers begin once all members are there."""

    ranks: Mapping[int, RankReplay]
    merged: MergedReplay
    window: Window  # From when all ranks are recorded to the last end of any
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
        windows = [one.window for one in found.values()]
        start_ns = max(window.start_ns for window in windows)
        end_ns = max(window.end_ns for window in windows)
        whole = replace(windows[0], start_ns=start_ns, end_ns=end_ns, anchor=-1)
        return cls(found, merged, whole, int(_SPREADS * spread_ns), surplus)

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

    def changed_ns(
        self, changes: Sequence[Change], assumption: Assumption = Assumption.AS_BOUND
    ) -> int:
        """Length of the job's window under changes."""
        return self.dur_ns(self.run(changes, assumption))

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
