"""The profile of a job: its steps on the common clock (`job_steps`), and what each took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from htagraph.comparison.profiling import path_parts, profile_of, work_parts
from htagraph.comparison.run_profile import Part, RunProfile
from htagraph.comparison.samples import Samples, code_places, compared, gap_edges, one_sample
from htagraph.job.damage import job_damage_in_words
from htagraph.job.job import Job
from htagraph.job.path import JobPath
from htagraph.lookup.done_steps import DoneSteps
from htagraph.lookup.find_window import WHOLE
from htagraph.model.arrays import Bools
from htagraph.run.graph import TraceGraph

_VALUES = ("calls", "total_ns", "std_ns", "first_ns", "last_ns", "least_ns", "most_ns", "roof_ns")
_Key = tuple[str, str, str, int]


@dataclass(frozen=True)
class _WorkIn:
    """Kernels, operators and device states of a rank in some of its steps, or in a window."""

    steps: tuple[tuple[str, int, int], ...]
    rows: tuple[int, ...]
    kind: tuple[int, ...]
    gaps: tuple[int, ...]  # Edges of the job's path in which untraced code ran between events

    def __call__(self, graph: TraceGraph) -> tuple[list[Part], dict[int, str]]:
        """The parts of a rank, and the places of its untraced code on the path."""
        frame = pd.DataFrame(list(self.steps), columns=["name", "start_ns", "dur_ns"])
        rows, kind, gaps = (
            np.array(one, dtype=np.int64) for one in (self.rows, self.kind, self.gaps)
        )
        return work_parts(graph.dag, frame, rows, kind), code_places(graph.dag, gaps)


def _job_samples(steps: DoneSteps, path: JobPath) -> Samples:
    """The samples of a job: its typical steps, else the window of the path."""
    inside = steps.inside(path.start_ns, path.end_ns)
    if not inside.any():
        return one_sample(path.name, path.start_ns, path.dur_ns)
    counted = inside if path.n_steps else np.ones_like(inside)
    return compared(
        steps, inside, counted, lambda: [_why(steps, inside, row) for row in range(len(inside))]
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
    sums: dict[_Key, list[float]] = {}
    varying, unknown = set[_Key](), set[_Key]()
    for part in (part for several in parts for part in several):
        key = part.part, part.bound, part.name, part.kind
        total = sums.setdefault(key, [0.0] * len(_VALUES))
        for place, value in enumerate(getattr(part, name) for name in _VALUES):
            total[place] += value / n_ranks
        for is_so, keys in ((part.varies, varying), (not part.roof_ns, unknown)):
            if is_so:
                keys.add(key)
    return [
        Part(
            *key,
            calls,
            round(total_ns),
            std_ns,
            *map(round, ends),
            varies=key in varying,
            roof_ns=0 if key in unknown else round(roof_ns),
        )
        for key, (calls, total_ns, std_ns, *ends, roof_ns) in sums.items()
    ]


def job_profile(job: Job, *, name: str = "job") -> RunProfile:
    """The profile of a job, or of a window of it, without ranks that no clock aligns.

    The path runs across ranks; kernels, operators and device states are means over the ranks.
    """
    path, (steps, rows) = job.critical_path(), job.done_steps
    samples = _job_samples(steps, path)
    samples = samples._replace(left_out=(*job.left_out, *samples.left_out))
    gap, on_rank = gap_edges(path.segments), path.segments["rank"].to_numpy(np.int64)
    works = {}
    for rank in rows:
        own, at = job.summaries[rank].done, rows[rank][samples.rows]
        lengths_ns = own.lengths_ns[at].tolist()
        times = zip(samples.frame["name"], own.start_ns[at].tolist(), lengths_ns, strict=False)
        if not len(at):
            window = job[rank].interval
            times = zip([window.name], [window.start_ns], [window.dur_ns], strict=True)
        gaps = np.unique(gap[(on_rank == rank) & (gap >= 0)]).tolist()
        works[rank] = _WorkIn(
            tuple(times), tuple(at.tolist()), tuple(samples.kind.tolist()), tuple(gaps)
        )
    whole = job.window(WHOLE)
    found = whole.map(works)
    parts = _mean_over_ranks((parts for parts, _ in found.values()), len(works))
    known = {(rank, edge): place for rank, (_, own) in found.items() for edge, place in own.items()}
    places = [known.get(key) for key in zip(on_rank.tolist(), gap.tolist(), strict=True)]
    sizes = [summary.world_size or 0 for summary in job.summaries.values()]
    devices = sorted({name for rank in rows for name in job.summaries[rank].device_names})
    return profile_of(
        name,
        samples,
        [*path_parts(path.segments, samples, np.array(places, dtype=object)), *parts],
        devices=", ".join(devices),
        world_size=max(sizes, default=0),
        n_ranks=len(rows),
        damage=job_damage_in_words(one for one in job.rank_damage if not one.damage.is_accepted),
    )
