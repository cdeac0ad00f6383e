"""Work on one rank: functions of its graph that can be pickled for another process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.breakdown import path_sums
from htagraph.explain.critical_path import critical_paths, path_segments
from htagraph.explain.waited_for import Stretch, stretches
from htagraph.findings.verdict import Verdict
from htagraph.job.lateness import RankTimes
from htagraph.job.rank_segments import RankSegment
from htagraph.job.ranks import Request
from htagraph.model.arrays import I64
from htagraph.model.window import Window
from htagraph.run.graph import TraceGraph


@dataclass(frozen=True)
class Question:
    """A question by its name, and its options."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, name: str, /, **options: object) -> Self:
        """A question with options."""
        return cls(name, tuple(sorted(options.items())))

    def __call__(self, graph: TraceGraph) -> pd.DataFrame:
        """The answer of a rank."""
        return graph.ask(self.name, **dict(self.options))


PathWork = Callable[[TraceGraph, Sequence[Window], "I64"], Any]
"""Work on the path of a rank: its graph, windows of rank segments, and their numbers."""


@dataclass(frozen=True)
class _OnRankSegments:
    """Work on the path in some rank segments of one rank, which have numbers among all."""

    work: PathWork
    numbered: tuple[tuple[int, RankSegment], ...]

    def __call__(self, graph: TraceGraph) -> Any:  # noqa: ANN401  what the work returns
        """Do the work in the rank segments."""
        windows = [
            Window(one.local_start_ns, one.local_end_ns, "rank segment", anchor=one.end_node)
            for _, one in self.numbered
        ]
        numbers = np.array([number for number, _ in self.numbered], dtype=np.int64)
        return self.work(graph, windows, numbers)


def path_in(graph: TraceGraph, windows: Sequence[Window], numbers: I64) -> pd.DataFrame:
    """The path itself, with ``rank_segment``."""
    segments = critical_paths(graph.dag, windows)
    ends = np.cumsum([window.dur_ns for window in windows])
    place = np.searchsorted(ends, np.cumsum(segments["dur_ns"].to_numpy(np.int64)))
    return segments.assign(rank_segment=numbers[place])


def told_in(graph: TraceGraph, windows: Sequence[Window], numbers: I64) -> dict[int, list[Stretch]]:
    """The last stretches of the path in each rank segment, in words, latest first."""
    return {
        number: stretches(graph.dag, window, path_segments(graph.dag, [window]))
        for number, window in zip(numbers.tolist(), windows, strict=True)
    }


def attributed_in(graph: TraceGraph, windows: Sequence[Window], numbers: I64) -> pd.DataFrame:
    """The causes that the time of the path is attributed to, with ``rank_segment``."""
    segments = path_in(graph, windows, numbers)
    found = attributed_time(graph.dag, segments)
    return found.assign(rank_segment=segments["rank_segment"].to_numpy()[found["segment"]])


def times_by_name(graph: TraceGraph, windows: Sequence[Window], numbers: I64) -> RankTimes:
    """The time of the path by rank segment, bound, name and operator."""
    sums, causes = path_sums(graph.dag, windows)
    return sums._replace(window=numbers[sums.window]), causes


def verdict_of(graph: TraceGraph) -> Verdict:
    """What limits a rank by itself."""
    return graph.verdict()


def on_rank_segments(work: PathWork, rank_segments: Sequence[RankSegment]) -> dict[int, Request]:
    """Requests to the ranks of some rank segments, each to work on its own."""
    by_rank: dict[int, list[tuple[int, RankSegment]]] = {}
    for number, one in enumerate(rank_segments):
        by_rank.setdefault(one.rank, []).append((number, one))
    return {
        rank: Request(None, _OnRankSegments(work, tuple(part))) for rank, part in by_rank.items()
    }
