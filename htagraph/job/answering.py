"""The ranks of a job that can be asked: one whose worker dies, or that is gone, is left out."""

from __future__ import annotations

import warnings
from dataclasses import replace

from htagraph.errors import IncompleteTraceWarning, QueryError
from htagraph.job.job import Job
from htagraph.job.ranks import Work
from htagraph.job.timeline import Timeline
from htagraph.readers.storage import url_of

__all__ = ["answering"]


def answering(job: Job, *works: Work) -> Job:
    """The job without the ranks that could not be visited, after a visit of all others.

    The path may lead through such a rank: without it, the others have another path.

    Parameters
    ----------
    job : Job
        One that does not skip errors is returned as it is: to ask it raises.
    *works : callable
        As for `Job.visit`.

    Raises
    ------
    QueryError
        If no rank is left.
    """
    lost = job.visit(*works)
    if not lost or job.graphs.on_error == "raise":
        return job
    if len(lost) == len(job):
        raise QueryError(
            "no rank of the job can be visited.", hint="; ".join(dict.fromkeys(lost.values()))
        )
    for rank, why in lost.items():
        message = f"rank {rank} is left out: {why}"
        warnings.warn(message, IncompleteTraceWarning, stacklevel=3)
    failed = {url_of(job.summaries[rank].path): why for rank, why in lost.items()}
    timeline = Timeline(job.graphs.without(lost), job.timeline.known)
    return answering(replace(job, timeline=timeline, failed={**job.failed, **failed}), *works)
