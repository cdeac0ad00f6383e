"""Runs that a command compares: traces, jobs, and stored baselines."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from htagraph.cli.console import Waiting
from htagraph.cli.options import windowed
from htagraph.cli.ranks import compiled_trace, loaded_job, windowed_job
from htagraph.cli.sources import Source
from htagraph.comparison.job_profiling import job_profile
from htagraph.comparison.profiling import graph_profile
from htagraph.comparison.run_profile import RunProfile, is_baseline
from htagraph.errors import QueryError

__all__ = ["loaded_run"]


def loaded_run(
    waiting: Waiting,
    given: Sequence[Path] | Path,
    window: str = "",
    *,
    rank: int | None = None,
    executor: Executor | None = None,
    infer: bool = True,
) -> RunProfile:
    """The profile of what was given: a stored baseline, a job, or a trace.

    Parameters
    ----------
    given : Path or sequence of Path
        Arguments of a command.
    window : str
        As `--window` names it.
    rank : int, optional
        One rank of a job by itself.
    executor : Executor, optional
        Of the ranks of a job.
    """
    paths = [given] if isinstance(given, Path) else list(given)
    if len(paths) == 1 and is_baseline(paths[0]):
        if window or rank is not None:
            raise QueryError(
                f"{paths[0]} is a stored baseline, of the window and ranks that it was made with.",
                hint="store another with htagraph report --window … --rank … --json FILE.",
            )
        return RunProfile.read(paths[0])
    source = Source.of(paths, rank)
    if source.has_several:
        job = windowed_job(loaded_job(waiting, source, executor, infer=infer), window)
        waiting.stage("Finding the path across ranks")
        return job_profile(job, name=source.name)
    file = source.file()
    trace, graph = compiled_trace(waiting, source, infer=infer)
    waiting.stage("Finding the critical path")
    return graph_profile(windowed(graph, window), name=file.name, world_size=trace.world_size)
