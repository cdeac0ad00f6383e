"""Source: the trace, the rank of a job, or the job that the arguments of a command name.

Of a report of Nsight Systems, the SQLite export is read, or made on request; what comes from a pipe
(``-``, ``/dev/stdin``, ``<(zcat FILE)``) is kept in a file, to be read twice.
"""

from __future__ import annotations

import glob
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from os.path import commonpath, commonprefix, relpath
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, TypeVar

import pandas as pd
import typer

from htagraph.cli.console import output
from htagraph.cli.tables import Format, print_frame
from htagraph.errors import (
    MissingEventsError,
    QueryError,
    RankNotFoundError,
    TraceError,
    did_you_mean,
)
from htagraph.explain.default_window import left_out_in_words
from htagraph.job.opened import opened
from htagraph.model.progress import begin_stage
from htagraph.model.units import human_count
from htagraph.readers.captures import (
    CaptureName,
    Chosen,
    companions,
    discover,
    files_in_words,
    of_capture,
)
from htagraph.readers.discover import TRACE_SUFFIXES, find_traces, holds_several, is_glob
from htagraph.readers.nsys.export import export_nsys, export_of, is_report
from htagraph.readers.storage import (
    exists,
    file_of,
    is_folder,
    is_remote,
    name_of,
    not_found,
    path_of,
    url_of,
)
from htagraph.run.compiled import Compiled, LoadOptions
from htagraph.run.graph import TraceGraph
from htagraph.writers.output_file import OwnFolder

if TYPE_CHECKING:
    from rich.console import Console

    from htagraph.comparison.run_profile import RunProfile
    from htagraph.job.job import Job

_LOG = logging.getLogger("htagraph")


def readable(path: Path) -> Path:
    """Path to read: of a report, its export if there is one; other paths unchanged.

    On a terminal with `nsys` installed, the user is asked whether to export. Otherwise the reader
    of the report raises an error with the command to run.
    """
    if not is_report(path) or not path.is_file():
        return path
    export = export_of(path)
    if export.is_file() and export.stat().st_mtime >= path.stat().st_mtime:
        _LOG.warning("reading %s, the export of %s.", export.name, path.name)
        return export
    is_asked = shutil.which("nsys") and sys.stdin.isatty() and sys.stderr.isatty()
    question = f"{path.name} is not exported yet. Export it with nsys to {export.name}?"
    return export_nsys(path) if is_asked and typer.confirm(question, err=True) else path


_folders: list[OwnFolder] = []
"""Copies of pipes, until the process ends."""


def from_pipe(path: Path) -> Path:
    """Temporary copy of what a pipe delivers; other paths as they are."""
    is_stdin = str(path) in ("-", "/dev/stdin")
    if not is_stdin and not path.is_fifo():
        return path
    name = "stdin" if is_stdin else path.name
    place = "standard input" if is_stdin else path
    hint = "write the trace into it: zcat FILE | htagraph … -"
    with os.fdopen(os.dup(0), "rb") if is_stdin else path.open("rb") as pipe:
        if pipe.isatty():
            raise TraceError("is a terminal, not a trace.", path=place, hint=hint)
        _folders.append(OwnFolder("pipe-"))
        copy = _folders[-1].path / name
        with copy.open("wb") as file:
            shutil.copyfileobj(pipe, file)
    if not copy.stat().st_size:
        raise TraceError("nothing arrived.", path=place, hint=hint)
    return copy


def lasting(path: Path) -> Path:
    """Path that names a report: of a pipe's copy, the same the next time."""
    return Path(path.name) if any(folder.path == path.parent for folder in _folders) else path


_N_NAMED = 8
"""Chosen: ranks that an error lists."""


def given(
    paths: Sequence[Path] | Path,
    rank: int | None = None,
    capture: str = "",
    beside: Sequence[Path] | None = None,
    form: Format = Format.TABLE,
) -> Source:
    """Source that a command's arguments name; `--capture list` lists it and ends the command."""
    source = Source.of(paths, rank, capture, beside or ())
    if capture != "list":
        return source
    if form is Format.TABLE:
        output().print(files_in_words(source.found), soft_wrap=True)
    else:
        print_frame(output(), source.found, form)
    raise typer.Exit


