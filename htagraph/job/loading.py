"""`load_job`: from the files of a folder to a `Job`; whatever is left out is reported."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from htagraph.compiler.classes import ClassRule
from htagraph.errors import IncompleteTraceWarning, QueryError, RankFailedError
from htagraph.job.damage import damage_of_ranks, job_damage_in_words
from htagraph.job.executors import SMALL_BYTES, Workers, failure_in_words
from htagraph.job.job import Job
from htagraph.job.ranks import OnError, RankGraphs, RankSummary, listed, prepare_rank
from htagraph.job.timeline import Timeline
from htagraph.job.windows import MOST_COLLECTIVES, KeptSteps, LastSteps, place_of
from htagraph.model.progress import Listener, begin_stage, listening
from htagraph.model.settings import data_loading_names
from htagraph.model.units import human_count
from htagraph.readers.captures import CaptureName, Chosen, chosen
from htagraph.readers.storage import file_of, n_bytes_of, name_of, rank_in_name, url_of
from htagraph.run.compiled import LoadOptions, kept_file
from htagraph.writers.output_file import OwnFolder, new_folder

_Content = tuple[int, int, int]
"""Of a trace: number of events, start, and a hash; equal for equal events, to the nanosecond."""


def load_job(
    where: str | Path | Iterable[str | Path],
    *,
    capture: CaptureName = "latest",
    executor: Executor | None = None,
    on_error: OnError = "raise",
    class_rules: Iterable[ClassRule] = (),
    stacks: bool | None = False,
    infer: bool = True,
    data_loading: Iterable[str] | None = None,
    cache: str | Path | None = None,
    beside: Iterable[str | Path] = (),
    most_collectives: int | None = MOST_COLLECTIVES,
    progress: Listener | None = None,
) -> Job:
    """Load the job whose ranks are in a folder, match a glob, or are listed.

    A folder may hold more than one capture, as `tensorboard_trace_handler` writes them: `discover`
    lists them, and one is loaded. A list of files is loaded as it is.

    Parameters
    ----------
    where : str, Path, or iterable of them
        A folder (searched with its subfolders), a glob, or files; of a store, by URL.
    capture : int or "latest", default="latest"
        Which capture, by its number in `discover`; by default the latest one with all ranks, which
        a warning names.
    executor : concurrent.futures.Executor, optional
        Runs the work on ranks, for example Dask's ``client.get_executor()``. By default processes
        of this machine; none for a small job.
    on_error : {"raise", "skip"}
        Whether a rank that cannot be used ends the work, or is left out and listed in
        `Job.failures`.
    class_rules : iterable of ClassRule, optional
    stacks : bool, optional
        Read Python stacks, too: they name the code of host gaps, and can be most of a file. None:
        of ranks whose file is small, or whose path such code is the largest part of.
    infer : bool, default=True
        Whether waits without a record are inferred, as in `Trace.compile`.
    data_loading : iterable of str, optional
        More names of host ranges that load data, as in `Trace.compile`.
    cache : str or Path, optional
        Folder that keeps compiled graphs, as for `load_graph`; a temporary one by default.
        Workers on other machines use it if they see it, and compile again if not.
    beside : iterable of str or Path, optional
        Files of other instruments about every rank, such as a log of ``nvidia-smi``. Execution
        traces in the folder are added to the ranks of their processes.
    most_collectives : int, optional
        Beyond this number on all ranks together, only the last steps are kept (one step at least).
        Each takes about 1.1 kB in this process. None keeps all.
    progress : callable, optional
        Called with a `Progress` now and then; ``print`` shows it.

    Returns
    -------
    Job

    Raises
    ------
    TraceFormatError
        If there are no traces.
    RankFailedError
        If a rank cannot be used and `on_error` is ``"raise"``.
    CaptureNotChosenError
        If the folder holds traces of several jobs or unrelated runs.
    QueryError
        If two files are of one rank and `on_error` is ``"raise"``.
    OutputError
        If there is no folder for compiled graphs.
    """
    reading = LoadOptions(tuple(class_rules), stacks, infer, data_loading_names(data_loading))
    return loaded(
        chosen(where, capture).said(),
        reading,
        beside=tuple(map(Path, beside)),
        executor=executor,
        on_error=on_error,
        cache=cache,
        most_collectives=most_collectives,
        progress=progress,
    )


def loaded(
    files: Chosen,
    reading: LoadOptions,
    *,
    beside: Sequence[Path] = (),
    executor: Executor | None,
    on_error: OnError,
    cache: str | Path | None,
    most_collectives: int | None = MOST_COLLECTIVES,
    progress: Listener | None = None,
) -> Job:
    """The job of some traces; the rest is as for `load_job`."""
    paths = files.paths
    keeper = OwnFolder() if cache is None else None
    folder = Path(str(cache)) if keeper is None else keeper.path
    new_folder(folder, hint="choose another cache.")
    share = None if most_collectives is None else max(most_collectives // len(paths), 1)
    tasks = {}
    for path in paths:
        near = (*files.beside.get(path, ()), *beside)
        graph_file = kept_file(path, near, folder, reading)
        tasks[path] = (prepare_rank, (path, near, graph_file, reading, share))
    workers = Workers(executor, n_tasks=len(tasks), n_bytes=_n_bytes(paths))
    with listening(progress):
        begin_stage("Reading")
        results = workers.run(tasks, named=name_of)
    failed: dict[str, str] = {}
    summaries: dict[int, RankSummary] = {}
    by_content: dict[_Content, RankSummary] = {}
    for number, (path, result) in enumerate(results.items()):
        if isinstance(result, RankSummary):
            _add(summaries, by_content, result, failed, on_error)
            continue
        if on_error == "raise":
            rank = rank_in_name(path)
            raise RankFailedError(
                failure_in_words(result),
                rank=number if rank is None else rank,
                hint='load with on_error="skip" to continue without it.',
            ) from result
        failed[url_of(path)] = failure_in_words(result)
    _warn(failed, summaries, n_files=len(paths))
    ordered, kept = _of_common_steps({rank: summaries[rank] for rank in sorted(summaries)})
    if kept is not None:
        warnings.warn(str(kept), IncompleteTraceWarning, stacklevel=3)
    unkept = [rank for rank, summary in ordered.items() if not summary.graph.path.is_file()]
    if unkept and executor is None:  # else it may be seen there
        warnings.warn(
            f"no graph of rank {listed(unkept)} can be saved in {folder}, which may be "
            "full: each question reads the trace again.",
            IncompleteTraceWarning,
            stacklevel=3,
        )
    graphs = RankGraphs(ordered, workers, reading, on_error, keeper, kept)
    return Job(Timeline(graphs), failed, capture_note=files.note)


def _of_common_steps(
    found: dict[int, RankSummary],
) -> tuple[dict[int, RankSummary], KeptSteps | None]:
    """The ranks in the steps whose collectives all kept; None if no rank left any out."""
    n_all = sum(len(one.collectives) + one.n_left_out for one in found.values())
    n_steps = max(len(one.steps) + one.n_steps_left_out for one in found.values())
    cut = [one for one in found.values() if one.n_left_out]
    if not cut:
        return found, None
    starts = min((one.starts for one in cut), key=len)
    first = starts[0].name
    window = LastSteps(first, -sum(one.name == first for one in starts))
    place = {rank: place_of(window, one.starts) for rank, one in found.items()}
    kept = {
        rank: one.since(place[rank]) if place[rank] >= 0 else one for rank, one in found.items()
    }
    n_kept = sum(len(one.collectives) for one in kept.values())
    most_steps = max(len(one.steps) for one in kept.values())
    return kept, KeptSteps(window, most_steps, n_steps, n_kept, n_all)


def _n_bytes(paths: Iterable[Path]) -> int:
    """Size of a job's files, up to what matters: each file of a store costs a request."""
    n_bytes = 0
    for file in {file_of(path) for path in paths}:
        n_bytes += n_bytes_of(file)
        if n_bytes >= SMALL_BYTES:
            break
    return n_bytes


