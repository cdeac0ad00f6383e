"""The last steps of a job, which alone are kept where its collectives are too many.

Collectives are what grows in this process with a job: matching them, fitting clocks and finding who
waited takes about 1.1 kB and 9 us for each. So a rank brings those of as many last steps as its
share allows, one at least, and the job is of the steps that all ranks brought. A collective belongs
to the step of its launch: devices lag by more on one rank than on another, and ranks that begin
with different collectives would be matched wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.lookup.collectives import Readiness
from htagraph.model.answers import QUALITY
from htagraph.model.arrays import I64
from htagraph.model.units import human_count
from htagraph.model.window import Window
from htagraph.queries.communication import launches_of
from htagraph.run.graph import TraceGraph

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
        """Name of the window."""
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
