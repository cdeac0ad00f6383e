"""JobSummary: everything a report says about a job, as data: its verdict, late ranks, its path."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from htagraph.explain.default_window import left_out_in_words
from htagraph.findings.verdict import Verdict
from htagraph.job.damage import job_damage_in_words
from htagraph.job.job import Job
from htagraph.job.path import JobPath
from htagraph.job.rank_work import Question
from htagraph.job.ranks import Work
from htagraph.job.verdict import find_job_bounds
from htagraph.lookup.settings import Settings
from htagraph.model.answers import OPPORTUNITIES
from htagraph.model.frames import FAILURES, FIRST_CHANGES
from htagraph.model.units import human_count, human_duration
from htagraph.readers.storage import url_of
from htagraph.reports.summary import NOT_INFERRED, PathSummary, first_changes, inferred_in_words

_ASKED = (
    Question("temporal_breakdown"),
    Question.of("utilization", by="device", bins=100),
    Question("quality"),
    Question.of("kernel_breakdown", by="name"),
)
"""Questions that every report asks of each rank."""


@dataclass(frozen=True)
class JobSummary(PathSummary):
    """Everything a report says about a job.

    Parameters
    ----------
    job : Job
    name : str, default="job"
    also : tuple of callable, default=()
        Other work that the report needs on every rank, done on the same visit.
    however_large : bool, default=False
        Also replay a job that is too large for a report, if it can be replayed at all.

    Examples
    --------
    >>> import htagraph as hg
    >>> hg.JobSummary(hg.load_job(hg.demo_trace("job"))).verdict.findings[0].title
    'Rank 2 is late'
    """

    job: Job
    name: str = "job"
    also: tuple[Work, ...] = ()
    however_large: bool = False

    @classmethod
    def of_answering(cls, job: Job, name: str, also: tuple[Work, ...] = ()) -> JobSummary:
        """The summary of a job; of one that skips errors, without ranks that cannot be visited."""
        return cls(job.without_lost_ranks(*_ASKED, *also), name, also)

    @cached_property
    def _visited(self) -> Job:
        """The job, after one visit of each rank that brought all answers."""
        self.job.visit(*_ASKED, *self.also)
        return self.job

    @cached_property
    def path(self) -> JobPath:
        """The job's critical path."""
        return self._visited.critical_path()

    @cached_property
    def inferred(self) -> str:
        """How much of the path rests on inferred dependencies, in one sentence; empty for none."""
        return inferred_in_words(self.path.segments)

    @cached_property
    def by_rank(self) -> pd.DataFrame:
        """The path by rank, schema `frames.BREAKDOWN`."""
        return self.path.breakdown(by="rank")

    @property
    def main_rank(self) -> int:
        """The rank with most of the path; the first one where no rank has work."""
        return int(self.by_rank.index[0]) if len(self.by_rank) else min(self.job.ranks)

    def ranks_by_interest(self) -> list[int]:
        """All ranks: those with most of the path first, then those that cost others most."""
        every = [*self.by_rank.index, *self.stragglers["rank"], *self.job.ranks]
        return list(dict.fromkeys(map(int, every)))

    @cached_property
    def stragglers(self) -> pd.DataFrame:
        """Who is late and why, schema `job_answers.STRAGGLERS`."""
        return self._visited.stragglers()

    @cached_property
    def devices(self) -> pd.DataFrame:
        """Device time of each rank, schema `answers.TEMPORAL_BREAKDOWN` and ``rank``."""
        return self._visited.temporal_breakdown()

    @cached_property
    def used(self) -> pd.DataFrame:
        """How full the devices of each rank are, schema `answers.UTILIZATION` and ``rank``."""
        return self._visited.utilization()

    @cached_property
    def quality(self) -> pd.DataFrame:
        """Quality checks of each rank, schema `answers.QUALITY` and ``rank``."""
        return self._visited.quality()

    @property
    def weak_by_check(self) -> pd.DataFrame:
        """`weak_checks` by check: n_ranks, and share, verdict and consequence of the worst rank."""
        worst = self.weak_checks.sort_values(["share", "rank"], kind="stable")
        columns = {name: (name, "first") for name in ("share", "verdict", "consequence")}
        joined: pd.DataFrame = worst.groupby("check", as_index=False, sort=False).agg(
            n_ranks=("rank", "nunique"), **columns
        )
        return joined.sort_values("n_ranks", ascending=False, kind="stable", ignore_index=True)

    @cached_property
    def verdict(self) -> Verdict:
        """What limits the job."""
        kernels = self._visited.kernel_breakdown(by="name")
        pipeline = self._visited.pipeline_causes
        trials = self._visited.trials if self.is_replayed else None
        alone = self._visited.alone
        found = find_job_bounds(self.path, self.stragglers, kernels, trials, pipeline, alone=alone)
        return replace(found, damage=(*found.damage, *self.damage))

    @property
    def is_replayed(self) -> bool:
        """Whether it is asked what would help."""
        return (self.however_large and not self.job.is_unmatched) or self.job.is_replayed

    @cached_property
    def opportunities(self) -> pd.DataFrame:
        """What would help, schema `answers.OPPORTUNITIES`; empty where nothing is replayed."""
        return self._visited.opportunities() if self.is_replayed else OPPORTUNITIES.empty()

    @cached_property
    def first_changes(self) -> pd.DataFrame:
        """What one can do, largest saving first; empty where nothing is replayed."""
        if self.verdict.withheld or not self.is_replayed:
            return FIRST_CHANGES.empty()
        return first_changes(self.verdict, self._visited.trials, self.labels_of)

    @property
    def failures(self) -> pd.DataFrame:
        """Files that could not be loaded, and ranks that could not answer; `frames.FAILURES`."""
        failed: dict[int, str] = self.quality.attrs["failed"]
        paths = {url_of(self.job.summaries[rank].path): error for rank, error in failed.items()}
        every = {**self.job.failed, **paths}
        return FAILURES.frame({"path": list(every), "error": list(every.values())})

    @property
    def damage(self) -> tuple[str, ...]:
        """What the job lacks or has wrong, in sentences."""
        return job_damage_in_words(self.job.rank_damage)

    @cached_property
    def settings(self) -> Settings:
        """How the first rank was recorded."""
        rank = self.job[min(self.job.ranks)]
        return Settings.of(rank.dag.events, rank.origin)

    @property
    def window_caveats(self) -> list[str]:
        """What one has to know of the job, its window and its graphs."""
        job = self.job
        said = [job.capture_note] if job.capture_note else []
        if job.left_out:
            said.append(left_out_in_words(job.left_out))
        if job.begins:
            said.append(job.begins)
        if job.graphs.kept is not None:
            said.append(str(job.graphs.kept))
        if not job.graphs.reading.infer:
            said.append(NOT_INFERRED)
        return [*said, *self.slowed]

    @property
    def facts(self) -> str:
        """Ranks, size and length of the job, in one line."""
        parts = [human_count(len(self.job), "rank")]
        if self.job.missing_ranks:
            parts.append(f"{human_count(len(self.job.missing_ranks), 'rank')} missing")
        if len(self.failures):
            parts.append(f"{human_count(len(self.failures), 'file')} left out")
        n_collectives = int(self.job.collectives()["match"].nunique())
        parts += [
            human_count(sum(rank.n_events for rank in self.job.summaries.values()), "event"),
            human_count(n_collectives, "matched collective"),
            human_duration(self.path.dur_ns),
        ]
        return " · ".join(parts)
