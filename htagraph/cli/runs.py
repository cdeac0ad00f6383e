"""Runs that a command compares: traces, folders of ranks, and stored baselines."""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path

from htagraph.cli.console import Waiting
from htagraph.cli.options import windowed
from htagraph.cli.ranks import loaded_job, windowed_job
from htagraph.comparison.job_profiling import job_profile
from htagraph.comparison.profiling import graph_profile
from htagraph.comparison.run_profile import RunProfile, is_baseline
from htagraph.errors import QueryError

__all__ = ["loaded_run"]


def loaded_run(
    waiting: Waiting,
    path: Path,
    window: str = "",
    *,
    executor: Executor | None = None,
    infer: bool = True,
) -> RunProfile:
    """The profile of what is at a path: of a stored baseline, a job in a folder, or a trace.

    Parameters
    ----------
    waiting : Waiting
    path : Path
    window : str
        As `--window` names it.
    executor : Executor, optional
        Of the ranks of a job.
    infer : bool, default=True

    Returns
    -------
    RunProfile
    """
    if is_baseline(path):
        if window:
            raise QueryError(
                f"{path} is a stored baseline, of the window that it was made with.",
                hint="store another with htagraph report --window … --json FILE.",
            )
        return RunProfile.read(path)
    if path.is_dir():
        job = windowed_job(loaded_job(waiting, path, executor, infer=infer), window)
        waiting.stage("Finding the path across ranks")
        return job_profile(job, name=path.resolve().name)
    trace = waiting.load(path)
    waiting.stage("Finding the critical path")
    graph = windowed(trace.compile(infer=infer), window)
    return graph_profile(graph, name=path.name, world_size=trace.world_size)