@dataclass(frozen=True)
class Source:
    """Files, folders or globs, and the requested rank."""

    given: tuple[Path, ...]
    rank: int | None = None  # One rank; None for all
    capture: str = ""  # A number, a file, ``all`` or ``latest``; empty for the latest
    beside: tuple[Path, ...] = ()  # Companion files: data of other tools from the same run

    @classmethod
    def of(
        cls,
        given: Sequence[Path] | Path,
        rank: int | None = None,
        capture: str = "",
        beside: Sequence[Path] = (),
    ) -> Source:
        """Source of some arguments."""
        every = (given,) if isinstance(given, Path) else given
        paths = tuple(readable(from_pipe(path)) for path in every)
        for path in paths:
            if not exists(file_of(path)) and not is_glob(path):
                raise not_found(path)
        source = cls(paths, rank, capture, tuple(beside))
        if capture and len(paths) == 1 and not holds_several(paths[0]):
            raise QueryError("--capture needs a folder.", hint=f"{paths[0]} is one file.")
        return source

    @property
    def is_job(self) -> bool:
        """Whether it is several traces, of one job; a folder with one trace is that trace."""
        return len(self.chosen(self.captures[0]).paths) > 1

    @property
    def path(self) -> Path:
        """The one path that was given, or the common folder of all files."""
        if len(self.given) == 1 and not is_glob(self.given[0]):
            return self.given[0]
        folders = {file.parent for file in self._files}
        if not any(map(is_remote, folders)):
            folders = {folder.absolute() for folder in folders}
        return Path(commonpath(folders))

    @property
    def name(self) -> str:
        """Name of the job: that of its folder."""
        return self.path.resolve().name

    @property
    def typed(self) -> str:
        """The arguments that name it again, for a shell, as short as they can be."""
        options = [("--rank", self.rank), ("--capture", self.capture)]
        options += [("--beside", url_of(file)) for file in self.beside]
        asked = [
            f"{name} {quote(str(value))}" for name, value in options if value not in (None, "")
        ]
        return " ".join([self._typed_paths, *asked])

    @property
    def _typed_paths(self) -> str:
        """A folder with no other traces, a glob of no other files, or every path; of a pipe, -."""
        paths = [url_of(path) for path in self.given]
        if len(paths) == 1:
            path = self.given[0]
            ends = "/" if is_folder(path) and not is_remote(path) else ""
            return quote(paths[0] + ends) if lasting(path) == path else "-"
        if not any(map(is_remote, self.given)):
            folder = Path(commonpath({path.parent.absolute() for path in self.given}))
            is_all = set(find_traces(folder)) == {path.absolute() for path in self._files}
            if is_all and set(self.found["capture"]) <= {0, 1}:
                is_whole = self.given[0].is_absolute()
                return quote(f"{folder if is_whole else relpath(folder)}/")
            if found := _glob_of(paths):
                return found
        return " ".join(map(quote, paths))

    @cached_property
    def _files(self) -> list[Path]:
        """All trace files, each once."""
        found = [file for path in self.given for file in find_traces(path)]
        return list(dict.fromkeys(found))

    @cached_property
    def found(self) -> pd.DataFrame:
        """The captures of the files, schema `frames.CAPTURES`."""
        return discover(self._files)

    @property
    def captures(self) -> list[CaptureName]:
        """The requested captures: one or all."""
        if self.capture == "all":
            return sorted({int(number) for number in self.found["capture"] if number})
        if self.capture.endswith(TRACE_SUFFIXES):
            return [self._capture_with(Path(self.capture).name)]
        if self.capture in ("", "latest"):
            return ["latest"]
        if self.capture.isascii() and self.capture.isdigit():
            return [int(self.capture)]
        raise QueryError(
            f"unknown capture {self.capture!r}.",
            hint="give its number, all, or list, which prints the numbers.",
        )

    def _capture_with(self, file: str) -> int:
        """The number of the capture that a file is of."""
        names = self.found["path"].map(lambda path: Path(path).name)
        numbers = self.found.loc[(names == file) & (self.found["capture"] > 0), "capture"]
        if numbers.empty:
            meant = did_you_mean(file, names)
            hint = f"{meant}--capture list shows them."
            raise QueryError(f"no trace {file} in {self.path}.", hint=hint)
        return int(numbers.iloc[0])

    @property
    def one_capture(self) -> CaptureName:
        """The requested capture, for commands that take one."""
        captures = self.captures
        if self.capture == "all" and len(captures) != 1:
            raise QueryError("this command takes one capture.", hint="give --capture N.")
        return captures[0]

    def chosen(self, capture: CaptureName = "latest") -> Chosen:
        """The traces of a capture, or that of the requested rank."""
        if capture in self._chosen:
            return self._chosen[capture]
        if len(self._files) == 1 and capture == "latest":
            files = Chosen(self._files, {}, "", is_rest=self._files[0] != self.given[0])
        elif capture == "latest" and (traces := self._one_job):
            files = Chosen(traces, {path: companions(self.found, path) for path in traces}, "")
        else:
            where = self.given[0] if len(self.given) == 1 else "the list of files"
            files = of_capture(self.found, where, capture)
        if self.rank is not None:
            by_rank = self._by_rank(files.paths)
            if self.rank not in by_rank:
                raise RankNotFoundError(self.rank, by_rank)
            files = files._replace(paths=[by_rank[self.rank]], is_rest=False)
        self._chosen[capture] = files
        return files

    @cached_property
    def _chosen(self) -> dict[CaptureName, Chosen]:
        return {}

    @property
    def _one_job(self) -> list[Path]:
        """All traces of a list of files, if they are of different ranks; else none."""
        traces = self.found[self.found["capture"] > 0]
        is_one = len(self.given) > 1 and (traces["rank"] >= 0).all() and traces["rank"].is_unique
        return [*map(Path, traces["path"])] if is_one else []

    def file(self, capture: CaptureName = "latest") -> Path:
        """The file of the only trace, or of the requested rank."""
        first, *others = self.chosen(capture).paths
        if not others:
            return first
        by_rank = self._by_rank([first, *others])
        more = " …" if len(by_rank) > _N_NAMED else ""
        named = ", ".join(str(rank) for rank in list(by_rank)[:_N_NAMED])
        raise TraceError(
            f"{human_count(len(by_rank), 'rank')}, and this command takes one.",
            path=self.path,
            hint=f"give --rank N, one of {named}{more}; or one file, for example "
            f"{next(iter(by_rank.values()))}.",
        )

    def _by_rank(self, paths: Sequence[Path]) -> dict[int, Path]:
        """The file of each rank; files without a rank are numbered in order."""
        ranks = dict(zip(self.found["path"], self.found["rank"].tolist(), strict=True))
        by_rank = {ranks[str(path)]: path for path in paths if ranks[str(path)] >= 0}
        unnamed = [path for path in paths if ranks[str(path)] < 0]
        free = (number for number in range(len(paths) + 1) if number not in by_rank)
        numbered = dict(zip(free, unnamed, strict=False))
        if self.rank in numbered and len(paths) > 1:
            _LOG.warning(
                "%s records no rank; it is taken as rank %s.", numbered[self.rank].name, self.rank
            )
        return dict(sorted({**by_rank, **numbered}.items()))

    def opened(
        self,
        capture: CaptureName = "latest",
        reading: LoadOptions = LoadOptions(),
        window: str = "",
        executor: Executor | None = None,
    ) -> Compiled | Job:
        """The one trace with its graph, or the job of several, whole but for a huge trace."""
        files = self.chosen(capture)
        if len(self.given) > 1 and len(files.paths) > 1 and not files.note:
            n_files = human_count(len(files.paths), "file")
            _LOG.warning("%s are taken as the ranks of one job.", n_files)
        return opened(
            files,
            reading,
            beside=self.beside,
            window=window,
            executor=executor,
            cache=cache_folder(),
        )

    def run(
        self,
        capture: CaptureName = "latest",
        reading: LoadOptions = LoadOptions(),
        window: str = "",
        executor: Executor | None = None,
    ) -> TraceGraph | Job:
        """The graph of the one trace, or the job of several, in a window."""
        found = self.opened(capture, reading, window, executor)
        run = found.graph if isinstance(found, Compiled) else found
        return run.window(window) if window else run

    def one(self, capture: CaptureName, reading: LoadOptions, window: str = "") -> Compiled:
        """The one trace, or that of the requested rank, with its graph."""
        self.file(capture)  # there is one
        found = self.opened(capture, reading, window)
        assert isinstance(found, Compiled)
        return found


