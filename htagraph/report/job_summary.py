"""JobSummary: everything a report says of a job, as data: who is late, what it costs, where the path runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from htagraph.job import Job
from htagraph.job_path import JobPath
from htagraph.model.units import human_count, human_duration

__all__ = ["JobFinding", "JobSummary"]

_WORTH_SAYING = 0.02
_TRIES = {
    "python_gap": "find out what this rank's Python does there (with_stack=True, or record_function around its parts).",
    "data_loading": "look at this rank's data: shards, storage, DataLoader workers.",
    "cpu": "compare this operator with the other ranks': placement of processes on cores, a slow node, more work.",
    "compute": "compare this kernel with the other ranks': more work on this rank, or a slower device (clocks, heat).",
    "communication": "look at the group it waits in first: the cause may lie on a rank that is not recorded.",
    "sync": "see what this rank waits for on its own device.",
}
_TRY = "compare what this rank does there with the other ranks."


@dataclass(frozen=True)
class JobFinding:
    """One thing to act on in a job.

    Parameters
    ----------
    sentence : str
        What is the matter.
    evidence : str
    to_try : str
    dur_ns : int, unit=ns
        What it costs the job, at most.
    share : float
        Of the job's window.
    """

    sentence: str
    evidence: str
    to_try: str
    dur_ns: int
    share: float


@dataclass(frozen=True)
class JobSummary:
    """What a report says of a job.

    Parameters
    ----------
    job : Job
    name : str
    """

    job: Job
    name: str

    @cached_property
    def path(self) -> JobPath:
        """The job's critical path."""
        return self.job.critical_path()

    @cached_property
    def stragglers(self) -> pd.DataFrame:
        """Who is late and why, schema `frames.STRAGGLERS`."""
        return self.job.stragglers()

    @cached_property
    def devices(self) -> pd.DataFrame:
        """How the devices of each rank spend their time."""
        return self.job.temporal_breakdown()

    @property
    def facts(self) -> str:
        """Return what the job is, in one line."""
        parts = [human_count(len(self.job), "rank")]
        if self.job.missing_ranks:
            parts.append(f"{human_count(len(self.job.missing_ranks), 'rank')} missing")
        n_meetings = int(self.job.meetings["meeting"].nunique())
        parts += [human_count(n_meetings, "collective"), human_duration(self.path.dur_ns)]
        return " · ".join(parts)

    @cached_property
    def findings(self) -> list[JobFinding]:
        """What keeps the job waiting, the costliest first; what the path is bound by last."""
        found = [self._late(row) for row in self.stragglers.itertuples(index=False) if row.n_last]
        worth = [finding for finding in found if finding.share >= _WORTH_SAYING]
        return [*worth, self._bound()]

    def _late(self, row: tuple) -> JobFinding:  # type: ignore[type-arg]
        """Return the finding on a rank that others wait for."""
        # Every other rank waits at the same time: the job loses the wait of one of them.
        lost_ns = min(row.caused_wait_ns // max(len(self.job) - 1, 1), self.path.dur_ns)  # type: ignore[attr-defined]
        share = lost_ns / max(self.path.dur_ns, 1)
        bound = str(row.cause_bound)  # type: ignore[attr-defined]
        where = row.cause_op or row.cause_name  # type: ignore[attr-defined]
        often = (
            f"in {row.n_cause} of its {human_count(row.n_last, 'late arrival')}"  # type: ignore[attr-defined]
            if row.is_recurring  # type: ignore[attr-defined]
            else "once"
        )
        return JobFinding(
            sentence=(
                f"Rank {row.rank} is late and the others wait for it: {share:.1%} of the time "  # type: ignore[attr-defined]
                f"({human_duration(lost_ns)} each)"
            ),
            evidence=(
                f"last at {row.n_last} of {row.n_meetings:,} collectives, "  # type: ignore[attr-defined]
                f"longest wait {human_duration(row.longest_wait_ns)}; "  # type: ignore[attr-defined]
                f"late by {bound.replace('_', ' ')} in {where} {often}"
            ),
            to_try=_TRIES.get(bound, _TRY),
            dur_ns=int(lost_ns),
            share=share,
        )

    def _bound(self) -> JobFinding:
        """Return what the path itself is bound by."""
        bounds = self.path.breakdown(by="bound")
        ranks = self.path.breakdown(by="rank")
        bound, rank = str(bounds.index[0]), ranks.index[0]
        share = float(bounds["share"].iloc[0])
        return JobFinding(
            sentence=f"The job's path is bound by {bound.replace('_', ' ')}: {share:.1%} of the time",
            evidence=f"it runs on rank {rank} for {float(ranks['share'].iloc[0]):.1%} of the time",
            to_try=f"look at that rank: htagraph report on its trace (rank {rank}).",
            dur_ns=int(bounds["dur_ns"].iloc[0]),
            share=share,
        )

    def document(self) -> dict[str, object]:
        """Return the summary for programs: ``schema`` htagraph.job_report, version 1.

        Keys: ``name``, ``ranks``, ``missing_ranks``, ``failures``, ``dur_ns``, ``findings``, ``path`` (by rank, by bound),
        ``stragglers``, ``clocks``, ``devices``. Times are integer ns, shares fractions of one.
        """

        def records(frame: pd.DataFrame) -> list[dict[str, object]]:
            return frame.astype(object).to_dict("records")  # type: ignore[return-value]

        return {
            "schema": "htagraph.job_report",
            "version": 1,
            "name": self.name,
            "ranks": list(self.job.ranks),
            "missing_ranks": list(self.job.missing_ranks),
            "failures": records(self.job.failures),
            "dur_ns": self.path.dur_ns,
            "findings": [finding.__dict__ for finding in self.findings],
            "path": {by: records(self.path.breakdown(by=by).reset_index(names=by)) for by in ("rank", "bound")},
            "stragglers": records(self.stragglers),
            "clocks": records(self.job.clocks),
            "devices": records(self.devices),
        }