def _warn(failed: Mapping[str, str], summaries: Mapping[int, RankSummary], *, n_files: int) -> None:
    """Warn of files that failed and of damaged ranks; raise if no rank is left."""
    if not summaries:
        causes = "; ".join(dict.fromkeys(failed.values()))
        raise QueryError("no rank could be loaded.", hint=causes or "check the path.")
    if failed:
        warnings.warn(
            f"{human_count(len(failed), 'file')} of {n_files:,} could not be used: "
            "see job.failures.",
            IncompleteTraceWarning,
            stacklevel=4,
        )
    for said in job_damage_in_words(damage_of_ranks(summaries)):
        warnings.warn(said, IncompleteTraceWarning, stacklevel=4)


def _add(
    summaries: dict[int, RankSummary],
    by_content: dict[_Content, RankSummary],
    found: RankSummary,
    failed: dict[str, str],
    on_error: OnError,
) -> None:
    """Add a rank.

    A second file of one rank is an error, unless files do not name their ranks, and so is one trace
    under two ranks: each would wait for itself.
    """
    content = found.n_events, found.first_ns, found.content
    same = by_content.get(content) if found.n_events else None
    if same and (same.rank != found.rank or found.rank_source == "default"):
        message = f"is the same trace as {url_of(same.path)} (rank {same.rank})."
        if on_error == "raise":
            raise QueryError(
                f"{url_of(found.path)} (rank {found.rank}) {message}",
                hint="load one of them, and the trace of the other rank.",
            )
        failed[url_of(found.path)] = message
        return
    if found.rank not in summaries:
        summaries[found.rank] = by_content[content] = found
        return
    first = summaries[found.rank]
    if found.rank_source == "default":
        free = next(number for number in range(len(summaries) + 1) if number not in summaries)
        warnings.warn(
            f"{found.path.name} does not name its rank; it is loaded as rank {free}.",
            IncompleteTraceWarning,
            stacklevel=4,
        )
        added = replace(found, rank=free, rank_source="order of files")
        summaries[free] = by_content[content] = added
        return
    message = f"{url_of(found.path)} and {url_of(first.path)} are both of rank {found.rank}."
    if on_error == "raise":
        raise QueryError(message, hint="load one of them, or the ranks of one capture only.")
    failed[url_of(found.path)] = message
