"""Work on one rank, as functions of its graph that can travel to another process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.busy_time import BusyTime, busy_time
from htagraph.explain.critical_path import critical_paths
from htagraph.graph import TraceGraph
from htagraph.job.lateness import CAUSE_KEY
from htagraph.job.rank_segments import RankSegment
from htagraph.job.ranks import Request
from htagraph.lookup.steps import without_numbers
from htagraph.model.kinds import Bound
from htagraph.model.window import Window

__all__ = [
    "Asked",
    "AttributedTimeIn",
    "BusyTimeIn",
    "PathIn",
    "TimesByNameIn",
    "on_rank_segments",
]


@dataclass(frozen=True)
class Asked:
    """A question by its name, and its options."""

    question: str
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, question: str, **options: object) -> Self:
        """Make the work of a question."""
        return cls(question, tuple(sorted(options.items())))

    def __call__(self, graph: TraceGraph) -> pd.DataFrame:
        """Do it on the graph of a rank."""
        return graph.ask(self.question, **dict(self.options))


@dataclass(frozen=True)
class BusyTimeIn:
    """The busy time of a rank's resources, without waits, in a window.

    Parameters
    ----------
    start_ns, end_ns : int, unit=ns
        On the clock of the rank.
    """

    start_ns: int
    end_ns: int

    def __call__(self, graph: TraceGraph) -> BusyTime:
        """Do it on the graph of a rank."""
        return busy_time(graph.dag, Window(self.start_ns, self.end_ns, "busy time"))


Numbered = tuple[tuple[int, RankSegment], ...]
"""Rank segments of one rank with their numbers among those of all."""


def _path_in(graph: TraceGraph, numbered: Numbered) -> pd.DataFrame:
    """The path in some rank segments of a rank, with the number of each."""
    windows = [
        Window(one.local_start_ns, one.local_end_ns, "rank segment", anchor=one.end_node)
        for _, one in numbered
    ]
    segments = critical_paths(graph.dag, windows)
    ends = np.cumsum([window.dur_ns for window in windows])
    place = np.searchsorted(ends, np.cumsum(segments["dur_ns"].to_numpy(np.int64)))
    numbers = np.array([number for number, _ in numbered], dtype=np.int64)
    return segments.assign(rank_segment=numbers[place])


@dataclass(frozen=True)
class PathIn:
    """The path in some rank segments of one rank, schema `frames.SEGMENTS` and ``rank_segment``."""

    numbered: Numbered

    def __call__(self, graph: TraceGraph) -> pd.DataFrame:
        """Do it on the graph of a rank."""
        return _path_in(graph, self.numbered)


@dataclass(frozen=True)
class AttributedTimeIn:
    """What the time of some rank segments of one rank is attributed to, with ``rank_segment``."""

    numbered: Numbered

    def __call__(self, graph: TraceGraph) -> pd.DataFrame:
        """Do it on the graph of a rank."""
        segments = _path_in(graph, self.numbered)
        found = attributed_time(graph.dag, segments)
        return found.assign(rank_segment=segments["rank_segment"].to_numpy()[found["segment"]])


@dataclass(frozen=True)
class TimesByNameIn:
    """How long each thing took in some rank segments of one rank, with ``rank_segment``.

    Communication is told apart by ``event``, which is -1 for all else, and ``start_ns`` is when it
    began there.
    """

    numbered: Numbered

    def __call__(self, graph: TraceGraph) -> pd.DataFrame:
        """Do it on the graph of a rank."""
        segments = _path_in(graph, self.numbered)
        named = segments.assign(
            bound=segments["bound"].astype(object),
            name=without_numbers(segments["name"]),
            op=without_numbers(segments["op"]),
            event=segments["event"].where(segments["bound"] == Bound.COMMUNICATION.label, -1),
        )
        by = ["rank_segment", *CAUSE_KEY, "event"]
        return pd.DataFrame(
            named.groupby(by, as_index=False, sort=False).agg(
                start_ns=("start_ns", "min"), dur_ns=("dur_ns", "sum")
            )
        )


def on_rank_segments(
    work: type[PathIn | AttributedTimeIn | TimesByNameIn], rank_segments: Sequence[RankSegment]
) -> dict[int, Request]:
    """Requests to the ranks of some rank segments, to work on theirs."""
    by_rank: dict[int, list[tuple[int, RankSegment]]] = {}
    for number, one in enumerate(rank_segments):
        by_rank.setdefault(one.rank, []).append((number, one))
    return {rank: Request(None, work(tuple(part))) for rank, part in by_rank.items()}
