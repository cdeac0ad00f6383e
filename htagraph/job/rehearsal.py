"""JobRehearsal: runs of a job's window under changes, by every reading of its traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from htagraph.errors import QueryError, TraceLimitError
from htagraph.job.members import members_of
from htagraph.job.merged_replay import MergedReplay
from htagraph.job.rank_replay import RankReplay, ReplayIn
from htagraph.job.ranks import Request, WindowName
from htagraph.job.timeline import Timeline
from htagraph.model.window import Window
from htagraph.replay.assumptions import Assumption, Reading
from htagraph.replay.changes import Change, OnRank
from htagraph.replay.collective_members import without_waits
from htagraph.replay.draft import Draft
from htagraph.replay.rehearsal import Run, Saving

__all__ = ["JobRehearsal", "JobRun", "replay_requests"]

_MOST_EVENTS = 30_000_000
_SPREADS = 3


JobRun = Mapping[int, Run]
"""One replayed run: of each rank, in common time."""


@dataclass(frozen=True)
class JobRehearsal:
    """What replays of a job under changes share: the replays of all ranks in common time.

    Parameters
    ----------
    ranks : mapping of int to RankReplay
        Their transfers begin when all are there.
    clock_error_ns : int, unit=ns
        How far the clock of any rank may be off: three times the spread of its collectives.
    """

    ranks: Mapping[int, RankReplay]
    merged: MergedReplay
    clock_error_ns: int = 0

    @classmethod
    def of(cls, timeline: Timeline, window: WindowName) -> JobRehearsal:
        """Open all ranks, and join their replays.

        Parameters
        ----------
        window : str or (int, int), optional
            Of every rank.

        Raises
        ------
        TraceLimitError
            If the ranks have more than 30 million events together.
        RankFailedError
            If a rank cannot be read, or has no such window, unless the job skips errors.

        Notes
        -----
        All graphs and replays are kept in this process: about 430 bytes an event, or 220 an edge.
        A run takes about 60 ns an edge and reading.
        """
        summaries = timeline.graphs.summaries
        n_events = sum(summaries[rank].n_events for rank in timeline.aligned)
        if n_events > _MOST_EVENTS:
            raise TraceLimitError(
                f"the ranks have {n_events:,} events, of which {_MOST_EVENTS:,} can be replayed "
                "together.",
                hint="load fewer of the ranks, or ask about one: hg.what_if(job[0], …), htagraph "
                "what-if FILE.",
            )
        asked = replay_requests(timeline, window)
        ranks: dict[int, RankReplay] = dict(timeline.graphs.ask(asked))
        if not ranks:
            raise QueryError("no rank of the job has this window.", hint="see job.failures.")
        begun_ns = {
            rank: int(timeline.clocks[rank].to_common(one.dag.span.start_ns))
            for rank, one in ranks.items()
        }
        replays = {rank: one.replay for rank, one in ranks.items()}
        merged = MergedReplay.of(replays, members_of(timeline, begun_ns))
        for rank, one in ranks.items():
            met = tuple(
                Reading(said.assumption, without_waits(said.replay, merged.members[rank]))
                for said in one.readings
            )
            ranks[rank] = replace(one, readings=met)
        spread_ns = max((fit.spread_ns for fit in timeline.fitted.fits.values()), default=0)
        return cls(ranks, merged, int(_SPREADS * spread_ns))

    @cached_property
    def window(self) -> Window:
        """What is asked about: from when all ranks are recorded to the last end of any."""
        windows = [one.window for one in self.ranks.values()]
        start_ns = max(window.start_ns for window in windows)
        end_ns = max(window.end_ns for window in windows)
        return Window(start_ns, end_ns, windows[0].name)

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The assumptions that apply to any rank, `Assumption.AS_BOUND` first.

        One is made about all ranks at once. Where it says nothing, a rank is read as bound.
        """
        applied = {said.assumption for one in self.ranks.values() for said in one.readings}
        return tuple(said for said in Assumption if said in applied)

    def run(
        self, changes: Sequence[Change], assumption: Assumption = Assumption.AS_BOUND
    ) -> JobRun:
        """Replay all ranks under changes, which are made on every rank that has what they name.

        Raises
        ------
        QueryError
            If a change names nothing that is there on any rank.
        """
        drafts = {rank: self._draft(rank, assumption) for rank in self.ranks}
        for change in changes:
            _make(change, drafts)
        times = self.merged.times_ns(drafts)
        return {
            rank: Run(one.replay, one.lag_ns, one.weight_ns, times[rank])
            for rank, one in drafts.items()
        }

    def _draft(self, rank: int, assumption: Assumption) -> Draft:
        one = self.ranks[rank]
        said = [reading for reading in one.readings if reading.assumption is assumption]
        return Draft(one.dag, (said or one.readings)[0], self.merged.members[rank])

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
        """What changes are expected to save in the window."""
        return self.window.dur_ns - self.dur_ns(self.run(changes))

    def then_bound(self, changes: Sequence[Change]) -> str:  # noqa: ARG002
        """Nothing: what bounds a job then is asked of its scenario, which costs a path."""
        return ""

    def saving(self, changes: Sequence[Change]) -> Saving:
        """What changes save in the window: by every reading, and as well as clocks are known."""
        found = (
            (assumption, self.window.dur_ns - self.dur_ns(self.run(changes, assumption)))
            for assumption in self.assumptions
        )
        return Saving.of(found, error_ns=self.clock_error_ns)


def replay_requests(timeline: Timeline, window: WindowName) -> dict[int, Request]:
    """What all ranks are asked for, so that they can be replayed."""
    return {rank: Request(window, ReplayIn(timeline.clocks[rank])) for rank in timeline.aligned}


def _make(change: Change, drafts: Mapping[int, Draft]) -> None:
    """Make a change on every rank that has what it names, or on its own; raise if none has."""
    if isinstance(change, OnRank):
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
            missing.append(exc)
    if len(missing) == len(drafts):
        raise missing[0]
