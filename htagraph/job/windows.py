"""Windows of a job: what its answers are about by default, and the steps that are kept.

As for a trace (`htagraph.explain.default_window`), but of all ranks: work from before the profile
is left out on each rank up to its own end, and steps are those that all ranks have. A step of a job
is done when its last rank is, in common time, and lasts from when the step before was done. Any one
rank would give the same mean, as ranks that wait for each other cannot drift apart; but the job
waits for the last one, and steps that end with it follow each other in order, so that the path
across ranks can be cut at them.

Of a job with too many collectives only the last steps are kept. Collectives are what grows in this
process with a job: matching them, fitting clocks and finding who waited takes about 1.1 kB and 9 us
for each. So a rank brings those of as many last steps as its share allows, one at least, and the
job is of the steps that all ranks brought. A collective belongs to the step of its launch: devices
lag by more on one rank than on another, and ranks that begin with different collectives would be
matched wrongly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.clocks import Clock
from htagraph.explain.critical_path import path_segments
from htagraph.explain.default_window import LATER, rest_after_opening
from htagraph.lookup.collectives import Readiness
from htagraph.lookup.done_steps import DoneSteps, done_steps
from htagraph.model.answers import QUALITY
from htagraph.model.arrays import I64
from htagraph.model.units import human_count
from htagraph.model.window import Window
from htagraph.queries.communication import launches_of
from htagraph.run.graph import TraceGraph


@dataclass(frozen=True)
class AfterOpening:
    """A window of every rank: from the end of its own opening on."""

    def __str__(self) -> str:
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


MOST_COLLECTIVES = 4_000_000
"""Collectives of all ranks that a job keeps: about 4.4 GB. Documented in `docs/limits.md`;
`tests/hostile/test_damage.py` compares."""

_BYTES_OF_A_COLLECTIVE = 1_100
"""Memory of a kept collective, for the warning: `python -m tests.benchmarks.bench_collectives`.
Pinned by test_merged_replay."""


class StepStart(NamedTuple):
    """Where a step of a rank begins: on its clock, and in its collectives."""

    name: str
    start_ns: int
    collective: int


@dataclass(frozen=True)
class LastSteps:
    """A window of every rank: from a step to the end of the trace."""

    name: str
    instance: int = -1  # Which step of the name, from the end: -1 is the last

    def __str__(self) -> str:
        return f"{self.name} and later"

    def __call__(self, graph: TraceGraph) -> Window:
        """The window of a rank; all of it if the rank has no such step."""
        steps, span = graph.steps, graph.dag.span
        named = steps["start_ns"][steps["name"] == self.name].to_numpy(np.int64)
        start_ns = int(named[self.instance]) if len(named) >= -self.instance else span.start_ns
        return Window(max(start_ns, span.start_ns), span.end_ns, str(self))


@dataclass(frozen=True)
class KeptSteps:
    """Which steps of a job have their collectives, and how many there were."""

    window: LastSteps
    # Steps count on the rank with most of them, collectives on all ranks.
    n_steps: int
    n_all_steps: int
    n_collectives: int
    n_all_collectives: int

    def __str__(self) -> str:
        """A sentence on what is kept."""
        gigabytes = self.n_collectives * _BYTES_OF_A_COLLECTIVE / 1e9
        return (
            f"The ranks have {human_count(self.n_all_collectives, 'collective')}, too many for one "
            f"process: the job is of {self.window}, {self.n_steps:,} of "
            f"{human_count(self.n_all_steps, 'step')}, with {self.n_collectives:,} of them (about "
            f"{gigabytes:.1f} GB)."
        )

    def added_to(
        self, quality: pd.DataFrame, n_kept: Mapping[int, tuple[int, int]]
    ) -> pd.DataFrame:
        """The quality of a job with one more check of each rank: how much was kept.

        `n_kept` has the collectives of each rank that are kept, and that are not.
        """
        ranks = quality["rank"].unique()
        n_good, n_out = np.array([n_kept[rank] for rank in ranks], dtype=np.int64).T
        is_good, n_all = n_out == 0, n_good + n_out
        why = (
            f"the path across ranks, clocks and waits cover {self.window}: raise "
            "load_job(most_collectives=…) if there is memory, or record fewer steps."
        )
        check = QUALITY.frame(
            {
                "check": ["collectives kept"] * len(ranks),
                "n_good": n_good,
                "n_all": n_all,
                "share": n_good / np.maximum(n_all, 1),
                "verdict": pd.Categorical(
                    np.where(is_good, "good", "weak"), quality["verdict"].cat.categories
                ),
                "consequence": np.where(is_good, "", why),
            }
        )
        both = pd.concat([quality, check.assign(rank=ranks)], ignore_index=True)
        both = both.sort_values("rank", kind="stable", ignore_index=True)
        both.attrs |= quality.attrs
        return both


def step_starts(graph: TraceGraph, kernels: I64) -> tuple[StepStart, ...]:
    """Where the steps of a rank begin; `kernels` are its collectives in order of launch."""
    steps = graph.steps
    launched_ns = graph.dag.events.ts_ns[launches_of(graph.dag, kernels)]
    first = np.searchsorted(launched_ns, steps["start_ns"].to_numpy(np.int64))
    columns = (steps["name"].tolist(), steps["start_ns"].tolist(), first.tolist())
    return tuple(map(StepStart, *columns))


def place_of(window: LastSteps, starts: Sequence[StepStart]) -> int:
    """Place of the step with which a window begins, -1 for none."""
    named = [place for place, one in enumerate(starts) if one.name == window.name]
    return named[window.instance] if len(named) >= -window.instance else -1


def table_since(
    table: pd.DataFrame, ready: Readiness, first: int
) -> tuple[pd.DataFrame, Readiness]:
    """The collectives of a rank from one on, and when they were ready, renumbered."""
    kept = table.iloc[first:].reset_index(drop=True).copy()
    own = np.arange(len(kept))
    after, arrival = (kept[name].to_numpy(np.int64) for name in ("after", "arrival"))
    # A sender may have been launched a step before its receiver, which then arrives by itself.
    came = np.where(arrival < 0, -1, np.where(arrival < first, own, arrival - first))
    kept = kept.assign(collective=own, after=np.maximum(after - first, -1), arrival=came)
    ready_ns, node, ready_after = (values[first:] for values in ready)
    return kept, Readiness(ready_ns, node, np.maximum(ready_after - first, -1))
