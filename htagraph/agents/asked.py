"""From what a client names to what is asked: a trace or a job, in a window."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from htagraph.agents.files import Root
from htagraph.agents.loaded import Loaded, LoadedJob, LoadedTrace
from htagraph.errors import AmbiguousWindowWarning, QueryError
from htagraph.graph import TraceGraph
from htagraph.job.job import Job
from htagraph.lookup.find_window import WHOLE
from htagraph.lookup.steady_steps import representative_window
from htagraph.model.progress import begin_stage
from htagraph.readers.captures import CaptureName
from htagraph.readers.discover import holds_several
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.summary import Summary

__all__ = ["Asked", "Calls"]

_OF_A_STEP = f"Predicted for a representative step; window={WHOLE!r}: for the whole trace."


@dataclass(frozen=True)
class Calls:
    """What a call needs of the server."""

    root: Root
    loaded: Loaded


@dataclass(frozen=True)
class Asked:
    """A trace, or the ranks of a folder, in the window that is asked about.

    Parameters
    ----------
    name : str
        The path, as the client says it.
    window : str, default=""
        As `find_window` reads it; empty for what is best.
    times : (int, int), optional, unit=ns
        Of a trace, the window by its times.
    capture : int, default=0
        Of a folder with several captures, which one; 0 for the latest complete one.
    """

    calls: Calls
    name: str
    window: str = ""
    times: tuple[int, int] | None = None
    capture: int = 0

    @cached_property
    def path(self) -> Path:
        """The file or folder."""
        path = self.calls.root.existing(self.name)
        if not holds_several(path) and self.capture:
            raise QueryError("capture needs a folder.", hint=f"{self.name} is one file.")
        return path

    def _check_times(self) -> None:
        if self.is_job and self.times is not None:
            raise QueryError(
                "every rank has its own clock: times of one are not those of another.",
                hint="name a step, or ask about the file of one rank.",
            )

    @property
    def is_job(self) -> bool:
        """Whether it is a folder with the traces of several ranks; one trace is asked itself."""
        return holds_several(self.path) and len(self._capture[0]) > 1

    @cached_property
    def _capture(self) -> tuple[list[Path], list[str]]:
        number: CaptureName = self.capture or "latest"
        return self.calls.root.capture(self.path, number)

    @property
    def _file(self) -> Path:
        return self._capture[0][0] if holds_several(self.path) else self.path

    @property
    def file(self) -> str:
        """Of a trace, its file as a client names it."""
        return self.calls.root.shown(self._file)

    @cached_property
    def _trace(self) -> LoadedTrace:
        if self.is_job:
            first = self.calls.root.shown(self._capture[0][0])
            raise QueryError(
                f"{self.name} has several ranks; this is asked of the trace of one.",
                hint=f"for example {first!r}.",
            )
        return self.calls.loaded.trace(self._file)

    @cached_property
    def _job(self) -> LoadedJob:
        self._check_times()
        return self.calls.loaded.job(self._capture[0])

    @property
    def notes(self) -> list[str]:
        """What to say about the files, and the window, that were taken."""
        chosen = self._capture[1] if holds_several(self.path) else []
        loaded = self._job.notes if self.is_job else ()
        return [*chosen, *loaded, *self._windowed[1]]

    @cached_property
    def _windowed(self) -> tuple[TraceGraph | Job, list[str]]:
        """What is asked in its window, and what to say where several have its name."""
        run: TraceGraph | Job = self._job.job if self.is_job else self._trace.graph
        window = self.times or self.window
        if not window:
            return run, []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", AmbiguousWindowWarning)
            return run.window(window), [str(one.message) for one in caught]

    @property
    def graph(self) -> TraceGraph:
        """Of a trace, its graph in the window."""
        _ = self._trace  # raises where there are several ranks
        found = self._windowed[0]
        assert isinstance(found, TraceGraph)
        return found

    @property
    def job(self) -> Job:
        """Of a folder, its ranks in the window."""
        found = self._windowed[0]
        assert isinstance(found, Job)
        return found

    @property
    def run(self) -> TraceGraph | Job:
        """What questions are asked of."""
        return self._windowed[0]

    @property
    def summary(self) -> Summary:
        """Of a trace, what a report says of the window; without its opening, where it has one."""
        loaded = self._trace

        def make() -> Summary:
            begin_stage("Finding what bounds it")
            if self.window or self.times:
                return Summary(loaded.trace, self.graph)
            return Summary.of(loaded.trace, loaded.graph)

        return loaded.summary((self.window, self.times), make)

    @property
    def job_summary(self) -> JobSummary:
        """Of a folder, what a report says of its ranks."""

        def make() -> JobSummary:
            begin_stage("Finding what bounds it")
            return JobSummary(self.job, self.path.name)

        return self._job.summary(self.window, make)

    @property
    def step(self) -> tuple[TraceGraph, list[str]]:
        """Of a trace, what changes are asked of: the representative step, unless one is named."""
        graph = self.graph
        if self.window or self.times:
            return graph, []
        step = representative_window(graph.dag)
        if step is not None:
            return replace(graph, interval=step), [_OF_A_STEP]
        found = self.summary
        return found.graph, found.window_caveats