def _glob_of(paths: Sequence[str]) -> str:
    """The glob that a shell expands to these paths, in this order; empty if there is none."""
    begin = commonprefix(paths)  # noqa: RUF071  parts of names
    end = commonprefix([path[len(begin) :][::-1] for path in paths])[::-1]  # noqa: RUF071  as above
    matched = glob.glob(f"{glob.escape(begin)}*{glob.escape(end)}")  # noqa: PTH207  with these parts
    if sorted(matched) != list(paths):
        return ""
    return "*".join(quote(part) if part else "" for part in (begin, end))


Run = TypeVar("Run", TraceGraph, "Job")

CACHE_VARIABLE = "HTAGRAPH_GRAPH_CACHE"
"""Environment variable: the folder that keeps traces and their graphs."""


@contextmanager
def executor_of(workers: int, dask: str = "") -> Iterator[Executor | None]:
    """Executor for `--workers` or `--dask`; None for the default."""
    if dask:
        try:
            from distributed import Client  # noqa: PLC0415  deferred: an extra
        except ImportError as exc:
            raise MissingEventsError(
                "--dask needs distributed.",
                missing="distributed",
                hint="pip install 'htagraph[dask]'.",
            ) from exc
        try:
            client = Client(dask)  # type: ignore[no-untyped-call]
        except (OSError, ValueError, ImportError) as exc:
            raise QueryError(
                f"--dask {dask}: {exc}.",
                hint="`dask scheduler` starts one and prints its address; or use --workers.",
            ) from exc
        with client:
            yield client.get_executor()  # type: ignore[no-untyped-call]
    elif workers > 0:
        from htagraph.job.executors import IsolatedProcesses  # noqa: PLC0415 - only for jobs

        with IsolatedProcesses(workers) as pool:
            try:
                yield pool
            except BaseException:
                pool.end()  # or Ctrl-C would wait for the work under way
                raise
    else:
        yield None


