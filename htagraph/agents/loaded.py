"""Traces and jobs that stay loaded, so that the second question about one is answered at once."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from htagraph.compiled import LoadOptions
from htagraph.errors import HTAGraphWarning
from htagraph.graph import TraceGraph
from htagraph.job.job import Job
from htagraph.job.loading import load_job
from htagraph.trace import Trace

_MOST_EVENTS = 10_000_000
"""Events that stay loaded, chosen: a few GB. `docs/agents.md` states it, and a test reads that."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class LoadedRun:
    """A trace with its graph, or a job.

    Parameters
    ----------
    run : TraceGraph or Job
        The whole of it.
    n_events : int
        Of all ranks.
    trace : Trace, optional
        None of a job.
    notes : tuple of str
        Warnings of its loading.
    """

    run: TraceGraph | Job
    n_events: int
    trace: Trace | None = None
    notes: tuple[str, ...] = ()
    _summaries: dict[Hashable, Any] = field(default_factory=dict)

    def summary(self, window: Hashable, make: Callable[[], Value]) -> Value:
        """The summary of a window; that of the last one is kept."""
        if window not in self._summaries:
            made = make()
            self._summaries.clear()
            self._summaries[window] = made
        found: Value = self._summaries[window]
        return found


class Loaded:
    """The runs that were used last, by their files as they are now; the last is always kept."""

    def __init__(self) -> None:
        self._runs: OrderedDict[Hashable, LoadedRun] = OrderedDict()

    def __len__(self) -> int:
        """Count the runs."""
        return len(self._runs)

    def clear(self) -> None:
        """Let go of everything; temporary files of jobs go with them."""
        self._runs.clear()

    def trace(self, path: Path) -> LoadedRun:
        """A trace of one rank."""

        def read() -> LoadedRun:
            trace, graph = LoadOptions(stacks=None).made(path)
            return LoadedRun(graph, len(graph.dag.events), trace)

        return self._kept(_state(path), read)

    def job(self, paths: Sequence[Path]) -> LoadedRun:
        """A job of some ranks; those that cannot be used are left out and reported."""

        def read() -> LoadedRun:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", HTAGraphWarning)
                job = load_job(paths, on_error="skip", stacks=None)
            notes = (one.message for one in caught if issubclass(one.category, HTAGraphWarning))
            n_events = sum(rank.n_events for rank in job.summaries.values())
            return LoadedRun(job, n_events, notes=tuple(map(str, notes)))

        return self._kept(tuple(map(_state, paths)), read)

    def _kept(self, key: Hashable, read: Callable[[], LoadedRun]) -> LoadedRun:
        """A run, read unless it is loaded; the one longest unused goes until the rest is small."""
        found = self._runs[key] = self._runs.get(key) or read()
        self._runs.move_to_end(key)
        while len(self._runs) > 1 and self._n_events > _MOST_EVENTS:
            self._runs.popitem(last=False)
        return found

    @property
    def _n_events(self) -> int:
        return sum(run.n_events for run in self._runs.values())


def _state(path: Path) -> tuple[Path, int, int, int, int]:
    """A file as it is now; one that replaced it may have its size and its time of change."""
    stat = path.stat()
    return path, stat.st_mtime_ns, stat.st_size, stat.st_ctime_ns, stat.st_ino
