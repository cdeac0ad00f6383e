"""Job: the ranks of one job, asked together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.errors import QueryError
from htagraph.findings.context import Context
from htagraph.findings.verdict import Verdict
from htagraph.graph import TraceGraph
from htagraph.job.path import WHOLE_JOB, JobPath, JobRoute
from htagraph.job.rank_segments import RankEnds, find_rank_segments
from htagraph.job.rank_work import Asked, TimesByNameIn, on_rank_segments
from htagraph.job.ranks import (
    RankAnswers,
    RankGraphs,
    RankSummary,
    Request,
    WindowName,
    Work,
    rank_ends,
)
from htagraph.job.rehearsal import JobRehearsal, replay_requests
from htagraph.job.stragglers import pipeline_bubbles, summarize_stragglers
from htagraph.job.timeline import Timeline
from htagraph.job.verdict import find_job_bounds
from htagraph.job.windows import job_window
from htagraph.model.answers import OPPORTUNITIES
from htagraph.model.deprecated import renamed
from htagraph.model.frames import FAILURES
from htagraph.model.units import human_count, human_duration
from htagraph.questions import Questions, check_options
from htagraph.replay.candidates import candidates, kinds_done
from htagraph.replay.predictions import predictions
from htagraph.writers.notebook_cell import table_html

__all__ = ["JOB_QUESTIONS", "Job"]

JOB_QUESTIONS = (
    "clocks",
    "collectives",
    "delay_costs",
    "opportunities",
    "pipeline_bubbles",
    "stragglers",
)
"""Questions that are about a job as a whole: members of `Job`, schemas in `model.job_answers`.

