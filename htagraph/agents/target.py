"""The target of a call: a trace or a job, in a window."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from htagraph.agents.files import Root
from htagraph.agents.loaded import Loaded, LoadedRun
from htagraph.errors import AmbiguousWindowWarning, QueryError
from htagraph.explain.default_window import left_out_in_words
from htagraph.graph import TraceGraph
from htagraph.job.job import Job
from htagraph.model.progress import begin_stage
from htagraph.readers.captures import CaptureName
from htagraph.readers.discover import holds_several
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.summary import Summary


@dataclass(frozen=True)
class Session:
    """What a call uses of the server."""

    root: Root
    loaded: Loaded


@dataclass(frozen=True)
class Target:
    """A trace, or the ranks in a folder, in a window.

    Parameters
    ----------
    name : str
        The path as the client wrote it.
    window : str, default=""
        As `find_window` reads it; empty for what is best.
    times : (int, int), optional, unit=ns
        Of a trace, the window by its times.
    capture : int, default=0
        Of a folder with several captures, which one; 0 for the latest complete one.
    """

    session: Session
    name: str
    window: str = ""
    times: tuple[int, int] | None = None
    capture: int = 0

    @cached_property
    def path(self) -> Path:
        """The file or folder."""
        path = self.session.root.existing(self.name)
        if self.capture and not holds_several(path):
            raise QueryError("capture needs a folder.", hint=f"{self.name} is one file.")
        return path

    @cached_property
    def _files(self) -> tuple[list[Path], list[str]]:
        """The files of the capture, and how it was chosen."""
        if not holds_several(self.path):
            return [self.path], []
        number: CaptureName = self.capture or "latest"
        return self.session.root.capture(self.path, number)

    @property
    def is_job(self) -> bool:
        """Whether it has several ranks. A folder with one trace is that trace."""
        return len(self._files[0]) > 1

    @property
    def file(self) -> str:
        """Of a trace, its file as a client names it."""
        return self.session.root.shown(self._files[0][0])

    @cached_property
    def _loaded(self) -> LoadedRun:
        if not self.is_job:
            file = self._files[0][0]
            return self.session.loaded.trace(file)
        if self.times is not None:
            raise QueryError(
                "every rank has its own clock: times of one are not those of another.",
                hint="name a step, or ask about the file of one rank.",
            )
        return self.session.loaded.job(self._files[0])

    @cached_property
    def _windowed(self) -> tuple[TraceGraph | Job, list[str]]:
        """The run in its window, and a note if several ranges match."""
        run = self._loaded.run
        window = self.times or self.window
        if not window:
            return run, []
        if isinstance(run, TraceGraph) and self.times is not None:
            span, (start_ns, end_ns) = run.dag.span, self.times
            if end_ns <= span.start_ns or start_ns >= span.end_ns:
                raise QueryError(
                    f"the window [{start_ns}, {end_ns}) is outside of the trace.",
                    hint=f"the trace is from {span.start_ns} to {span.end_ns}.",
                )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", AmbiguousWindowWarning)
            return run.window(window), [str(one.message) for one in caught]

    @property
    def run(self) -> TraceGraph | Job:
        """The graph of a trace, or the job, in the window."""
        return self._windowed[0]

    @property
    def notes(self) -> list[str]:
        """Which files and which window were taken, where there was a choice."""
        said = [*self._files[1], *self._loaded.notes, *self._windowed[1]]
        return [*said, left_out_in_words(self.run.left_out)] if self.run.left_out else said

    @property
    def graph(self) -> TraceGraph:
        """Of a trace, its graph in the window."""
        assert isinstance(self.run, TraceGraph)
        return self.run

    @property
    def job(self) -> Job:
        """Of a folder, its ranks in the window."""
        assert isinstance(self.run, Job)
        return self.run

    @property
    def summary(self) -> Summary:
        """Of a trace, the summary in the window."""
        trace = self._loaded.trace
        assert trace is not None

        def make() -> Summary:
            begin_stage("Finding what limits it")
            return Summary(trace, self.graph)

        return self._loaded.summary((self.window, self.times), make)

    @property
    def job_summary(self) -> JobSummary:
        """Of a folder, the summary of its ranks."""

        def make() -> JobSummary:
            begin_stage("Finding what limits it")
            return JobSummary(self.job, self.path.name)

        return self._loaded.summary(self.window, make)
