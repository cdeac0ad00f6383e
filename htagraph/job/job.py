"""Job: the ranks of one job, asked together.

Work on a rank is one pure function of its file, run by any `concurrent.futures.Executor`. Compiled
graphs stay in files of a cache folder; only small tables travel. What grows in the parent are
collectives, not events.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.errors import (
    ClockSkewWarning,
    IncompleteTraceWarning,
    QueryError,
    RankFailedError,
    RankNotFoundError,
)
from htagraph.graph import TraceGraph
from htagraph.job.clocks import Clocks, fit_clocks
from htagraph.job.collectives import match_collectives, measure_waits
from htagraph.job.lateness import compared_rank_segments, excess_times, late_arrivals
from htagraph.job.path import JobPath
from htagraph.job.rank_segments import RankEnds, RankSegment, find_rank_segments
from htagraph.job.ranks import (
    Asked,
    Attributed,
    Expanded,
    RankSummary,
    Reading,
    TimesByName,
    WindowName,
    open_rank,
    rank_ends,
    run_tasks,
    work_on,
)
from htagraph.job.stragglers import pipeline_bubbles, summarize_stragglers
from htagraph.model.frames import FAILURES
from htagraph.model.units import human_count, human_duration
from htagraph.questions import Question, Questions

__all__ = ["Job", "OnError"]

OnError = Literal["raise", "skip"]


@dataclass(frozen=True, repr=False)
class Job(Questions):
    """The ranks of one job; made by `load_job`.

    Every question of `TraceGraph` is answered for all ranks, with a column ``rank``.

    Parameters
    ----------
    summaries : mapping of int to RankSummary
        By rank.
    executor : Executor, optional
        Runs the work on ranks; by default processes of this machine, or none for a small job.
    reading : Reading
    on_error : {"raise", "skip"}
    failed : mapping of Path to str
        Files that could not be used, and why.
    asked_window : str or (int, int), optional
        Window of every rank.
    cache : object
        Keeps the folder of compiled graphs as long as the job lives.
    """

    summaries: Mapping[int, RankSummary]
    executor: Executor | None = None
    reading: Reading = field(default_factory=Reading)
    on_error: OnError = "raise"
    failed: dict[str, str] = field(default_factory=dict)
    asked_window: WindowName = None
    cache: object = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks, ascending."""
        return tuple(self.summaries)

    @property
    def failures(self) -> pd.DataFrame:
        """Files and ranks that could not be used, schema `frames.FAILURES`."""
        return FAILURES.frame({"path": list(self.failed), "error": list(self.failed.values())})

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """Ranks that the job had, by its world size, and that are not here."""
        sizes = [summary.world_size for summary in self.summaries.values() if summary.world_size]
        return tuple(rank for rank in range(max(sizes, default=0)) if rank not in self.summaries)

    def __getitem__(self, rank: int) -> TraceGraph:
        """Return the graph of a rank."""
        if rank not in self.summaries:
            raise RankNotFoundError(rank, self.ranks)
        return open_rank(self.summaries[rank], self.reading, self.asked_window)

    def __len__(self) -> int:
        """Return the number of ranks."""
        return len(self.summaries)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ranks."""
        return iter(self.summaries)

    def window(self, window: str | tuple[int, int]) -> Job:
        """Return the job in a window of every rank: a step or other host range by name, or times.

        Raises
        ------
        WindowNotFoundError
            When it is asked: if a rank has no such range.
        """
        return replace(self, asked_window=window)

    def _on_ranks(
        self, work: Mapping[int, Callable[[TraceGraph], Any]], window: WindowName, on_error: OnError
    ) -> dict[int, Any]:
        """Return what some work gives on each of some ranks, in a window of each."""
        tasks = {
            rank: (work_on, (self.summaries[rank], self.reading, window, function))
            for rank, function in work.items()
        }
        n_bytes = sum(
            self.summaries[rank].path.stat().st_size
            for rank in work
            if self.summaries[rank].path.exists()
        )
        results = run_tasks(tasks, self.executor, n_bytes=n_bytes)
        return {
            rank: result for rank, result in results.items() if self._kept(rank, result, on_error)
        }

    def _kept(self, rank: int, result: object, on_error: OnError) -> bool:
        """Return whether a rank answered; note or raise its error if not."""
        if not isinstance(result, BaseException):
            return True
        if on_error == "raise":
            raise RankFailedError(
                str(result), rank=rank, hint='load with on_error="skip" to go on without.'
            ) from result
        self.failed[str(self.summaries[rank].path)] = str(result)
        warnings.warn(f"rank {rank} is left out: {result}", IncompleteTraceWarning, stacklevel=4)
        return False

    def map(
        self, work: Callable[[TraceGraph], Any] | Mapping[int, Callable[[TraceGraph], Any]]
    ) -> dict[int, Any]:
        """Return what a function gives on the graph of each rank.

        Parameters
        ----------
        work : callable, or mapping of int to callable
            A function of a `TraceGraph`, or one for each rank that is to do any. It has to travel
            to other processes: a function of a module, not a lambda, unless the job runs in this
            process.

        Returns
        -------
        dict of int to object
            By rank.

        Raises
        ------
        RankFailedError
            If it fails on a rank, unless the job skips errors.
        """
        by_rank = work if isinstance(work, Mapping) else dict.fromkeys(self.summaries, work)
        return self._on_ranks(by_rank, self.asked_window, self.on_error)

    def _ask(self, question: Question, **options: Any) -> pd.DataFrame:  # noqa: ANN401  options of any question
        answers = self.map(Asked(question, options))
        frames = [frame.assign(rank=np.int64(rank)) for rank, frame in answers.items()]
        if not frames:
            raise QueryError("no rank of the job could answer.", hint="see job.failures.")
        joined: pd.DataFrame = pd.concat(frames, ignore_index=True)
        return joined[["rank", *(name for name in joined.columns if name != "rank")]]

    @cached_property
    def _matched(self) -> pd.DataFrame:
        return match_collectives(
            {rank: summary.collectives for rank, summary in self.summaries.items()}
        )

    @cached_property
    def _clocks(self) -> Clocks:
        fitted = fit_clocks(self._matched, list(self.summaries))
        if impossible := fitted.infeasible:
            warnings.warn(
                f"no clock brings rank{'s' if len(impossible) > 1 else ''} {', '.join(map(str, impossible))} together "
                "with the others: they may belong to another job, group or step. Waits across them are not used.",
                ClockSkewWarning,
                stacklevel=3,
            )
        return fitted

    @property
    def clocks(self) -> pd.DataFrame:
        """The clock of each rank against the first, and how sure it is; schema `job_answers.CLOCKS`."""
        return self._clocks.frame()

    def collectives(self) -> pd.DataFrame:
        """Return the collectives matched across ranks, in common time: who waited for whom; schema `job_answers.MATCHED_COLLECTIVES`.

        Ranks that no clock brings together with the others are left out.
        """
        return self._matched_collectives

    @cached_property
    def _matched_collectives(self) -> pd.DataFrame:
        usable = self._matched[~self._matched["rank"].isin(self._clocks.infeasible)]
        size = usable.groupby("match")["rank"].transform("size")
        return measure_waits(usable[size >= 2].reset_index(drop=True), self._clocks)

    def _common_clocks(self) -> dict[int, Clock]:
        return {rank: self.clock(rank) for rank in self.summaries}

    def clock(self, rank: int) -> Clock:
        """Return what turns times of a rank into common time."""
        return self._clocks.clock(rank)

    def _rank_ends(self) -> dict[int, RankEnds]:
        if self.asked_window is None:
            return {rank: summary.ends for rank, summary in self.summaries.items()}
        return self.map(rank_ends)

    def critical_path(self) -> JobPath:
        """Return the job's critical path: across ranks, through the collectives in which they waited for each other.

        It tiles the job's window in common time: from when all ranks are recorded to the last end
        of any.

        Returns
        -------
        JobPath

        Raises
        ------
        QueryError
            If no rank has the window.
        RankFailedError
            If a rank that the path visits cannot be read any more.
        """
        ends, clocks = self._rank_ends(), self._common_clocks()
        if not ends:
            raise QueryError(
                "no rank of the job has this window.", hint="name a step that all ranks recorded."
            )
        tables = {rank: self.summaries[rank].collectives for rank in ends}
        collectives = self.collectives()[self.collectives()["rank"].isin(ends)]
        rank_segments = find_rank_segments(tables, ends, collectives, clocks)
        expanded = self.on_rank_segments(rank_segments, Expanded)
        start_ns = max(int(clocks[rank].to_common(end.start_ns)) for rank, end in ends.items())
        name = "job" if self.asked_window is None else str(self.asked_window)
        return JobPath.of(rank_segments, expanded, start_ns=start_ns, name=name, job=self)

    @cached_property
    def late_arrivals(self) -> pd.DataFrame:
        """Who came late to which collective, and by how much; as `queries.lateness.late_arrivals` returns it."""
        return late_arrivals(self.collectives())

    @cached_property
    def excess_times(self) -> pd.DataFrame:
        """What made ranks late: what each did for longer than the runner-up; as `queries.lateness.excess_times`."""
        tables = {rank: summary.collectives for rank, summary in self.summaries.items()}
        ends = {rank: summary.ends for rank, summary in self.summaries.items()}
        rank_segments = compared_rank_segments(
            self.late_arrivals, self.collectives(), tables, ends, self._common_clocks()
        )
        return excess_times(
            self.late_arrivals,
            self.on_rank_segments(rank_segments, TimesByName, on_error=self.on_error),
        )

    def on_rank_segments(
        self,
        rank_segments: Sequence[RankSegment],
        work: type[Expanded | Attributed | TimesByName],
        *,
        on_error: OnError = "raise",
    ) -> dict[int, pd.DataFrame]:
        """Return what some work gives on the rank segments of a path, by rank; rows say in ``rank_segment`` to which they belong.

        Raises
        ------
        RankFailedError
            If a rank cannot be read any more.
        """
        by_rank: dict[int, list[tuple[int, RankSegment]]] = {}
        for number, rank_segment in enumerate(rank_segments):
            by_rank.setdefault(rank_segment.rank, []).append((number, rank_segment))
        return self._on_ranks(
            {rank: work(tuple(part)) for rank, part in by_rank.items()}, None, on_error
        )

    def stragglers(self) -> pd.DataFrame:
        """Return how often each rank came last, what that cost the others, and what it did meanwhile.

        Returns
        -------
        DataFrame, schema `job_answers.STRAGGLERS`
            The rank that cost most first. Only waits longer than the clocks are uncertain count.
        """
        return summarize_stragglers(
            self.collectives(), self.late_arrivals, self.excess_times, list(self.summaries)
        )

    def pipeline_bubbles(self) -> pd.DataFrame:
        """Return how long each rank waited in receives for the sender, by group; schema `job_answers.PIPELINE_BUBBLES`."""
        return pipeline_bubbles(self.collectives())

    def __repr__(self) -> str:
        """Say how many ranks and events there are."""
        n_events = sum(summary.n_events for summary in self.summaries.values())
        longest = max((s.ends.end_ns - s.ends.start_ns for s in self.summaries.values()), default=0)
        gone = (
            f", {human_count(len(self.missing_ranks), 'rank')} missing"
            if self.missing_ranks
            else ""
        )
        failed = f", {human_count(len(self.failed), 'file')} failed" if self.failed else ""
        return (
            f"Job({human_count(len(self), 'rank')}{gone}{failed}, {human_count(n_events, 'event')}, "
            f"{human_duration(longest)})"
        )