To add one: a file in ``job/``, its schema, a member of `Job`, this table.
``tests/api/test_questions.py`` says what is missing.
"""


_N_SHOWN = 32
_REPLAYED_EVENTS = 4_000_000
"""Events of all ranks up to which a report replays them: about 2 GB, and 1 s a change."""

_EVENTS_OF_A_RANK = 4_000
"""What a rank costs beside its events, as much as so many: 1 ms a change."""


@dataclass(frozen=True, repr=False)
class Job(Questions):
    """The ranks of one job; made by `load_job`.

    Every question of `TraceGraph` is answered for all ranks, with a column ``rank``; `collectives`
    are matched across ranks.

    Parameters
    ----------
    timeline : Timeline
        The ranks, on one clock.
    failed : mapping of str to str
        Files that could not be loaded, and why.
    asked_window : str, RankStep or (int, int), optional
        Window of every rank that is asked about; None for all.
    capture_note : str
        Which capture of a folder with several it is; empty where there was one.
    """

    timeline: Timeline
    failed: Mapping[str, str] = field(default_factory=dict)
    asked_window: WindowName = None
    capture_note: str = ""

    meetings = renamed("job.meetings", "job.collectives()", lambda job: job.collectives())

    @property
    def graphs(self) -> RankGraphs:
        """The graphs of the ranks, and who works on them."""
        return self.timeline.graphs

    @property
    def summaries(self) -> Mapping[int, RankSummary]:
        """What is known of each rank without opening it."""
        return self.graphs.summaries

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks, ascending."""
        return tuple(self.summaries)

    @property
    def failures(self) -> pd.DataFrame:
        """Files that could not be loaded, schema `frames.FAILURES`."""
        return FAILURES.frame({"path": list(self.failed), "error": list(self.failed.values())})

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """Ranks that the job had, by its world size, and that are not here."""
        sizes = [summary.world_size for summary in self.summaries.values() if summary.world_size]
        return tuple(rank for rank in range(max(sizes, default=0)) if rank not in self.summaries)

    def __getitem__(self, rank: int) -> TraceGraph:
        """Open the graph of a rank."""
        return self.graphs.open(rank, self.asked_window)

    def __len__(self) -> int:
        """Count the ranks."""
        return len(self.summaries)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ranks."""
        return iter(self.summaries)

    def window(self, window: str | tuple[int, int]) -> Job:
        """The job in a window of every rank: a step or other host range, or times.

        Parameters
        ----------
        window : str or (int, int)
            A name, glob or regex; a step by its number (``"5"``), ``"first"``, ``"last"`` or
            ``"median"``: the one of median length, over all ranks, of those that are alike on each;
            ``"trace"`` for all; or times, on the clock of each rank.

        Raises
        ------
        WindowNotFoundError
            If there is no such step; of a name, when the window is asked.
        QueryError
            If a word stands for different steps on different ranks, or no step is alike on all.

        Warns
        -----
        AmbiguousWindowWarning
            If several steps of a rank match.
        """
        found = job_window(self.summaries, window) or self.graphs.window
        return self if found == self.asked_window else replace(self, asked_window=found)

    def ask(self, question: str, **options: Any) -> pd.DataFrame:  # noqa: ANN401
        """Answer to a question by its name: what the member of that name gives.

        Parameters
        ----------
        question : str
            One of `QUESTIONS` or `JOB_QUESTIONS`.
        **options
            As for the method.

        Raises
        ------
        QueryError
            If there is no such question; the hint lists those there are.
        """
        if question not in JOB_QUESTIONS:
            return super().ask(question, **options)
        check_options(type(self), question, options)
        answer = getattr(self, question)
        frame: pd.DataFrame = answer(**options) if callable(answer) else answer
        return frame

    def _requests(self, work: Work | Mapping[int, Work]) -> dict[int, Request]:
        """Some work as requests to ranks, in the job's window."""
        by_rank = work if isinstance(work, Mapping) else dict.fromkeys(self.summaries, work)
        return {rank: Request(self.asked_window, one) for rank, one in by_rank.items()}

    def map(
        self, work: Callable[[TraceGraph], Any] | Mapping[int, Callable[[TraceGraph], Any]]
    ) -> RankAnswers:
        """Call a function with the graph of each rank.

        Parameters
        ----------
        work : callable, or mapping of int to callable
            A function of a `TraceGraph`, or one for each rank that is to do any. It has to travel
            to other processes: a function of a module, not a lambda, unless the job runs in this
            one.

        Returns
        -------
        RankAnswers
            What it returned, by rank. Of a job that skips errors, ``failed`` says which ranks could
            not, and why.

        Raises
        ------
        RankFailedError
            If it fails on a rank, unless the job skips errors.
        """
        return self.graphs.ask(self._requests(work))

    def visit(self, *works: Work) -> dict[int, str]:
        """Open every rank once for its part of the path, why it was late, and some more work.

        What this brings is kept: to ask for it afterwards opens nothing. A report visits first.

        Parameters
        ----------
        *works : callable
            Functions of a `TraceGraph`, as for `map`.

        Returns
        -------
        dict of int to str
            Why ranks could not be visited, by rank.
        """
        timeline = self.timeline
        asked: list[Mapping[int, Request]] = [self._requests(work) for work in works]
        asked += self._route.requests(timeline)
        for compared in (timeline.compared, timeline.compared_waits.rank_segments):
            asked.append(on_rank_segments(TimesByNameIn, compared))
        if self.is_replayed:
            asked.append(replay_requests(timeline, self.asked_window))
        return self.graphs.visit({rank: _of_rank(asked, rank) for rank in self.summaries})

    def _ask(self, question: str, **options: object) -> pd.DataFrame:
        """The answers of all ranks; ``attrs["failed"]`` says why others have none."""
        check_options(type(self), question, options)
        answers = self.map(Asked.of(question, **options))
        frames = [frame.assign(rank=np.int64(rank)) for rank, frame in answers.items()]
        if not frames:
            raise QueryError("no rank of the job could answer.", hint="see job.failures.")
        joined: pd.DataFrame = pd.concat(frames, ignore_index=True)
        joined = joined[["rank", *(name for name in joined.columns if name != "rank")]]
        joined.attrs["failed"] = answers.failed
        return joined

    @property
    def clocks(self) -> pd.DataFrame:
        """The clock of each rank against the first, and how sure it is: `job_answers.CLOCKS`."""
        return self.timeline.fitted.frame()

    def clock(self, rank: int) -> Clock:
        """What turns times of a rank into common time."""
        return self.timeline.clocks[rank]

    def collectives(self) -> pd.DataFrame:
        """The collectives matched across ranks, in common time: who waited for whom.

        Returns
        -------
        DataFrame, schema `job_answers.MATCHED_COLLECTIVES`
            One row per member of each matched collective. Ranks that no clock brings together with
            the others are left out. ``job[rank].collectives()`` has all of one rank.
        """
        return self.timeline.collectives

    @cached_property
    def _route(self) -> JobRoute:
        """Where the critical path runs; a named window is looked up on every rank."""
        timeline, ends = self.timeline, self._rank_ends()
        if not ends:
            hint = "name a step that all ranks recorded."
            raise QueryError("no rank of the job has this window.", hint=hint)
        tables = {rank: self.summaries[rank].collectives for rank in ends}
        matched = timeline.collectives[timeline.collectives["rank"].isin(ends)]
        rank_segments = find_rank_segments(tables, ends, matched, timeline.clocks)
        starts = [timeline.clocks[rank].to_common(end.start_ns) for rank, end in ends.items()]
        name = WHOLE_JOB if self.asked_window is None else str(self.asked_window)
        return JobRoute(tuple(rank_segments), max(map(int, starts)), name)

    def _rank_ends(self) -> Mapping[int, RankEnds]:
        known = {rank: summary.ends for rank, summary in self.summaries.items()}
        aligned = set(self.timeline.aligned)
        if self.asked_window == self.graphs.window:
            return {rank: ends for rank, ends in known.items() if rank in aligned}
        found: Mapping[int, RankEnds] = self.map(rank_ends)
        if kept := self.graphs.kept:
            if any(ends.start_ns < known[rank].start_ns for rank, ends in found.items()):
                raise QueryError(
                    f"{self.asked_window} begins before {kept.window.name}, of which and later the "
                    "collectives are kept.",
                    hint="name a later window, or load_job(most_collectives=…) with more.",
                )
            found = {r: ends.later(self.summaries[r].n_left_out) for r, ends in found.items()}
        return {rank: ends for rank, ends in found.items() if rank in aligned}

    def quality(self) -> pd.DataFrame:
        """Checks of what is linked, classified and recorded, and which answers are weaker.

        Where the job is of its last steps, as it has too many collectives, one more check says so.
        """
        found, kept = super().quality(), self.graphs.kept
        return found if kept is None else kept.added_to(found, self.graphs.n_collectives)

    def critical_path(self) -> JobPath:
        """The job's critical path: across ranks, through the collectives in which they waited.

        It tiles the job's window in common time: from when all ranks are recorded to the last end
        of any. Ranks that no clock brings together with the others are left out.

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
        return JobPath.along(self._route, self.timeline)

    @property
    def is_replayed(self) -> bool:
        """Whether the job is small enough for a report to replay all of it."""
        ranks = self.timeline.aligned
        n_events = sum(_EVENTS_OF_A_RANK + self.summaries[rank].n_events for rank in ranks)
        return n_events <= _REPLAYED_EVENTS

    @cached_property
    def rehearsal(self) -> JobRehearsal:
        """The replays of all ranks, joined: what `what_if` changes. They are kept with the job."""
        return JobRehearsal.of(self.timeline, self.asked_window)

    def stragglers(self) -> pd.DataFrame:
        """How often each rank came last, what that cost the others, and what made it late.

        Returns
        -------
        DataFrame, schema `job_answers.STRAGGLERS`
            The rank that cost most first. Only waits longer than the clocks are uncertain count.
        """
        line = self.timeline
        return summarize_stragglers(
            line.collectives, line.late_arrivals, line.excess_times, list(self.summaries)
        )

    def delay_costs(self) -> pd.DataFrame:
        """All waits of all ranks, charged to what made ranks late, however far down the line.

        A rank that was late as it had itself waited is not charged with that: whoever it waited for
        is. In a pipeline, a receive waits for the sender by design; what the sender did until then
        is its cost.

        Returns
        -------
        DataFrame, schema `job_answers.DELAY_COSTS`
            The costliest first. ``delay_ns`` adds up to ``own_wait_ns`` of `stragglers`: a rank
            that waits in several collectives at once waits once. Rank -1 has what nobody can be
            charged with, and ``name`` says why: of a job with more than 100,000 waits, only the
            longest are looked into. Where several came last, as far as the clocks are
            known, it is the last by estimate that is charged.
        """
        return self.timeline.delay_costs

    def opportunities(self) -> pd.DataFrame:
        """Changes that would make the job shorter, each with what it saves: predictions.

        All ranks are replayed together with each change; ``job[rank].opportunities()`` is about one
        rank by itself.

        Returns
        -------
        DataFrame, schema `answers.OPPORTUNITIES`
            Largest expected saving first.

        Raises
        ------
        TraceLimitError
            If the ranks have too many events together.
        """
        path = self.critical_path()
        run = Context.of_job([rank.context for rank in self.summaries.values()])
        done = kinds_done(is_replayed=run.is_replayed, loading=run.loading)
        asked = candidates(path.segments, path.attributed_time, done=done)
        return predictions(self.rehearsal, asked)

    def verdict(self) -> Verdict:
        """What bounds the job: the causes of its critical path across ranks, late ranks included.

        Returns
        -------
        Verdict
            Withheld where too much of the path is unexplained to tell, or no clocks of two ranks
            could be aligned. Of a job that is too large to replay, savings are bounds.
        """
        by_name = Asked.of("kernel_breakdown", by="name")
        self.visit(by_name)
        opportunities = self.opportunities() if self.is_replayed else OPPORTUNITIES.empty()
        kernels = self.kernel_breakdown(by="name")
        return find_job_bounds(self.critical_path(), self.stragglers(), kernels, opportunities)

    def pipeline_bubbles(self) -> pd.DataFrame:
        """How long each rank waited in receives for the sender, by group.

        Returns
        -------
        DataFrame, schema `job_answers.PIPELINE_BUBBLES`
        """
        return pipeline_bubbles(self.collectives())

    def __repr__(self) -> str:
        """Say how many ranks and events there are."""
        summaries = self.summaries.values()
        n_events = sum(summary.n_events for summary in summaries)
        longest = max((s.ends.end_ns - s.ends.start_ns for s in summaries), default=0)
        missing = human_count(len(self.missing_ranks), "rank")
        gone = f", {missing} missing" if self.missing_ranks else ""
        failed = f", {human_count(len(self.failed), 'file')} failed" if self.failed else ""
        return (
            f"Job({human_count(len(self), 'rank')}{gone}{failed}, "
            f"{human_count(n_events, 'event')}, {human_duration(longest)})"
        )

    def _repr_html_(self) -> str:
        """The ranks, for a notebook."""
        ranks = list(self.summaries.values())
        rows = [
            (f"rank {rank.rank}", human_count(rank.n_events, "event"), Path(rank.path).name)
            for rank in ranks[:_N_SHOWN]
        ]
        if len(ranks) > _N_SHOWN:
            rows.append((f"… {len(ranks) - _N_SHOWN:,} more", "", ""))
        return table_html(rows, title=repr(self))


def _of_rank(asked: Iterable[Mapping[int, Request]], rank: int) -> list[Request]:
    """What one rank is asked."""
    return [requests[rank] for requests in asked if rank in requests]
