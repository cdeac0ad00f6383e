"""The profile of a job: its steps on the common clock, and what each took.

A step of a job is done when its last rank is, in common time, and lasts from when the step before
was done. Any one rank would give the same mean, as ranks that wait for each other cannot drift
apart; but the job waits for the last one, and steps that end with it follow each other in order, so
that the path across ranks can be cut at them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.comparison.places import code_places, gap_edges
from htagraph.comparison.profiling import path_parts, profile_of, work_parts
from htagraph.comparison.run_profile import Part, RunProfile
from htagraph.comparison.samples import DoneSteps, Samples, compared, done_steps, one_sample
from htagraph.graph import TraceGraph
from htagraph.job.damage import job_damage_in_words
from htagraph.job.job import Job
from htagraph.job.path import JobPath
from htagraph.model.arrays import I64, Bools

__all__ = ["job_profile"]

_VALUES = ("calls", "total_ns", "std_ns", "first_ns", "last_ns", "least_ns", "most_ns")


def _rank_steps(graph: TraceGraph) -> DoneSteps:
    """The steps of a rank; those not done in its window lose their names."""
    steps, window = done_steps(graph.dag), graph.interval
    outside = (steps.start_ns < window.start_ns) | (steps.end_ns > window.end_ns)
    names = np.where(outside, "", steps.names)  # keeps the row numbers of the others
    return steps._replace(names=names.astype(object))


@dataclass(frozen=True)
class _WorkIn:
    """Kernels, operators and device states of a rank in some of its steps, or in a window.

    `gaps` are edges of the job's path in which untraced code ran between events.
    """

    steps: tuple[tuple[str, int, int], ...]
    rows: tuple[int, ...]
    kind: tuple[int, ...]
    gaps: tuple[int, ...]

    def __call__(self, graph: TraceGraph) -> tuple[list[Part], dict[int, str]]:
        """The parts of a rank, and the places of its untraced code on the path."""
        frame = pd.DataFrame(list(self.steps), columns=["name", "start_ns", "dur_ns"])
        rows, kind, gaps = (
            np.array(one, dtype=np.int64) for one in (self.rows, self.kind, self.gaps)
        )
        return work_parts(graph.dag, frame, rows, kind), code_places(graph.dag, gaps)


class _JobSteps(NamedTuple):
    """Steps that all ranks have, on the common clock, and their rows on each rank."""

    done: DoneSteps
    rows: dict[int, I64]


def _in_common(job: Job, by_rank: dict[int, DoneSteps]) -> _JobSteps:
    """The steps that all ranks have once."""
    listed = {rank: steps.names.tolist() for rank, steps in by_rank.items()}
    common = [
        name
        for name in next(iter(listed.values()))
        if name and all(names.count(name) == 1 for names in listed.values())
    ]
    rows = {
        rank: np.array([names.index(name) for name in common], dtype=np.int64)
        for rank, names in listed.items()
    }
    parts = [
        (
            job.clock(rank).to_common(steps.start_ns[rows[rank]]),
            job.clock(rank).to_common(steps.end_ns[rows[rank]]),
            steps.kind[rows[rank]],
        )
        for rank, steps in by_rank.items()
    ]
    start_ns, end_ns = (np.max([part[side] for part in parts], axis=0) for side in (0, 1))
    start_ns[1:] = np.maximum(start_ns[1:], end_ns[:-1])
    seen: dict[tuple[int, ...], int] = {}
    on_ranks = zip(*(part[2].tolist() for part in parts), strict=True)
    kind = np.array([seen.setdefault(each, len(seen)) for each in on_ranks], dtype=np.int64)
    return _JobSteps(DoneSteps(np.array(common, dtype=object), start_ns, end_ns, kind), rows)


def _job_samples(steps: DoneSteps, path: JobPath) -> Samples:
    """The samples of a job: its typical steps, else the window of the path."""
    inside = (steps.start_ns >= path.start_ns) & (steps.end_ns <= path.end_ns)
    inside &= steps.end_ns > steps.start_ns
    if not inside.any():
        return one_sample(path.name, path.start_ns, path.dur_ns)
    every = np.ones(len(inside), dtype=bool)
    return compared(
        steps, inside, every, lambda: [_why(steps, inside, row) for row in range(len(every))]
    )


def _why(steps: DoneSteps, inside: Bools, row: int) -> str:
    """Why a step is left out, if not for its length."""
    if not inside[row]:
        return "not recorded on all ranks throughout"
    usual = np.bincount(steps.kind[inside]).argmax()
    return "" if steps.kind[row] == usual else "other work on some rank"


def _mean_over_ranks(parts: Iterable[list[Part]], n_ranks: int) -> list[Part]:
    """Parts of the mean rank.

    Ranks do not vary independently, so the spread of their mean is taken as the mean of their
    spreads, its upper limit.
    """
    sums: dict[tuple[str, str, str, int], list[float]] = {}
    varying = set()
    for part in (part for several in parts for part in several):
        total = sums.setdefault((part.part, part.bound, part.name, part.kind), [0.0] * len(_VALUES))
        for place, value in enumerate(getattr(part, name) for name in _VALUES):
            total[place] += value / n_ranks
        if part.varies:
            varying.add((part.part, part.bound, part.name, part.kind))
    return [
        Part(*key, calls, round(total_ns), std_ns, *map(round, ends), varies=key in varying)
        for key, (calls, total_ns, std_ns, *ends) in sums.items()
    ]


def job_profile(job: Job, *, name: str = "job") -> RunProfile:
    """The profile of a job, or of a window of it, without ranks that no clock aligns.

    The path runs across ranks; kernels, operators and device states are means over the ranks.
    """
    path, aligned = job.critical_path(), set(job.timeline.aligned)
    of_rank: dict[int, DoneSteps] = job.map(_rank_steps)
    by_rank = {rank: steps for rank, steps in of_rank.items() if rank in aligned}
    steps = _in_common(job, by_rank)
    samples = _job_samples(steps.done, path)
    gap, on_rank = gap_edges(path.segments), path.segments["rank"].to_numpy(np.int64)
    works = {}
    for rank, own in by_rank.items():
        at = steps.rows[rank][samples.rows]
        lengths_ns = (own.end_ns - own.start_ns)[at].tolist()
        times = zip(samples.frame["name"], own.start_ns[at].tolist(), lengths_ns, strict=False)
        if not len(at):
            window = job[rank].interval
            times = zip([window.name], [window.start_ns], [window.dur_ns], strict=True)
        gaps = np.unique(gap[(on_rank == rank) & (gap >= 0)]).tolist()
        works[rank] = _WorkIn(
            tuple(times), tuple(at.tolist()), tuple(samples.kind.tolist()), tuple(gaps)
        )
    whole = replace(job, asked_window=None)
    found = whole.map(works)
    parts = _mean_over_ranks((parts for parts, _ in found.values()), len(works))
    known = {(rank, edge): place for rank, (_, own) in found.items() for edge, place in own.items()}
    places = [known.get(key) for key in zip(on_rank.tolist(), gap.tolist(), strict=True)]
    sizes = [summary.world_size or 0 for summary in job.summaries.values()]
    devices = sorted({name for rank in by_rank for name in job.summaries[rank].device_names})
    return profile_of(
        name,
        samples,
        [*path_parts(path.segments, samples, np.array(places, dtype=object)), *parts],
        devices=", ".join(devices),
        world_size=max(sizes, default=0),
        n_ranks=len(by_rank),
        damage=job_damage_in_words(one for one in job.rank_damage if not one.damage.is_accepted),
    )
