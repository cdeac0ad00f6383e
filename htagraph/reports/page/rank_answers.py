"""What the page of a job asks its ranks: every rank is visited once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from htagraph.graph import TraceGraph
from htagraph.job.job import Job
from htagraph.job.ranks import Work
from htagraph.reports.job_summary import JobSummary

__all__ = ["COUNTERS", "Frames", "RankAnswers", "job_page_work"]

_MAX_RANKS = 16
COUNTERS: tuple[Literal["queue_length", "memory_bandwidth"], ...] = (
    "queue_length",
    "memory_bandwidth",
)
"""Counters that are drawn over time."""

_ASKED = (
    "idle_time",
    "overlap",
    "exposed_communication",
    "kernel_durations",
    "launch_stats",
    "step_times",
    "steady_state",
    "inferences",
)

Frames = Mapping[str, pd.DataFrame]


def _answers(graph: TraceGraph) -> dict[str, pd.DataFrame]:
    """Answers of one rank that the page shows of several."""
    asked = {name: graph.ask(name) for name in _ASKED}
    by = {f"kernels by {key}": graph.kernel_breakdown(by=key) for key in ("class", "name")}
    return asked | by


def _over_time(graph: TraceGraph) -> dict[str, pd.DataFrame]:
    """Answers that the page shows of one rank only; times count from the start of its window."""
    counters: Frames = {name: graph.counters(name=name) for name in COUNTERS}
    start_ns = graph.interval.start_ns
    moved = {name: each.assign(ts_ns=each["ts_ns"] - start_ns) for name, each in counters.items()}
    sampled = graph.sampled_counters(by="time")
    return {
        "kernel_patterns": graph.kernel_patterns(),
        "sampled_counters": graph.sampled_counters(),
        "sampled_counters by time": sampled.assign(start_ns=sampled["start_ns"] - start_ns),
        **moved,
    }


def job_page_work(n_ranks: int) -> tuple[Work, ...]:
    """The work on every rank of a job that its page needs; none where it shows but some of them."""
    return (_answers, _over_time) if n_ranks <= _MAX_RANKS else ()


def _looked_at(summary: JobSummary) -> list[int]:
    """Ranks whose kernels and launches are drawn: most of the path first, then the latest."""
    return sorted(summary.ranks_by_interest()[:_MAX_RANKS])


def _asked(job: Job, ranks: list[int]) -> dict[str, pd.DataFrame]:
    """Answers of some ranks, each with a column ``rank``, in common time."""
    by_rank = job.map(dict.fromkeys(ranks, _answers))
    joined = {}
    for name in next(iter(by_rank.values()), {}):
        parts = [_in_common_time(part[name], job, rank) for rank, part in by_rank.items()]
        frame: pd.DataFrame = pd.concat(parts, ignore_index=True)
        joined[name] = frame[["rank", *(column for column in frame.columns if column != "rank")]]
    return joined


def _in_common_time(frame: pd.DataFrame, job: Job, rank: int) -> pd.DataFrame:
    """Answer of one rank, in common time."""
    times = {
        name: job.clock(rank).to_common(frame[name])
        for name in ("start_ns", "ts_ns")
        if name in frame.columns
    }
    return frame.assign(rank=np.int64(rank), **times)


@dataclass(frozen=True)
class RankAnswers:
    """Answers of the ranks that a page looks at.

    Parameters
    ----------
    ranks : tuple of int
        All, or those with most of the path.
    by_rank : mapping of str to DataFrame
        By question, with a column ``rank``, in common time.
    over_time : mapping of str to DataFrame
        Of the rank with most of the path; times count from the start of its window.
    """

    ranks: tuple[int, ...]
    by_rank: Frames
    over_time: Frames

    @classmethod
    def of(cls, summary: JobSummary) -> RankAnswers:
        """Ask them."""
        ranks, main_rank = _looked_at(summary), summary.main_rank
        over_time = summary.job.map({main_rank: _over_time})[main_rank]
        return cls(tuple(ranks), _asked(summary.job, ranks), over_time)
