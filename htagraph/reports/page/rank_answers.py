"""What a page asks a rank; of a job all ranks once, and one again for what is shown over time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from htagraph.errors import IncompleteTraceWarning, TraceLimitError
from htagraph.graph import TraceGraph
from htagraph.job.job import Job
from htagraph.job.ranks import Work
from htagraph.model.columns import schema_of
from htagraph.reports.job_summary import JobSummary

_MAX_RANKS = 16
"""Ranks whose kernels and launches are drawn: chosen, as each needs rows of its own in figures."""

_QUESTIONS = ("idle_time", "overlap", "exposed_communication", "step_times")

Frames = Mapping[str, "pd.DataFrame"]


def asked(graph: TraceGraph) -> dict[str, pd.DataFrame]:
    """Answers of one rank; the page of a job shows them of several."""
    found = {name: _if_it_fits(graph, name) for name in _QUESTIONS}
    return found | {"kernels by name": graph.kernel_breakdown(by="name")}


def _asked_of_job(graph: TraceGraph) -> dict[str, pd.DataFrame]:
    """The same, and what inferred waits rest on."""
    return asked(graph) | {"inferences": graph.inferences()}


def _if_it_fits(graph: TraceGraph, question: str) -> pd.DataFrame:
    """The answer to a question; without rows, with a warning, if it would need too much memory."""
    try:
        return graph.ask(question)
    except TraceLimitError as exc:
        warnings.warn(f"The page has no {question}: {exc}", IncompleteTraceWarning, stacklevel=2)
        return schema_of(question).empty()


def asked_over_time(graph: TraceGraph) -> dict[str, pd.DataFrame]:
    """Answers that are drawn over time, or are too many to show of several ranks."""
    return {
        "launch_stats": graph.launch_stats(),
        "queue_length": graph.counters(name="queue_length"),
        "queue_blocked": graph.queue_blocked(),
        "memory_bandwidth": graph.counters(name="memory_bandwidth"),
        "sampled_counters": graph.sampled_counters(),
        "sampled_counters by time": graph.sampled_counters(by="time"),
    }


def _over_time(graph: TraceGraph) -> dict[str, pd.DataFrame]:
    """The same; times count from the start of the window."""
    found = asked_over_time(graph)
    return {name: _moved(frame, -graph.interval.start_ns) for name, frame in found.items()}


def _moved(frame: pd.DataFrame, by_ns: int) -> pd.DataFrame:
    """Answer at another time."""
    names = [name for name in ("start_ns", "ts_ns") if name in frame.columns]
    return frame.assign(**{name: frame[name] + by_ns for name in names})


def job_page_work(n_ranks: int) -> tuple[Work, ...]:
    """The work on every rank of a job that its page needs; none if it shows only some of them."""
    return (_asked_of_job,) if n_ranks <= _MAX_RANKS else ()


def _in_common_time(frame: pd.DataFrame, job: Job, rank: int) -> pd.DataFrame:
    """Answer of one rank, in common time, with a column ``rank`` in front."""
    names = [name for name in ("start_ns", "ts_ns") if name in frame.columns]
    out = frame.assign(**{name: job.clock(rank).to_common(frame[name]) for name in names})
    out.insert(0, "rank", np.int64(rank))
    return out


def answers_of(job: Job, ranks: list[int]) -> dict[str, pd.DataFrame]:
    """Answers of some ranks, each with a column ``rank``, in common time."""
    by_rank = job.map(dict.fromkeys(ranks, _asked_of_job))
    return {
        name: pd.concat(
            [_in_common_time(found[name], job, rank) for rank, found in by_rank.items()],
            ignore_index=True,
        )
        for name in next(iter(by_rank.values()), {})
    }


@dataclass(frozen=True)
class RankAnswers:
    """Answers of the ranks that a page shows.

    Parameters
    ----------
    ranks : tuple of int
        All, or those with most of the path and the latest.
    by_rank : mapping of str to DataFrame
        By question, with a column ``rank``, in common time.
    over_time : mapping of str to DataFrame
        Of the rank with most of the path, in common time.
    """

    ranks: tuple[int, ...]
    by_rank: Frames
    over_time: Frames

    @classmethod
    def of(cls, summary: JobSummary) -> RankAnswers:
        """Ask them."""
        job, main_rank = summary.job, summary.main_rank
        ranks = sorted(summary.ranks_by_interest()[:_MAX_RANKS])
        over_time = job.map({main_rank: _over_time})[main_rank]
        start_ns = summary.path.start_ns
        moved = {name: _moved(frame, start_ns) for name, frame in over_time.items()}
        return cls(tuple(ranks), answers_of(job, ranks), moved)
