"""Reading the ranks of a job for a command."""

from __future__ import annotations

from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from htagraph.cli.console import Waiting
from htagraph.job import Job, load_job

__all__ = ["executor_of", "loaded_job"]


def executor_of(workers: int) -> Executor | None:
    """Return a pool of so many processes, None for the default."""
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn")) if workers > 0 else None


def loaded_job(waiting: Waiting, folder: Path, *, workers: int = 0) -> Job:
    """Return the job in a folder; ranks that cannot be used are left out and reported."""

    def advance(done: int, total: int) -> None:
        waiting.stage(f"Reading rank {min(done + 1, total)} of {total}")

    return load_job(folder, executor=executor_of(workers), on_error="skip", progress=advance)
