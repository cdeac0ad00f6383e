"""The target of a call: a trace or a job, in a window, among the files that a client may name.

Those are in one folder, after links and `..` are resolved. Runs stay loaded, so that the second
question about one is answered at once.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pandas as pd

from htagraph.errors import AmbiguousWindowWarning, HTAGraphWarning, QueryError, TraceNotFoundError
from htagraph.explain.default_window import left_out_in_words
from htagraph.job.job import Job
from htagraph.job.opened import opened
from htagraph.model.progress import begin_stage
from htagraph.model.units import human_count
from htagraph.readers.captures import CaptureName, Chosen, discover, of_capture
from htagraph.readers.discover import find_traces, holds_several
from htagraph.readers.storage import file_of
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.summary import Summary
from htagraph.run.compiled import LoadOptions
from htagraph.run.graph import TraceGraph
from htagraph.run.trace import Trace


@dataclass(frozen=True)
class Root:
    """The folder whose files may be read."""

    folder: Path  # Absolute, without links

    @classmethod
    def of(cls, folder: str | Path) -> Root:
        """The root of a folder, which may be a link."""
        return cls(Path(folder).resolve())

    def inside(self, name: str) -> Path:
        """The file or folder that a client names, without links."""
        try:
            path = (self.folder / name).resolve()
        except (OSError, RuntimeError, ValueError):  # links in a circle, a null byte
            raise QueryError(f"{name!r} is no path.", hint=self._hint) from None
        if not path.is_relative_to(self.folder):
            raise QueryError(
                f"{name} is outside of {self.folder}, the only folder that is read here.",
                hint=self._hint,
            )
        return path

    def existing(self, name: str) -> Path:
        """The existing file or folder that a client names."""
        path = self.inside(name)
        if not file_of(path).exists():
            raise TraceNotFoundError("no such file or folder.", path=name, hint=self._hint)
        return path

    @property
    def _hint(self) -> str:
        return f"paths are relative to {self.folder}; `captures` lists what is there."

    def shown(self, path: str | Path) -> str:
        """A path as a client names it: relative to the root."""
        path = Path(path)
        return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else str(path)

    def holds(self, path: Path) -> bool:
        """Whether a file is inside, after links."""
        return path.resolve().is_relative_to(self.folder)

    def captures(self, folder: Path) -> tuple[pd.DataFrame, list[str]]:
        """The captures in a folder, and a note on links that lead outside: they are left out."""
        found = find_traces(folder)
        inside = [path for path in found if self.holds(path)]
        n_outside = len(found) - len(inside)
        note = f"{human_count(n_outside, 'link')} to files outside of the root left out."
        if not inside:
            raise QueryError(f"{self.shown(folder)}: {note}", hint=self._hint)
        return discover(inside), [note] if n_outside else []

    def chosen(self, path: Path, capture: CaptureName) -> tuple[Chosen, list[str]]:
        """The traces of one capture, and notes on the choice."""
        if not holds_several(path):
            return Chosen([path], {}, ""), []
        captures, notes = self.captures(path)
        files = of_capture(captures, self.shown(path), capture)
        return files._replace(note=""), [*notes, *([files.note] if files.note else [])]


_MOST_EVENTS = 10_000_000
"""Events that stay loaded, chosen: a few GB. `docs/agents.md` states it, and a test reads that."""


@dataclass(frozen=True)
class LoadedRun:
    """A trace with its graph, or a job."""

    run: TraceGraph | Job  # The whole of it
    n_events: int  # Of all ranks
    trace: Trace | None = None  # None of a job
    notes: tuple[str, ...] = ()  # Warnings of its loading
    summaries: dict[Hashable, Summary | JobSummary] = field(default_factory=dict)  # Of one window


class Session:
    """What a call uses of the server: the root, and the runs that were used last.

    Runs are known by their files as they are now; the last is always kept.
    """

    def __init__(self, root: Root) -> None:
        self.root = root
        self._runs: OrderedDict[Hashable, LoadedRun] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def clear(self) -> None:
        """Let go of everything; temporary files of jobs go with them."""
        self._runs.clear()

    def run(self, files: Chosen) -> LoadedRun:
        """A run, read unless it is loaded; the one longest unused goes until the rest is small."""
        key = tuple(map(_state, files.paths))
        found = self._runs[key] = self._runs.get(key) or _read(files)
        self._runs.move_to_end(key)
        kept = self._runs.values()
        while len(kept) > 1 and sum(run.n_events for run in kept) > _MOST_EVENTS:
            self._runs.popitem(last=False)
        return found


def _read(files: Chosen) -> LoadedRun:
    """A trace, or a job of some ranks; those that cannot be used are left out and reported."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HTAGraphWarning)
        found = opened(files, LoadOptions(stacks=None))
    said = [str(one.message) for one in caught if issubclass(one.category, HTAGraphWarning)]
    if isinstance(found, Job):
        n_events = sum(rank.n_events for rank in found.summaries.values())
        return LoadedRun(found, n_events, notes=tuple(said))
    return LoadedRun(found.graph, len(found.graph.dag.events), found.trace, tuple(said))


def _state(path: Path) -> tuple[Path, int, int, int, int]:
    """A file as it is now; one that replaced it may have its size and its time of change."""
    stat = path.stat()
    return path, stat.st_mtime_ns, stat.st_size, stat.st_ctime_ns, stat.st_ino


@dataclass(frozen=True)
class Target:
    """A trace, or the ranks in a folder, in a window."""

    session: Session
    name: str  # The path as the client wrote it
    window: str = ""  # As `find_window` reads it; empty for what is best
    times: tuple[int, int] | None = None  # In ns. Of a trace, the window by its times.
    capture: int = 0  # Of a folder with several captures, which one; 0 for the latest complete one

    @cached_property
    def path(self) -> Path:
        """The file or folder."""
        path = self.session.root.existing(self.name)
        if self.capture and not holds_several(path):
            raise QueryError("capture needs a folder.", hint=f"{self.name} is one file.")
        return path

    @cached_property
    def _files(self) -> tuple[Chosen, list[str]]:
        """The files of the capture, and how it was chosen."""
        return self.session.root.chosen(self.path, self.capture or "latest")

    @property
    def is_job(self) -> bool:
        """Whether it has several ranks. A folder with one trace is that trace."""
        return len(self._files[0].paths) > 1

    @property
    def file(self) -> str:
        """Of a trace, its file as a client names it."""
        return self.session.root.shown(self._files[0].paths[0])

    @cached_property
    def _loaded(self) -> LoadedRun:
        if self.is_job and self.times is not None:
            raise QueryError(
                "every rank has its own clock: times of one are not those of another.",
                hint="name a step, or ask about the file of one rank.",
            )
        return self.session.run(self._files[0])

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
    def summary(self) -> Summary | JobSummary:
        """What limits the run in the window; that of the last window is kept."""
        window, kept = (self.window, self.times), self._loaded.summaries
        if window not in kept:
            begin_stage("Finding what limits it")
            made: Summary | JobSummary
            if (trace := self._loaded.trace) is None:
                made = JobSummary(self.job, self.path.name)
            else:
                made = Summary(trace, self.graph)
            kept.clear()
            kept[window] = made
        return kept[window]
