"""Profiling a job for comparisons: its steps on the common clock, and what each took.

A step of a job runs from when the last rank begins it to when the last rank begins the next. Any
rank's beginning would give the same lengths on average, as ranks that wait for each other cannot
drift apart; the last one's never comes before that of an earlier step, so the steps tile the job's
time, and the path across ranks can be cut at them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.comparison.parts import Part
from htagraph.comparison.profiling import path_parts, profile_of, work_parts
from htagraph.comparison.run_profile import RunProfile
from htagraph.comparison.samples import Samples, one_sample, sample_frame
from htagraph.graph import TraceGraph
from htagraph.job.job import Job
from htagraph.job.path import JobPath
from htagraph.lookup.steady_steps import FEWEST_ALIKE, are_near, steady_steps

__all__ = ["job_profile"]

I64 = npt.NDArray[np.int64]

_N_ODD = 6


class _RankSteps(NamedTuple):
    """Steps of one rank, on its own clock."""

    names: tuple[str, ...]
    start_ns: I64
    end_ns: I64
    is_same_work: npt.NDArray[np.bool_]


def _rank_steps(graph: TraceGraph) -> _RankSteps:
    """The steps of a rank that begin in its window: what travels of them."""
    found, window = steady_steps(graph.dag), graph.interval
    parts = found.parts
    inside = (parts.start_ns >= window.start_ns) & (parts.start_ns < window.end_ns)
    return _RankSteps(
        tuple(graph.dag.events.names(parts.step[inside])),
        parts.start_ns[inside],
        parts.end_ns[inside],
        found.is_same_work[inside],
    )


@dataclass(frozen=True)
class _WorkIn:
    """Kernels, operators and states of devices of a rank in some of its steps."""

    steps: tuple[tuple[str, int, int], ...]

    def __call__(self, graph: TraceGraph) -> list[Part]:
        """Do it on the graph of a rank."""
        return work_parts(
            graph.dag, pd.DataFrame(list(self.steps), columns=["name", "start_ns", "dur_ns"])
        )


class _JobSteps(NamedTuple):
    """Steps that all ranks have, one row each, and those of each rank."""

    names: list[str]
    start_ns: I64
    end_ns: I64
    is_same_work: npt.NDArray[np.bool_]
    of_rank: dict[int, I64]


def _in_common(job: Job, by_rank: dict[int, _RankSteps]) -> _JobSteps:
    """Steps that all ranks have, on the common clock."""
    common = [
        name
        for name in next(iter(by_rank.values())).names
        if all(steps.names.count(name) == 1 for steps in by_rank.values())
    ]
    at = {
        rank: np.array([steps.names.index(name) for name in common], dtype=np.int64)
        for rank, steps in by_rank.items()
    }
    starts, ends, same = [], [], []
    for rank, steps in by_rank.items():
        clock = job.clock(rank)
        starts.append(clock.to_common(steps.start_ns[at[rank]]))
        ends.append(clock.to_common(steps.end_ns[at[rank]]))
        same.append(steps.is_same_work[at[rank]])
    return _JobSteps(
        common, np.max(starts, axis=0), np.max(ends, axis=0), np.all(same, axis=0), at
    )


def _job_samples(steps: _JobSteps, path: JobPath) -> tuple[Samples, I64]:
    """Steps of a job that are compared, and their rows."""
    until = np.append(steps.start_ns[1:], steps.end_ns[-1:])
    dur_ns = until - steps.start_ns
    inside = (steps.start_ns >= path.start_ns) & (until <= path.end_ns) & (dur_ns > 0)
    same = inside & steps.is_same_work if (inside & steps.is_same_work).any() else inside
    alike = same & are_near(dur_ns, same) if same.any() else same
    kept = alike if alike.sum() >= FEWEST_ALIKE else same
    rows = np.flatnonzero(kept)
    odd = np.flatnonzero(~kept).tolist()
    said = [f"{steps.names[row]}: {_why(steps, inside, row)}" for row in odd[:_N_ODD]]
    more = [f"… and {len(odd) - _N_ODD:,} more"] if len(odd) > _N_ODD else []
    frame = sample_frame([steps.names[row] for row in rows], steps.start_ns[rows], dur_ns[rows])
    return Samples(frame, "step", len(dur_ns), (*said, *more)), rows


def _why(steps: _JobSteps, inside: npt.NDArray[np.bool_], row: int) -> str:
    """Why a step is left out."""
    if not inside[row]:
        return "not recorded on all ranks throughout"
    return "of another length" if steps.is_same_work[row] else "other work on some rank"


def _mean_over_ranks(parts: Iterable[list[Part]], n_ranks: int) -> list[Part]:
    """Parts of the mean rank.

    Ranks do not vary independently: the spread of their mean is taken to be the mean of theirs,
    which is the most that it can be.
    """
    sums: dict[tuple[str, str, str], list[float]] = {}
    for part in (part for several in parts for part in several):
        total = sums.setdefault((part.part, part.bound, part.name), [0.0, 0.0, 0.0])
        for place, value in enumerate((part.calls, part.total_ns, part.std_ns)):
            total[place] += value / n_ranks
    return [
        Part(*key, calls, round(total_ns), std_ns)
        for key, (calls, total_ns, std_ns) in sums.items()
    ]


def job_profile(job: Job, *, name: str = "job") -> RunProfile:
    """The profile of a job, or of a window of it.

    Times of the path are those across ranks; kernels, operators and what devices did are means
    over the ranks. Ranks that no clock brings together with the others are left out.

    Parameters
    ----------
    job : Job
    name : str, default="job"

    Returns
    -------
    RunProfile
    """
    path, aligned = job.critical_path(), set(job.timeline.aligned)
    of_rank: dict[int, _RankSteps] = job.map(_rank_steps)
    by_rank = {rank: steps for rank, steps in of_rank.items() if rank in aligned}
    steps = _in_common(job, by_rank)
    samples, rows = one_sample(path.name, path.start_ns, path.dur_ns), None
    if len(steps.names):
        found, rows = _job_samples(steps, path)
        samples = found if len(rows) else samples
    works = {}
    for rank, own in by_rank.items():
        if rows is not None and len(rows):
            at = steps.of_rank[rank][rows]
            following = np.append(own.start_ns[1:], own.end_ns[-1:])
            lengths = (np.maximum(following, own.start_ns + 1) - own.start_ns)[at]
            times = zip(samples.frame["name"], own.start_ns[at].tolist(), lengths.tolist())
            works[rank] = _WorkIn(tuple(times))
        else:
            ends = job[rank].interval
            works[rank] = _WorkIn(((ends.name, ends.start_ns, ends.dur_ns),))
    whole = replace(job, asked_window=None)
    parts = _mean_over_ranks(whole.map(works).values(), len(works))
    sizes = [summary.world_size or 0 for summary in job.summaries.values()]
    devices = sorted({name for rank in by_rank for name in job.summaries[rank].device_names})
    return profile_of(
        name,
        samples,
        [*path_parts(path.segments, samples), *parts],
        devices=", ".join(devices),
        world_size=max(sizes, default=0),
        n_ranks=len(by_rank),
    )
