"""Reading the ranks of a job for a command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from htagraph.cli.console import Waiting, output
from htagraph.cli.sources import Source
from htagraph.cli.tables import Format, print_frame
from htagraph.compiled import Compiled
from htagraph.errors import MissingEventsError, QueryError
from htagraph.readers.captures import CaptureName, files_in_words

if TYPE_CHECKING:
    from htagraph.job.job import Job

__all__ = ["compiled_trace", "executor_of", "loaded_job", "print_captures", "windowed_job"]

CACHE_VARIABLE = "HTAGRAPH_GRAPH_CACHE"
"""Of the environment: the folder in which traces and their graphs are kept."""


@contextmanager
def executor_of(workers: int, dask: str = "") -> Iterator[Executor | None]:
    """Executor of a Dask cluster, so many processes, or None for the default."""
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
                hint="`dask scheduler` starts one and says its address; or ask for --workers.",
            ) from exc
        with client:
            yield client.get_executor()  # type: ignore[no-untyped-call]
    elif workers > 0:
        from htagraph.job.executors import IsolatedProcesses  # noqa: PLC0415 - only for jobs

        with IsolatedProcesses(workers) as pool:
            yield pool
    else:
        yield None


def windowed_job(job: Job, window: str) -> Job:
    """Job in the window that `--window` names on every rank; the whole job for an empty name."""
    return job.window(window) if window else job


def print_captures(found: pd.DataFrame, form: Format = Format.TABLE) -> None:
    """Print captures: one row per file."""
    if form is Format.TABLE:
        output().print(files_in_words(found), markup=False, soft_wrap=True)
    else:
        print_frame(output(), found, form)


def compiled_trace(
    waiting: Waiting,
    source: Source,
    capture: CaptureName = "latest",
    *,
    stacks: bool = False,
    infer: bool = True,
) -> Compiled:
    """The one trace of a source, with what is beside it, and its graph."""
    file = source.file(capture)
    return waiting.compiled(
        file, stacks=stacks, infer=infer, beside=source.beside_of(file), folder=_cache()
    )


def _cache() -> Path | None:
    """Folder that keeps what is compiled; None where nobody asked for that."""
    asked = os.environ.get(CACHE_VARIABLE)
    return Path(asked).expanduser() if asked else None


def loaded_job(
    waiting: Waiting,
    source: Source,
    executor: Executor | None = None,
    *,
    stacks: bool = False,
    infer: bool = True,
    capture: CaptureName = "latest",
) -> Job:
    """Job of a source; ranks that cannot be used are left out and reported."""
    from htagraph.job.loading import load_job  # noqa: PLC0415 - only for jobs

    waiting.stage("Reading")
    return load_job(
        source.ranks(capture),
        capture=capture,
        executor=executor,
        on_error="skip",
        stacks=stacks,
        infer=infer,
        cache=_cache(),
        beside=source.beside,
    )
