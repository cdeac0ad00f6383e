"""What was loaded stays at hand, so that the second question about a trace is answered at once."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from htagraph.compiled import Reading
from htagraph.errors import HTAGraphWarning
from htagraph.graph import TraceGraph
from htagraph.job.job import Job
from htagraph.job.loading import load_job
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.summary import Summary
from htagraph.trace import Trace

__all__ = ["Loaded", "LoadedJob", "LoadedTrace"]

_MOST = 8
_MOST_EVENTS = 10_000_000
_MOST_SUMMARIES = 8

Value = TypeVar("Value")


@dataclass(frozen=True)
class LoadedTrace:
    """A trace, its graph, and what was said about windows of it.

    Parameters
    ----------
    graph : TraceGraph
        Of the whole trace.
    """

    trace: Trace
    graph: TraceGraph
    _summaries: OrderedDict[object, Summary] = field(default_factory=OrderedDict)

    @property
    def n_events(self) -> int:
        """Number of events."""
        return len(self.graph.dag.events)

    def summary(self, key: object, make: Callable[[], Summary]) -> Summary:
        """The summary of a window, made unless it is there."""
        return _kept(self._summaries, key, make)


@dataclass(frozen=True)
class LoadedJob:
    """The ranks of a job, and what was said about windows of it.

    Parameters
    ----------
    notes : tuple of str
        What was said when it was loaded.
    """

    job: Job
    notes: tuple[str, ...] = ()
    _summaries: OrderedDict[object, JobSummary] = field(default_factory=OrderedDict)

    @property
    def n_events(self) -> int:
        """Number of events of all ranks."""
        return sum(rank.n_events for rank in self.job.summaries.values())

    def summary(self, key: object, make: Callable[[], JobSummary]) -> JobSummary:
        """The summary of a window, made unless it is there."""
        return _kept(self._summaries, key, make)


def _kept(kept: OrderedDict[Any, Value], key: object, make: Callable[[], Value]) -> Value:
    """A value by its key, made unless it is there; the one longest unused goes."""
    if key not in kept:
        kept[key] = make()
    kept.move_to_end(key)
    while len(kept) > _MOST_SUMMARIES:
        kept.popitem(last=False)
    return kept[key]


class Loaded:
    """Traces and jobs that were loaded last, by their files as these are now.

    At most eight, and of 10 million events together: the one longest unused goes first.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[object, LoadedTrace | LoadedJob] = OrderedDict()

    def __len__(self) -> int:
        """Count what is at hand."""
        return len(self._kept)

    def clear(self) -> None:
        """Let go of everything; temporary files of jobs go with them."""
        self._kept.clear()

    def trace(self, path: Path) -> LoadedTrace:
        """A trace of one rank."""
        key = _state(path)
        found = self._kept.get(key)
        if not isinstance(found, LoadedTrace):
            found = LoadedTrace(*Reading().made(path))
        self._keep(key, found)
        return found

    def job(self, paths: Sequence[Path]) -> LoadedJob:
        """A job of some ranks; those that cannot be used are left out and reported."""
        key = tuple(map(_state, paths))
        found = self._kept.get(key)
        if not isinstance(found, LoadedJob):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", HTAGraphWarning)
                job = load_job(paths, on_error="skip")
            notes = [
                str(one.message) for one in caught if issubclass(one.category, HTAGraphWarning)
            ]
            found = LoadedJob(job, tuple(notes))
        self._keep(key, found)
        return found

    def _keep(self, key: object, found: LoadedTrace | LoadedJob) -> None:
        """Keep what was used, and let go of what was not, until the rest is small enough."""
        self._kept[key] = found
        self._kept.move_to_end(key)
        while len(self._kept) > 1 and (len(self._kept) > _MOST or self._n_events > _MOST_EVENTS):
            self._kept.popitem(last=False)

    @property
    def _n_events(self) -> int:
        return sum(one.n_events for one in self._kept.values())


def _state(path: Path) -> tuple[Path, int, int]:
    """A file as it is now: another time or size is another trace."""
    stat = path.stat()
    return path, stat.st_mtime_ns, stat.st_size
