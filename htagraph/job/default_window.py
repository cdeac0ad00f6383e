"""The default window of a job: what its answers are about unless another window is asked for.

As for a trace (`htagraph.explain.default_window`), but of all ranks: work from before the profile
is left out on each rank up to its own end, and steps are those that all ranks have. A step of a job
is done when its last rank is, in common time, and lasts from when the step before was done. Any one
rank would give the same mean, as ranks that wait for each other cannot drift apart; but the job
waits for the last one, and steps that end with it follow each other in order, so that the path
across ranks can be cut at them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from htagraph.arrays.clocks import Clock
from htagraph.explain.critical_path import path_segments
from htagraph.explain.default_window import LATER, rest_after_opening
from htagraph.lookup.done_steps import DoneSteps, done_steps
from htagraph.model.arrays import I64
from htagraph.model.units import human_count
from htagraph.model.window import Window
from htagraph.run.graph import TraceGraph


@dataclass(frozen=True)
class AfterOpening:
    """A window of every rank: from the end of its own opening on."""

    def __str__(self) -> str:
        """Name of the window."""
        return LATER

    def __call__(self, graph: TraceGraph) -> Window:
        """The window of a rank; all of it if nothing was launched before its capture."""
        span = graph.dag.span
        rest = rest_after_opening(path_segments(graph.dag, [span]), span)
        return rest if rest is not None else replace(span, name=LATER)


@dataclass(frozen=True)
class RankSteps:
    """A window of every rank: some steps that all ranks have, by the first and the last."""

    first: str
    last: str
    n: int

    def __str__(self) -> str:
        """Name of the window."""
        return human_count(self.n, "step")

    def rows(self, steps: DoneSteps) -> slice | None:
        """The steps of a rank; None if it has no such steps."""
        names = steps.names.tolist()
        if self.first not in names or self.last not in names:
            return None
        return slice(names.index(self.first), names.index(self.last) + 1)

    def __call__(self, graph: TraceGraph) -> Window:
        """The window of a rank; all of it if it has no such steps."""
        steps = done_steps(graph.dag)
        some = self.rows(steps)
        window = graph.dag.span if some is None else steps.window(some)
        return replace(window, name=str(self), n_steps=self.n)


def job_steps(
    by_rank: Mapping[int, DoneSteps], clocks: Mapping[int, Clock]
) -> tuple[DoneSteps, dict[int, I64]]:
    """The steps that all ranks have once, on the common clock, and their rows on each rank."""
    names = {rank: steps.names.tolist() for rank, steps in by_rank.items()}
    count = {rank: Counter(own) for rank, own in names.items()}
    once = {
        rank: {name: row for row, name in enumerate(own) if count[rank][name] == 1}
        for rank, own in names.items()
    }
    common = [
        name for name in next(iter(once.values())) if all(name in row for row in once.values())
    ]
    rows = {
        rank: np.array([row[name] for name in common], dtype=np.int64) for rank, row in once.items()
    }
    parts = [
        (
            clocks[rank].to_common(steps.start_ns[rows[rank]]),
            clocks[rank].to_common(steps.end_ns[rows[rank]]),
            steps.kind[rows[rank]],
        )
        for rank, steps in by_rank.items()
    ]
    start_ns, end_ns = (np.max([part[side] for part in parts], axis=0) for side in (0, 1))
    start_ns[1:] = np.maximum(start_ns[1:], end_ns[:-1])
    seen: dict[tuple[int, ...], int] = {}
    on_ranks = zip(*(part[2].tolist() for part in parts), strict=True)
    kind = np.array([seen.setdefault(each, len(seen)) for each in on_ranks], dtype=np.int64)
    done = DoneSteps(np.array(common, dtype=object), start_ns, end_ns, kind, np.full(len(kind), -1))
    return done, rows
