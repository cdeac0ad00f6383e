"""Job: the ranks of one job, asked together."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from htagraph.arrays.clocks import Clock
from htagraph.errors import IncompleteTraceWarning, QueryError, RankFailedError
from htagraph.explain.default_window import SAID_FROM, ends_in_words, is_long, opening_in_words
from htagraph.findings.context import Context
from htagraph.findings.verdict import Verdict
from htagraph.job.bandwidths import BandwidthKey
from htagraph.job.collectives import step_names
from htagraph.job.damage import (
    RankDamage,
    find_damage,
    job_damage_in_words,
    replayed_ranks,
    told_once,
)
from htagraph.job.delay_costs import delay_costs
from htagraph.job.groups import AXES, groups_frame, layout_frame
from htagraph.job.lateness import by_part, pipeline_bubbles, summarize_stragglers
from htagraph.job.path import WHOLE_JOB, JobPath, JobRoute, JobWhy, job_why
from htagraph.job.pipeline import Pipeline, PipelineCauses
from htagraph.job.pipeline_what_if import pipeline_what_if
from htagraph.job.rank_segments import RankEnds, find_rank_segments
from htagraph.job.rank_work import (
    Question,
    attributed_in,
    on_rank_segments,
    path_in,
    times_by_name,
    verdict_of,
)
from htagraph.job.ranks import (
    RankAnswers,
    RankGraphs,
    RankSummary,
    Request,
    WindowName,
    Work,
    job_window,
    rank_ends,
)
from htagraph.job.rehearsal import JobRehearsal, replay_requests
from htagraph.job.timeline import Timeline
from htagraph.job.verdict import find_job_bounds
from htagraph.job.windows import AfterOpening, RankSteps, job_steps
from htagraph.lookup.done_steps import DoneSteps
from htagraph.lookup.find_window import WHOLE
from htagraph.model.answers import DAMAGE, OPPORTUNITIES, QUALITY
from htagraph.model.arrays import I64
from htagraph.model.columns import schema_of
from htagraph.model.frames import FAILURES
from htagraph.model.job_answers import (
    BANDWIDTHS,
    CLOCKS,
    DELAY_COSTS,
    EXPERTS,
    LAYOUT,
    MATCHED_COLLECTIVES,
    PIPELINE,
    PIPELINE_BUBBLES,
    PIPELINE_SAVINGS,
    PIPELINE_SCHEDULE,
    PIPELINE_WHAT_IF,
    PROCESS_GROUPS,
    STRAGGLERS,
)
from htagraph.model.kinds import Bound
from htagraph.model.schema import Quantity
from htagraph.model.units import human_count, human_duration
from htagraph.queries.quality import damage_frame
from htagraph.queries.questions import QUESTIONS, Questions, check_options, unknown_question
from htagraph.readers.storage import url_of
from htagraph.replay.changes import balance
from htagraph.replay.charges import Charges
from htagraph.replay.predictions import Candidate, Trials, kinds_done, of_causes, of_parts
from htagraph.run.graph import TraceGraph
from htagraph.writers.answering import answer_of, answers
from htagraph.writers.notebook_cell import table_html

JOB_QUESTIONS = (
    "bandwidths",
    "clocks",
    "collectives",
    "delay_costs",
    "experts",
    "layout",
    "opportunities",
    "pipeline",
    "pipeline_bubbles",
    "pipeline_savings",
    "pipeline_schedule",
    "pipeline_what_if",
    "process_groups",
    "stragglers",
)
"""Questions about a job as a whole: members of `Job`, with schemas in `model.job_answers`. To add
one: a file in ``job/``, its schema, a member of `Job`, this table. ``tests/api/test_questions.py``
names what is missing."""


PartKey = Literal["rank", "host", "replica", "shard", "stage", "expert", "context"]
"""What ranks are put together by."""

_N_SHOWN = 32
"""Ranks that a notebook lists. A limit of the screen: `Job.ranks` has all. Pinned by
test_loading."""

_REPLAYED_EVENTS = 4_000_000
"""Events of all ranks up to which a report replays them. A limit of memory and time, chosen.
Documented in `docs/limits.md`; `tests/hostile/test_damage.py` compares."""

_EVENTS_OF_A_RANK = 4_000
"""Fixed cost of a rank in a replay, counted as events. Chosen; documented and compared with it."""


@dataclass(frozen=True, repr=False)
class Job(Questions):
    """The ranks of one job; made by `load_job`.

    It answers every question of `TraceGraph` for all ranks, with a column ``rank``; `collectives`
    are matched across ranks.

    Parameters
    ----------
    timeline : Timeline
        The ranks, on one clock.
    failed : mapping of str to str
        Files that could not be loaded, and why.
    asked_window : str, RankStep or (int, int), optional
        Window of every rank; by default steps that all ranks have, as `rank_window` says.
    capture_note : str
        Which of several captures of a folder it is; empty if there was one.
    """

    timeline: Timeline
    failed: Mapping[str, str] = field(default_factory=dict)
    asked_window: WindowName = None
    capture_note: str = ""

    @property
    def graphs(self) -> RankGraphs:
        """The graphs of the ranks, and the workers that open them."""
        return self.timeline.graphs

    @property
    def summaries(self) -> Mapping[int, RankSummary]:
        """The summary of each rank, which needs no graph."""
        return self.graphs.summaries

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks, ascending."""
        return tuple(self.summaries)

    @property
    @answers(FAILURES)
    def failures(self) -> pd.DataFrame:
        """Files that could not be loaded, schema `frames.FAILURES`."""
        return FAILURES.frame({"path": list(self.failed), "error": list(self.failed.values())})

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """Ranks of the job, by its world size, that were not loaded."""
        sizes = [summary.world_size for summary in self.summaries.values() if summary.world_size]
        return tuple(rank for rank in range(max(sizes, default=0)) if rank not in self.summaries)

    def __getitem__(self, rank: int) -> TraceGraph:
        """Open the graph of a rank."""
        return self.graphs.open(rank, self.rank_window)

    def __len__(self) -> int:
        return len(self.summaries)

    def __iter__(self) -> Iterator[int]:
        return iter(self.summaries)

    def window(self, window: str | tuple[int, int]) -> Job:
        """The job in a window of every rank: a step or other host range, or times.

        Parameters
        ----------
        window : str or (int, int)
            A name, glob or regex; a step by its number (``"5"``), ``"first"``, ``"last"`` or
            ``"median"``: the one of median length, over all ranks, of those typical on each;
            ``"trace"`` for all; or times, on the clock of each rank.

        Raises
        ------
        WindowNotFoundError
            If there is no such step; for a name, at the first question.
        QueryError
            If a word stands for different steps on different ranks, or no step is typical on all.

        Warns
        -----
        AmbiguousWindowWarning
            If several steps of a rank match.
        """
        found = job_window(self.summaries, window)
        return self if found == self.asked_window else replace(self, asked_window=found)

    @property
    def rank_window(self) -> WindowName:
        """The window of every rank that questions are answered for; None for all.

        By default the whole steps that all ranks have, without the first if that is unlike the
        others, and without work from before the profile; without steps, the rest.
        """
        if self.asked_window is None:
            return self._default[0]
        return self.graphs.window if self.asked_window == WHOLE else self.asked_window

    @property
    def left_out(self) -> tuple[str, ...]:
        """What the default window leaves out of the traces; empty if a window was asked for."""
        return self._default[1] if self.asked_window is None else ()

    @cached_property
    def begins(self) -> str:
        """Why the job is shorter than the recording of a rank, if it is; a sentence, else empty."""
        if self.n_steps:
            return ""
        route, ends = self._route, self._rank_ends.items()
        first_ns = min(one.common(self.clock(rank))[0] for rank, one in ends)
        apart_ns = route.start_ns - first_ns
        if apart_ns < SAID_FROM * (route.end_ns - first_ns) or not apart_ns:
            return ""
        apart = human_duration(apart_ns)
        return (
            f"Ranks began to record up to {apart} apart: the job is from when the last one began."
        )

    @property
    def n_steps(self) -> int:
        """Whole steps that the window consists of, 0 if it is not made of steps."""
        window = self.rank_window
        if isinstance(window, RankSteps):
            return window.n
        name = str(window)
        return int(all(name in one.steps for one in self.summaries.values()))

    @cached_property
    def _default(self) -> tuple[WindowName, tuple[str, ...]]:
        """The default window of every rank, and what of the traces it leaves out."""
        base, said = self.graphs.window, []
        # A rank that fails is left out by who visits all of them.
        with suppress(RankFailedError):
            if opening_ns := self._long_opening_ns():
                base, said = AfterOpening(), [opening_in_words(opening_ns)]
        ends = [one.common(self.clock(rank)) for rank, one in self._ends_in(base).items()]
        start_ns, end_ns = map(max, zip(*ends, strict=True))
        steps, _ = self.done_steps
        some = steps.of_window(start_ns, end_ns)
        if some is None:
            return base, tuple(said)
        first, last = (str(steps.names[row]) for row in (some.start, some.stop - 1))
        said += ends_in_words(steps, some, (start_ns, end_ns))
        return RankSteps(first, last, steps.window(some).n_steps), tuple(said)

    def _long_opening_ns(self) -> int:
        """Time of the whole path in which devices run work from before the profile, if long."""
        summaries = self.summaries.values()
        if self.graphs.window is not None or not any(one.may_open_long for one in summaries):
            return 0
        path = self.window(WHOLE).critical_path()
        before = path.segments["bound"] == Bound.WORK_FROM_BEFORE_THE_PROFILE.label
        opening_ns = int(path.segments.loc[before, "dur_ns"].sum())
        return opening_ns if is_long(opening_ns, path.dur_ns) else 0

    @cached_property
    def done_steps(self) -> tuple[DoneSteps, Mapping[int, I64]]:
        """The steps that all aligned ranks have, in common time, and their rows on each rank."""
        by_rank = {rank: self.summaries[rank].done for rank in self.timeline.aligned}
        return job_steps(by_rank, self.timeline.clocks)

    def ask(self, question: str, **options: Any) -> pd.DataFrame:  # noqa: ANN401
        """Answer to a question by its name, as from the member of that name.

        Parameters
        ----------
        question : str
            One of `QUESTIONS` or `JOB_QUESTIONS`.
        **options
            As for the method.

        Raises
        ------
        QueryError
            If there is no such question; the hint lists all.
        """
        if question not in JOB_QUESTIONS:
            if question not in QUESTIONS:
                raise unknown_question(question, (*QUESTIONS, *JOB_QUESTIONS))
            return super().ask(question, **options)
        check_options(type(self), question, options)
        answer = getattr(self, question)
        frame: pd.DataFrame = answer(**options) if callable(answer) else answer
        return frame

    def _requests(self, work: Work | Mapping[int, Work]) -> dict[int, Request]:
        """Some work as requests to ranks, in the job's window."""
        by_rank = work if isinstance(work, Mapping) else dict.fromkeys(self.summaries, work)
        window = self.rank_window
        return {rank: Request(window, one) for rank, one in by_rank.items()}

    def map(
        self, work: Callable[[TraceGraph], Any] | Mapping[int, Callable[[TraceGraph], Any]]
    ) -> RankAnswers:
        """Call a function with the graph of each rank.

        Parameters
        ----------
        work : callable, or mapping of int to callable
            A function of a `TraceGraph`, or one for each rank that is to do any. Other processes
            need to import it: a function of a module, not a lambda, unless the job runs in this
            process.

        Returns
        -------
        RankAnswers
            Its results by rank. If the job skips errors, ``failed`` has the reasons of ranks
            without one.

        Raises
        ------
        RankFailedError
            If it fails on a rank, unless the job skips errors.
        """
        return self.graphs.ask(self._requests(work))

    def visit(self, *works: Work) -> dict[int, str]:
        """Open every rank once, for its part of the path, its lateness, and some more work.

        Results are kept, so that later questions open nothing. A report visits first.

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
        route = self._route.rank_segments
        asked += [on_rank_segments(on_path, route) for on_path in (path_in, attributed_in)]
        for compared in (timeline.compared, timeline.compared_waits.rank_segments):
            asked.append(on_rank_segments(times_by_name, compared))
        if self.is_unmatched:
            asked.append(self._requests(verdict_of))
        if self.is_replayed:
            asked.append(replay_requests(timeline, self.rank_window, self._replayed))
        return self.graphs.visit(
            {rank: [one[rank] for one in asked if rank in one] for rank in self.summaries}
        )

    def without_lost_ranks(self, *works: Work) -> Job:
        """Visit all ranks; the job without those that could not be visited, if it skips errors.

        The path may run through such a rank: the others alone have another path.

        Raises
        ------
        QueryError
            If no rank is left.
        """
        lost = self.visit(*works)
        if not lost or self.graphs.on_error == "raise":
            return self
        if len(lost) == len(self):
            hint = "; ".join(dict.fromkeys(lost.values()))
            raise QueryError("no rank of the job can be visited.", hint=hint)
        for rank, why in lost.items():
            message = f"rank {rank} is left out: {why}"
            warnings.warn(message, IncompleteTraceWarning, stacklevel=3)
        failed = {url_of(self.summaries[rank].path): why for rank, why in lost.items()}
        timeline = Timeline(self.graphs.without(lost), self.timeline.known)
        left = replace(self, timeline=timeline, failed={**self.failed, **failed})
        return left.without_lost_ranks(*works)

    def _ask(self, question: str, **options: object) -> pd.DataFrame:
        """The answers of all ranks; ``attrs["failed"]`` has the reasons of ranks without one."""
        check_options(type(self), question, options)
        found = self.map(Question.of(question, **options))
        frames = [frame.assign(rank=np.int64(rank)) for rank, frame in found.items()]
        if not frames:
            raise QueryError("no rank of the job could answer.", hint="see job.failures.")
        joined: pd.DataFrame = pd.concat(frames, ignore_index=True)
        joined = joined[["rank", *(name for name in joined.columns if name != "rank")]]
        joined.attrs["failed"] = found.failed
        return answer_of(joined, schema_of(question), options.get("by"))

    def sql(self, query: str) -> pd.DataFrame:
        """Answer to a query in SQL over the tables of all ranks, through DuckDB.

        Views are those of `TraceGraph.sql` with ``rank``, and times are common: ``segments`` are
        those of the job's path, ``collectives`` those matched across ranks.

        Parameters
        ----------
        query : str
            One SELECT, WITH or EXPLAIN.

        Raises
        ------
        QueryError
            As of a graph.
        MissingEventsError
            If DuckDB is not installed.
        """
        from htagraph.lookup.sql import JOB_VIEWS, answer_sql  # noqa: PLC0415  deferred: an extra
        from htagraph.writers.answer import Answer  # noqa: PLC0415  deferred: loads pandas

        return Answer(answer_sql(query, JOB_VIEWS, self._sql_view))

    def _sql_view(self, view: str) -> pd.DataFrame:
        """The table behind a view, of all ranks."""
        from htagraph.lookup.sql import VIEWS  # noqa: PLC0415  as above

        if view == "segments":
            return self.critical_path().segments
        if view == "collectives":
            return self.collectives()
        instants = [name for name, one in VIEWS[view].items() if one.quantity is Quantity.INSTANT]
        frames = []
        for rank, frame in self.map(methodcaller("sql_view", view)).items():
            clock = self.clock(rank)
            moved = {name: clock.to_common(frame[name].to_numpy()) for name in instants}
            frames.append(frame.assign(**moved, rank=rank))
        joined: pd.DataFrame = pd.concat(frames, ignore_index=True)[["rank", *VIEWS[view]]]
        return joined

    @property
    @answers(CLOCKS)
    def clocks(self) -> pd.DataFrame:
        """The clock of each rank against the first, with its error: `job_answers.CLOCKS`."""
        return self.timeline.fitted.frame()

    def clock(self, rank: int) -> Clock:
        """The clock that turns times of a rank into common time."""
        return self.timeline.clocks[rank]

    @answers(MATCHED_COLLECTIVES)
    def collectives(self) -> pd.DataFrame:
        """The collectives matched across ranks, in common time: who waited for whom.

        Returns
        -------
        DataFrame, schema `job_answers.MATCHED_COLLECTIVES`
            One row per member of each matched collective, without ranks that no clock aligns with
            the others. ``job[rank].collectives()`` has all of one rank.
        """
        return self.timeline.collectives

    @answers(BANDWIDTHS)
    def bandwidths(self, *, by: BandwidthKey = "size") -> pd.DataFrame:
        """Size, transfer and bandwidth of matched collectives, and what limits them.

        Parameters
        ----------
        by : {"size", "collective"}

        Returns
        -------
        DataFrame, schema `job_answers.BANDWIDTHS`
            One row per operation, group and size, or per collective. One rank alone cannot tell
            waiting from transfer, so only collectives that are matched across ranks count.
        """
        return self.timeline.bandwidths(by)

    @cached_property
    def _route(self) -> JobRoute:
        """Where the critical path runs; every rank looks up a named window."""
        timeline, ends = self.timeline, self._rank_ends
        if not ends:
            hint = "name a step that all ranks recorded."
            raise QueryError("no rank of the job has this window.", hint=hint)
        tables = {rank: timeline.tables[rank] for rank in ends}
        matched = timeline.collectives[timeline.collectives["rank"].isin(ends)]
        rank_segments = find_rank_segments(tables, ends, matched, timeline.clocks)
        starts = [end.common(timeline.clocks[rank])[0] for rank, end in ends.items()]
        name = WHOLE_JOB if self.rank_window is None else str(self.rank_window)
        return JobRoute(tuple(rank_segments), max(starts), name, self.n_steps)

    @cached_property
    def _rank_ends(self) -> Mapping[int, RankEnds]:
        return self._ends_in(self.rank_window)

    def _ends_in(self, window: WindowName) -> Mapping[int, RankEnds]:
        """Where each aligned rank's part of a window begins and ends."""
        aligned = set(self.timeline.aligned)
        if window == self.graphs.window:
            return {rank: one.ends for rank, one in self.summaries.items() if rank in aligned}
        if isinstance(window, RankSteps):
            return {rank: self.summaries[rank].ends_of(window) for rank in self.timeline.aligned}
        known = {rank: summary.ends for rank, summary in self.summaries.items()}
        asked = dict.fromkeys(self.summaries, Request(window, rank_ends))
        found: Mapping[int, RankEnds] = self.graphs.ask(asked)
        if kept := self.graphs.kept:
            if any(ends.start_ns < known[rank].start_ns for rank, ends in found.items()):
                raise QueryError(
                    f"{window} begins before {kept.window.name}, from which on "
                    "collectives are kept.",
                    hint="name a later window, or raise load_job(most_collectives=…).",
                )
            found = {r: ends.later(self.summaries[r].n_left_out) for r, ends in found.items()}
        return {rank: ends for rank, ends in found.items() if rank in aligned}

    @answers(QUALITY)
    def quality(self) -> pd.DataFrame:
        """Checks of what is linked, classified and recorded, and which answers are weaker.

        If only the last steps are kept, as collectives are too many, one more check reports it.
        """
        found, kept = super().quality(), self.graphs.kept
        if kept is None:
            return found
        summaries = self.summaries.items()
        n_kept = {rank: (len(one.collectives), one.n_left_out) for rank, one in summaries}
        return kept.added_to(found, n_kept)

    @answers(DAMAGE)
    def damage(self) -> pd.DataFrame:
        """What the job lacks or has wrong, and what that does to the answers.

        Returns
        -------
        DataFrame, schema `answers.DAMAGE`, with a column ``rank``
            Of ranks, on their clocks; rank -1 has what is of no one rank, in common time.
        """
        frame = damage_frame(one.damage for one in self.rank_damage)
        ranks = [one.rank for one in self.rank_damage]
        frame.insert(0, "rank", np.array(ranks, dtype=np.int64))
        return frame

    @cached_property
    def rank_damage(self) -> list[RankDamage]:
        """The same as rows."""
        found = find_damage(self.timeline, self.failed, self.missing_ranks)
        if self.rank_window == self.graphs.window:
            return told_once(found)
        ends = self._rank_ends
        return told_once(
            [
                one
                for one in found
                if one.rank not in ends
                or one.damage.overlaps(ends[one.rank].start_ns, ends[one.rank].end_ns)
            ]
        )

    def critical_path(self) -> JobPath:
        """The job's critical path: across ranks, through the collectives in which they waited.

        It tiles the job's window in common time: from when all ranks are recorded to the last end
        of any, without ranks that no clock aligns with the others.

        Returns
        -------
        JobPath

        Raises
        ------
        QueryError
            If no rank has the window.
        RankFailedError
            If a rank on the path can no longer be read.
        """
        return JobPath.along(self._route, self.timeline)

    def why(
        self,
        rank: int,
        what: str | re.Pattern[str] | int | None = None,
        *,
        instance: int | None = None,
        at_ns: int | None = None,
        device: int | None = None,
        end: bool = False,
    ) -> JobWhy:
        """Why an event of a rank started only then: what it waited for, on other ranks, too.

        Where a rank waited in a collective, the chain continues on the rank that came last. It goes
        back to the start of the event's step on its own rank.

        Parameters
        ----------
        rank : int
        what, instance, at_ns, device, end
            As for `TraceGraph.why`; times are on the clock of the rank.

        Returns
        -------
        JobWhy

        Raises
        ------
        RankNotFoundError
            If there is no such rank.
        QueryError
            If there is no such event, or no clock aligns the rank with others.
        RankFailedError
            If a rank of the chain can no longer be read.
        """
        graph = self[rank]
        if rank not in self.timeline.aligned:
            raise QueryError(
                f"no clock aligns rank {rank} with the others.", hint=f"job[{rank}].why(…)."
            )
        found = graph.why(what, instance=instance, at_ns=at_ns, device=device, end=end)
        own = rank_ends(replace(graph, asked=found.window))
        if self.graphs.kept:
            own = own.later(self.summaries[rank].n_left_out)
        return job_why(self.timeline, self._ends_in(self.graphs.window), rank, own, found)

    @property
    def is_unmatched(self) -> bool:
        """Whether no collectives of its ranks could be matched: who waits for whom is unknown."""
        return len(self) > 1 and self.timeline.collectives.empty

    @cached_property
    def alone(self) -> Mapping[int, Verdict]:
        """The verdict on each rank by itself, if no collectives could be matched; else empty."""
        return self.map(verdict_of) if self.is_unmatched else {}

    @property
    def is_replayed(self) -> bool:
        """Whether the job is small enough for a report to replay all of it, and is matched."""
        if self.is_unmatched:
            return False
        ranks = self._replayed
        n_events = sum(_EVENTS_OF_A_RANK + self.summaries[rank].n_events for rank in ranks)
        return n_events <= _REPLAYED_EVENTS

    @cached_property
    def rehearsal(self) -> JobRehearsal:
        """The joined replays of the ranks, which `what_if` changes. They are kept with the job.

        Without ranks whose recording ends far before that of the others, or lacks device work.
        """
        return JobRehearsal.of(self.timeline, self.rank_window, self._replayed)

    @cached_property
    def _replayed(self) -> tuple[int, ...]:
        """The ranks that are replayed."""
        return replayed_ranks(self.timeline)

    @cached_property
    def trials(self) -> Trials[JobRehearsal]:
        """Changes to the job, each replayed once on all ranks together, when it is asked for."""
        path, rehearsal = self.critical_path(), self.rehearsal
        timeline, summaries = self.timeline, self.summaries.values()  # not the job, which keeps it
        attributed = path.attributed_time
        attributed = attributed[attributed["rank"].isin(rehearsal.ranks)]

        def charges() -> Charges:
            return rehearsal.charges(path.segments, attributed)

        def causes(charges: Charges) -> Iterator[Candidate]:
            return of_causes(
                path.segments,
                attributed,
                charges,
                balance=balance(rehearsal.token_surplus),
                machines=timeline.late_hosts,
            )

        def parts() -> Iterator[Candidate]:
            run = Context.of_job([rank.context for rank in summaries])
            done = kinds_done(can_capture=run.can_capture, loading=run.loading)
            return of_parts(path.segments, attributed, done=done)

        return Trials(rehearsal, charges, causes, parts)

    @answers(STRAGGLERS)
    def stragglers(self, *, by: PartKey = "rank") -> pd.DataFrame:
        """How often each rank arrived last, what that cost the others, and what made it late.

        Parameters
        ----------
        by : {"rank", "host", "replica", "shard", "stage", "expert", "context"}, default="rank"
            What ranks are put together by: their host, or their place in the `layout`.

        Returns
        -------
        DataFrame, schema `job_answers.STRAGGLERS`
            The rank that cost most first. Only waits beyond the error of the clocks count. Of
            several ranks, counts and times are sums, rank and cause those of the costliest one;
            ranks whose part is unknown are left out.

        Raises
        ------
        QueryError
            If `by` is none of these.
        """
        part, line = self._part_of("stragglers", by), self.timeline
        found = summarize_stragglers(
            line.collectives, line.late_arrivals, line.excess_times, list(self.summaries)
        )
        return found if part is None else by_part(found, part.reindex(found["rank"]))

    def _part_of(self, question: str, by: PartKey) -> pd.Series[str] | None:
        """The part that each rank is of, empty if unknown; none if each rank is one."""
        if by not in ("rank", "host", *AXES):
            hint = f"by is one of rank, host, {', '.join(AXES)}."
            raise QueryError(f"{question}: no part of a job is called {by!r}.", hint=hint)
        if by == "rank":
            return None
        part = self.timeline.layout.set_index("rank")[by].astype(object)
        return part.where(part != -1, "").astype(str)

    @answers(DELAY_COSTS)
    def delay_costs(self, *, by: PartKey = "rank") -> pd.DataFrame:
        """All waits of all ranks, charged to what made ranks late, however far down the line.

        A rank that was late because it had waited itself is not charged: the rank it waited for is.
        In a pipeline, a receive waits for the sender by design; what the sender did until then is
        its cost.

        Parameters
        ----------
        by : {"rank", "host", "replica", "shard", "stage", "expert", "context"}, default="rank"
            What late ranks are put together by, as in `stragglers`.

        Returns
        -------
        DataFrame, schema `job_answers.DELAY_COSTS`
            The costliest first. ``delay_ns`` adds up to ``own_wait_ns`` of `stragglers`: a rank
            that waits in several collectives at once waits once. Rank -1 has what no rank can be
            charged with, and ``name`` says why: beyond 100,000 waits, only the longest are
            compared. If the clocks leave open which rank arrived last, their best estimate counts.
            Of several ranks, `rank` is the costliest one; those of no known part are together.

        Raises
        ------
        QueryError
            If `by` is none of these.
        """
        part, line = self._part_of("delay_costs", by), self.timeline
        return delay_costs(*line.charged_waits, line.collectives, part)

    @answers(EXPERTS)
    def experts(self, *, capacity: float = 1.25) -> pd.DataFrame:
        """Tokens that each rank receives for its experts, what they take, and what balance saves.

        An expert layer is two all-to-alls, of which the second returns on each rank the rows that
        the first brought. Sizes in both directions are in traces with ``record_shapes``, or with
        NCCL metadata. Moving tokens conserves work, so balance saves the last rank's time beyond
        the mean, as far as tokens explain it.

        Parameters
        ----------
        capacity : float, default=1.25
            Tokens that a rank takes at most, over the mean, for ``capped_saves_ns``.

        Returns
        -------
        DataFrame, schema `job_answers.EXPERTS`
            One row per step, layer and rank; empty without expert layers.

        Raises
        ------
        QueryError
            If `capacity` is below 1.
        """
        if not capacity >= 1:
            raise QueryError(
                f"experts: capacity must be at least 1, not {capacity:g}.",
                hint="1.25 is a quarter more than the mean.",
            )
        line = self.timeline
        steps = step_names({rank: one.starts for rank, one in self.summaries.items()})
        return line.expert_work.frame(line.collectives, steps, capacity)

    @answers(LAYOUT)
    def layout(self, *, given: str = "") -> pd.DataFrame:
        """The place of each rank in data, tensor, pipeline, expert and context parallel groups.

        By the descriptions of process groups (device meshes, Megatron), else by the operators that
        run their collectives, else as groups that only send and receive. What none of these tells
        is -1. Any answer with a column ``rank`` can be put together by stage or replica:
        ``answer.merge(job.layout(), on="rank").groupby("stage")``.

        Parameters
        ----------
        given : str, default=""
            What is known otherwise: ``NAME=AXIS`` with the name or description of a group, and
            ``replica``, ``shard``, ``stage``, ``expert`` or ``context``; several with commas.

        Returns
        -------
        DataFrame, schema `job_answers.LAYOUT`
            One row per rank.

        Raises
        ------
        QueryError
            If `given` names no axis.
        """
        hosts = {rank: one.host for rank, one in self.summaries.items()}
        return layout_frame(self.timeline.group_kinds(given), hosts)

    @answers(PROCESS_GROUPS)
    def process_groups(self, *, given: str = "") -> pd.DataFrame:
        """The process groups of the job: what kind of parallelism, which ranks, what they run.

        Parameters
        ----------
        given : str, default=""
            As for `layout`.

        Returns
        -------
        DataFrame, schema `job_answers.PROCESS_GROUPS`

        Raises
        ------
        QueryError
            If `given` names no axis.
        """
        groups = {rank: one.groups for rank, one in self.summaries.items()}
        return groups_frame(groups, self.timeline.group_kinds(given))

    @answers(OPPORTUNITIES)
    def opportunities(self) -> pd.DataFrame:
        """Changes that would make the job shorter, each with its predicted saving.

        Each change is replayed on all ranks together; ``job[rank].opportunities()`` replays one
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
        path, found = self.critical_path(), self.trials.opportunities
        found.attrs["notes"] = (f"Of {path.window_name} ({human_duration(path.dur_ns)}).",)
        return found

    def verdict(self) -> Verdict:
        """What limits the job: the causes of its critical path across ranks, late ranks included.

        Returns
        -------
        Verdict
            Withheld where too much of the path is unknown waits. If no collectives could be
            matched, it is the first cause of each rank by itself, if that is the same one. If the
            job is too large to replay, causes are ranked by share.
        """
        self.visit(Question.of("kernel_breakdown", by="name"))
        trials = self.trials if self.is_replayed else None
        kernels = self.kernel_breakdown(by="name")
        path, late = self.critical_path(), self.stragglers()
        found = find_job_bounds(path, late, kernels, trials, self.pipeline_causes, alone=self.alone)
        return replace(found, damage=(*found.damage, *job_damage_in_words(self.rank_damage)))

    @cached_property
    def stage_times(self) -> Pipeline | None:
        """The pipeline, in the steps of which most is in the job's window; None if it is none."""
        found = self.timeline.pipeline
        if found is None or self.rank_window == self.graphs.window:
            return found
        ends = self._rank_ends.items()
        return found.within({rank: one.common(self.clock(rank)) for rank, one in ends})

    @cached_property
    def pipeline_causes(self) -> PipelineCauses | None:
        """What is slow in the pipeline, None if it is none."""
        return None if self.stage_times is None else PipelineCauses(self.stage_times)

    @answers(PIPELINE)
    def pipeline(self) -> pd.DataFrame:
        """What each stage of a pipeline did in each step, and where it waited.

        Returns
        -------
        DataFrame, schema `job_answers.PIPELINE`
            Each row adds up to the rank's step. Empty if the ranks are no pipeline, or it is not
            recorded which actions they did: by annotations of `torch.distributed.pipelining`, by
            sends and receives of one host, or by kernels that send and receive, with peers.
        """
        found = self.pipeline_causes
        return PIPELINE.empty() if found is None else found.pipeline.table(found.repaired)

    @answers(PIPELINE_SAVINGS)
    def pipeline_savings(self) -> pd.DataFrame:
        """What would shorten the steps of a pipeline: ranks, stages, micro-batches, transfers.

        Each is replayed with the order of every rank kept, and with the changes before it that are
        causes: a slow rank is no uneven stage, and a slow stage no uneven micro-batch.

        Returns
        -------
        DataFrame, schema `job_answers.PIPELINE_SAVINGS`
            In the order of asking; empty as for `pipeline`.
        """
        found = self.pipeline_causes
        return PIPELINE_SAVINGS.empty() if found is None else found.table

    @answers(PIPELINE_SCHEDULE)
    def pipeline_schedule(self) -> pd.DataFrame:
        """What each stage of a pipeline did for each micro-batch, and which of it is critical.

        Returns
        -------
        DataFrame, schema `job_answers.PIPELINE_SCHEDULE`
            `htagraph.plots.pipeline_schedule` draws it. Empty as for `pipeline`.
        """
        found = self.stage_times
        return PIPELINE_SCHEDULE.empty() if found is None else found.timetable()

    @answers(PIPELINE_WHAT_IF)
    def pipeline_what_if(
        self,
        *,
        schedule: Literal["all", "gpipe", "1f1b", "interleaved", "zero_bubble"] = "all",
        chunks: int = 0,
        n_micro_batches: int = 0,
    ) -> pd.DataFrame:
        """How long a step of a pipeline would take with another schedule, or other micro-batches.

        The recorded times of actions and transfers are replayed in the order of the schedule. Other
        numbers of stages or micro-batches divide the same work, in its order: an action takes time
        in proportion to its share of it.

        Parameters
        ----------
        schedule : {"all", "gpipe", "1f1b", "interleaved", "zero_bubble"}, default="all"
            All are those that can be tried. Zero bubble only where gradients of weights were
            recorded apart from those of inputs.
        chunks : int, default=0
            Stages of each rank; 0 as recorded, but two if recorded with one and interleaved.
        n_micro_batches : int, default=0
            Of a step; 0 as recorded.

        Returns
        -------
        DataFrame, schema `job_answers.PIPELINE_WHAT_IF`
            The shortest step first. Empty as for `pipeline`, and without backwards.

        Raises
        ------
        QueryError
            If what is asked for cannot be tried.
        """
        if chunks < 0 or n_micro_batches < 0:
            raise QueryError(
                "pipeline_what_if: chunks and n_micro_batches must not be negative.",
                hint="0 is what was recorded.",
            )
        found = self.stage_times
        if found is None:
            return PIPELINE_WHAT_IF.empty()
        return pipeline_what_if(found, schedule, chunks, n_micro_batches)

    @answers(PIPELINE_BUBBLES)
    def pipeline_bubbles(self) -> pd.DataFrame:
        """How long each rank waited in receives for the sender, by group.

        Returns
        -------
        DataFrame, schema `job_answers.PIPELINE_BUBBLES`
        """
        return pipeline_bubbles(self.collectives(), self.timeline.blocked)

    def __repr__(self) -> str:
        summaries = self.summaries.values()
        n_events = sum(summary.n_events for summary in summaries)
        longest = max((s.ends.end_ns - s.ends.start_ns for s in summaries), default=0)
        missing = human_count(len(self.missing_ranks), "rank")
        gone = f", {missing} missing" if self.missing_ranks else ""
        failed = f", {human_count(len(self.failed), 'file')} failed" if self.failed else ""
        return (
            f"Job({human_count(len(self), 'rank')}{gone}{failed}, "
            f"{human_count(n_events, 'event')}, recorded {human_duration(longest)})"
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