def print_left_out(left_out: Sequence[str], console: Console) -> None:
    """Print what a default window leaves out, if anything."""
    if left_out:
        console.print(left_out_in_words(left_out), style="dim")


def windowed(run: Run, window: str) -> Run:
    """Part of a run that `--window` names; its default window for an empty name."""
    return run.window(window) if window else run


def cache_folder() -> Path | None:
    """Folder that keeps graphs; None by default."""
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder).expanduser() if folder else None


def window_in_words(window: str, *, of_job: bool) -> str:
    """What `--window` names, as the subject of a sentence."""
    thing = "job" if of_job else "run"
    return {"": f"this {thing}", "trace": f"the whole {thing}"}.get(window, window)


def loaded_run(
    given: Sequence[Path] | Path,
    window: str = "",
    *,
    rank: int | None = None,
    executor: Executor | None = None,
    infer: bool = True,
) -> RunProfile:
    """Profile of a stored baseline, a job, or a trace."""
    # Deferred: only `check` and `diff` compare runs.
    from htagraph.comparison.job_profiling import job_profile  # noqa: PLC0415
    from htagraph.comparison.profiling import graph_profile  # noqa: PLC0415
    from htagraph.comparison.run_profile import RunProfile, is_baseline  # noqa: PLC0415

    paths = [path_of(path) for path in ([given] if isinstance(given, Path) else given)]
    if len(paths) == 1 and is_baseline(paths[0]):
        if window or rank is not None:
            raise QueryError(
                f"{paths[0]} is a stored baseline: its window and ranks are fixed.",
                hint="store another: htagraph report has the options --window, --rank and --json.",
            )
        return RunProfile.read(paths[0])
    # Stacks as in a report, which stores baselines: they name the code of host gaps.
    source, reading = Source.of(paths, rank), LoadOptions(stacks=None, infer=infer)
    found = source.opened(reading=reading, executor=executor)
    if isinstance(found, Compiled):
        begin_stage("Finding the critical path")
        graph, name = windowed(found.graph, window), name_of(source.file())
        return graph_profile(graph, name=name, world_size=found.trace.world_size)
    begin_stage("Finding the path across ranks")
    return job_profile(windowed(found, window), name=source.name)
