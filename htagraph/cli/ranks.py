"""Reading the ranks of a job for a command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from htagraph.cli.console import Waiting, output
from htagraph.cli.options import first_of, times_of
from htagraph.cli.tables import Format, print_frame
from htagraph.errors import MissingEventsError, QueryError
from htagraph.job.job import Job
from htagraph.job.loading import load_job
from htagraph.lookup.find_window import WHOLE
from htagraph.model.symbols import compile_pattern
from htagraph.readers.captures import CaptureName, discover, files_in_words
from htagraph.readers.discover import TRACE_SUFFIXES

__all__ = ["asked_captures", "executor_of", "loaded_job", "print_captures", "windowed_job"]


@contextmanager
def executor_of(workers: int, dask: str = "") -> Iterator[Executor | None]:
    """Executor of a Dask cluster, a pool of so many processes, or None for the default."""
    if dask:
        try:
            from distributed import Client  # noqa: PLC0415  deferred: an extra
        except ImportError as exc:
            raise MissingEventsError(
                "--dask needs distributed.",
                missing="distributed",
                hint="pip install 'htagraph[dask]'.",
            ) from exc
        with Client(dask) as client:  # type: ignore[no-untyped-call]
            yield client.get_executor()
    elif workers > 0:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            yield pool
    else:
        yield None


def windowed_job(job: Job, window: str) -> Job:
    """Job in the window that `--window` names on every rank; the whole job for an empty name."""
    if times_of(window) is not None:
        raise QueryError(
            "every rank has its own clock: times of one are not those of another.",
            hint="name a step, or report on one rank.",
        )
    if window in ("", WHOLE):
        return job
    fits = compile_pattern(window)
    for rank, summary in job.summaries.items():
        if steps := [step for step in summary.steps if fits(step) and window not in summary.steps]:
            first_of(window, len(steps), f"{steps[0]} of rank {rank}, and so on every rank")
            break
    return job.window(window)


def print_captures(folder: Path, form: Format = Format.TABLE) -> None:
    """Print the captures in a folder: one row per file."""
    found = discover(folder)
    if form is Format.TABLE:
        output().print(files_in_words(found), markup=False, soft_wrap=True)
    else:
        print_frame(output(), found, form)


def asked_captures(path: Path, capture: str) -> list[CaptureName]:
    """The captures that `--capture` asks for: one, or all of a folder.

    Raises
    ------
    QueryError
        If it is none, or asked of a file.
    """
    if capture and not path.is_dir():
        raise QueryError(
            "--capture chooses among the traces of a folder.", hint=f"{path} is no folder."
        )
    if capture == "all":
        return sorted({int(number) for number in discover(path)["capture"] if number})
    if capture.endswith(TRACE_SUFFIXES):
        return [_capture_with(path, capture)]
    if not capture or capture == "latest":
        return ["latest"]
    if capture.isascii() and capture.isdigit():
        return [int(capture)]
    raise QueryError(
        f"{capture!r} is no capture.", hint="give its number, all, or list, which numbers them."
    )


def _capture_with(folder: Path, file: str) -> int:
    """The number of the capture that a file is of."""
    found = discover(folder)
    names = found["path"].map(lambda path: Path(path).name)
    numbers = found.loc[(names == Path(file).name) & (found["capture"] > 0), "capture"]
    if numbers.empty:
        raise QueryError(f"{folder} holds no trace {file}.", hint="--capture list shows them.")
    return int(numbers.iloc[0])


def loaded_job(
    waiting: Waiting,
    where: Path | Sequence[Path],
    executor: Executor | None = None,
    *,
    stacks: bool = False,
    infer: bool = True,
    capture: CaptureName = "latest",
) -> Job:
    """Job in a folder, or of some files; ranks that cannot be used are left out and reported."""

    def advance(done: int, total: int) -> None:
        waiting.stage(f"Reading rank {min(done + 1, total)} of {total}")

    return load_job(
        where,
        capture=capture,
        executor=executor,
        on_error="skip",
        stacks=stacks,
        infer=infer,
        progress=advance,
    )
