"""Runs that a command asks about: one trace, the ranks of a job, or a stored baseline."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from htagraph.cli.sources import Source
from htagraph.compiled import Compiled, LoadOptions, compiled
from htagraph.errors import MissingEventsError, QueryError
from htagraph.explain.default_window import left_out_in_words
from htagraph.graph import TraceGraph
from htagraph.model.progress import begin_stage
from htagraph.model.units import human_size
from htagraph.readers.captures import CaptureName
from htagraph.readers.memory_need import exceeds_memory, needed_bytes
from htagraph.readers.rank_paths import name_of
from htagraph.readers.storage import path_of
from htagraph.trace import is_kineto, load

if TYPE_CHECKING:
    from rich.console import Console

    from htagraph.comparison.run_profile import RunProfile
    from htagraph.job.job import Job

_LOG = logging.getLogger("htagraph")

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
        console.print(left_out_in_words(left_out), style="dim", markup=False)


def windowed(run: Run, window: str) -> Run:
    """Part of a run that `--window` names; its default window for an empty name."""
    return run.window(window) if window else run


def loaded_trace(
    source: Source,
    capture: CaptureName = "latest",
    reading: LoadOptions = LoadOptions(),
    window: str = "",
) -> Compiled:
    """The one trace of a source with its companion files, and its graph.

    Of a trace larger than memory, the window and as much before and after it.
    """
    file = source.file(capture)
    beside = source.beside_of(file)
    if not window or not is_too_large(file):
        return compiled(file, beside, reading, folder=cache_folder())
    _LOG.warning(
        "%s needs about %s of memory: only %s is read, and as much before and after it. %s",
        file.name,
        human_size(needed_bytes(file)),
        window,
        "" if cache_folder() else f"{CACHE_VARIABLE}=FOLDER keeps what is read.",
    )
    stacks = bool(reading.stacks)
    part = load(file, stacks=stacks, window=window, beside=beside, cache=cache_folder())
    graph = reading.compiled(part)
    return Compiled(part, graph)


def is_too_large(file: Path) -> bool:
    """Whether a trace needs more memory than there is, and can be read in parts."""
    return exceeds_memory(file) and is_kineto(file)


def loaded_job(
    source: Source,
    capture: CaptureName = "latest",
    reading: LoadOptions = LoadOptions(),
    executor: Executor | None = None,
) -> Job:
    """Job of a source; ranks that cannot be used are left out and reported."""
    from htagraph.job.loading import load_job  # noqa: PLC0415 - only for jobs

    return load_job(
        source.ranks(capture),
        capture=capture,
        executor=executor,
        on_error="skip",
        stacks=reading.stacks,
        infer=reading.infer,
        cache=cache_folder(),
        beside=source.beside,
    )


def opened_run(
    source: Source,
    capture: CaptureName,
    reading: LoadOptions,
    window: str,
    executor: Executor | None = None,
) -> TraceGraph | Job:
    """The job of a source with several ranks, else the graph of its trace, in a window."""
    if source.has_several:
        return windowed(loaded_job(source, capture, reading, executor), window)
    return windowed(loaded_trace(source, capture, reading, window).graph, window)


def cache_folder() -> Path | None:
    """Folder that keeps graphs; None by default."""
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder).expanduser() if folder else None


def window_in_words(window: str, *, of_job: bool) -> str:
    """What `--window` names, as the subject of a sentence.

    Examples
    --------
    >>> [window_in_words(name, of_job=False) for name in ("", "trace", "ProfilerStep#6")]
    ['this run', 'the whole run', 'ProfilerStep#6']
    """
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
    if source.has_several:
        job = windowed(loaded_job(source, reading=reading, executor=executor), window)
        begin_stage("Finding the path across ranks")
        return job_profile(job, name=source.name)
    file = source.file()
    trace, graph = loaded_trace(source, reading=reading)
    begin_stage("Finding the critical path")
    return graph_profile(windowed(graph, window), name=name_of(file), world_size=trace.world_size)
