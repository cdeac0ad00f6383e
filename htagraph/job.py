"""Job: the ranks of one job, asked together; and `load_job`, which reads them.

Work on a rank is one pure function of its file, run by any `concurrent.futures.Executor`. Compiled graphs stay in files of
a cache folder; only small tables travel. What grows in the parent are collectives, not events.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.compiler.classes import ClassRule
from htagraph.errors import (
    ClockSkewWarning,
    HTAGraphError,
    IncompleteTraceWarning,
    QueryError,
    RankFailedError,
    RankNotFoundError,
)
from htagraph.graph import TraceGraph
from htagraph.job_path import JobPath
from htagraph.model.frames import FAILURES
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window
from htagraph.queries.collectives import first_anchor
from htagraph.queries.critical_path import critical_paths, last_node
from htagraph.queries.legs import Leg, RankEnds, find_legs
from htagraph.queries.meetings import Clocks, fit_clocks, match_collectives, measure_meetings
from htagraph.queries.stragglers import delay_windows, late_ranks, pipeline_bubbles, summarize_stragglers
from htagraph.questions import Question, Questions
from htagraph.readers.discover import find_traces
from htagraph.trace import load

__all__ = ["Job", "RankSummary", "load_job"]

OnError = Literal["raise", "skip"]
At = str | tuple[int, int] | None

_SMALL_BYTES = 64 << 20


@dataclass(frozen=True)
class RankSummary:
    """What the parent keeps of a rank.

    Parameters
    ----------
    rank : int
    rank_source : str
        Where the rank was found.
    path : Path
        The trace.
    graph : Path
        The compiled graph.
    world_size : int, optional
    n_events, n_edges : int
    collectives : DataFrame, schema `frames.COLLECTIVES`
    ends : RankEnds
    steps : tuple of str
    """

    rank: int
    rank_source: str
    path: Path
    graph: Path
    world_size: int | None
    n_events: int
    n_edges: int
    collectives: pd.DataFrame
    ends: RankEnds
    steps: tuple[str, ...]


def _ends(graph: TraceGraph) -> RankEnds:
    """Return where a window's path on one rank begins and ends."""
    dag, at = graph.dag, graph.at
    table = graph.collectives() if at == dag.span else TraceGraph(dag, dag.span).collectives()
    node = at.anchor if at.anchor >= 0 else last_node(dag, at.end_ns)
    if node < 0:
        return RankEnds(at.start_ns, at.end_ns, -1, -1)
    anchor = int(first_anchor(dag, table["event"].to_numpy(np.int64))[node])
    rows = np.flatnonzero(table["event"].to_numpy() == anchor >> 1) if anchor >= 0 else []
    return RankEnds(at.start_ns, at.end_ns, node, int(rows[0]) if len(rows) else -1)


def _prepare(path: Path, graph_file: Path, class_rules: tuple[ClassRule, ...]) -> RankSummary:
    """Load, compile and save one rank; return what the parent needs to know."""
    trace = load(path)
    graph = trace.compile(class_rules=class_rules)
    graph.save(graph_file)
    return RankSummary(
        rank=trace.rank,
        rank_source=trace.rank_source,
        path=path,
        graph=graph_file,
        world_size=trace.file.world_size if trace.file else None,
        n_events=len(graph.dag.events),
        n_edges=len(graph.dag.edges),
        collectives=graph.collectives(),
        ends=_ends(graph),
        steps=tuple(graph.steps["name"]),
    )


def _open(summary: RankSummary, class_rules: tuple[ClassRule, ...], at: At) -> TraceGraph:
    """Return the graph of a rank: from the cache, else compiled again (on a machine that does not share it)."""
    if summary.graph.exists():
        graph = TraceGraph.open(summary.graph)
    else:
        graph = load(summary.path).compile(class_rules=class_rules)
    return graph if at is None else graph.window(at)


def _run(summary: RankSummary, class_rules: tuple[ClassRule, ...], at: At, work: Callable[[TraceGraph], Any]) -> Any:  # noqa: ANN401  whatever the work returns
    """Return what some work gives on one rank."""
    return work(_open(summary, class_rules, at))


@dataclass(frozen=True)
class _Asked:
    """A question with its options, as a function of a graph that can travel."""

    question: Question
    options: Mapping[str, Any]

    def __call__(self, graph: TraceGraph) -> pd.DataFrame:
        return self.question(graph.dag, graph.at, **self.options)


@dataclass(frozen=True)
class _Expanded:
    """The segments of some legs of one rank, with the number of the leg."""

    legs: tuple[tuple[int, Leg], ...]

    def __call__(self, graph: TraceGraph) -> pd.DataFrame:
        windows = [Window(leg.local_start_ns, leg.local_end_ns, "leg", anchor=leg.end_node) for _, leg in self.legs]
        segments = critical_paths(graph.dag, windows)
        lengths = np.array([window.dur_ns for window in windows])
        ends = np.cumsum(segments["dur_ns"].to_numpy())
        number = (
            np.searchsorted(np.cumsum(lengths), ends, side="left") if len(segments) else np.empty(0, dtype=np.int64)
        )
        return segments.assign(leg=np.array([leg for leg, _ in self.legs], dtype=np.int64)[number])


@dataclass(frozen=True, repr=False)
class Job(Questions):
    """The ranks of one job; made by `load_job`.

    Every question of `TraceGraph` is answered for all ranks, with a column ``rank``.

    Parameters
    ----------
    summaries : mapping of int to RankSummary
        By rank.
    executor : Executor, optional
        Runs the work on ranks; by default processes of this machine, or none for a small job.
    class_rules : tuple of ClassRule
    on_error : {"raise", "skip"}
    failed : mapping of Path to str
        Files that could not be used, and why.
    at : str or (int, int), optional
        Window of every rank.
    cache : object
        Keeps the folder of compiled graphs as long as the job lives.
    """

    summaries: Mapping[int, RankSummary]
    executor: Executor | None = None
    class_rules: tuple[ClassRule, ...] = ()
    on_error: OnError = "raise"
    failed: dict[str, str] = field(default_factory=dict)
    at: At = None
    cache: object = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks, ascending."""
        return tuple(self.summaries)

    @property
    def failures(self) -> pd.DataFrame:
        """Files and ranks that could not be used, schema `frames.FAILURES`."""
        return FAILURES.frame({"path": list(self.failed), "error": list(self.failed.values())})

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """Ranks that the job had, by its world size, and that are not here."""
        sizes = [summary.world_size for summary in self.summaries.values() if summary.world_size]
        return tuple(rank for rank in range(max(sizes, default=0)) if rank not in self.summaries)

    def __getitem__(self, rank: int) -> TraceGraph:
        """Return the graph of a rank."""
        if rank not in self.summaries:
            raise RankNotFoundError(rank, self.ranks)
        return _open(self.summaries[rank], self.class_rules, self.at)

    def __len__(self) -> int:
        """Return the number of ranks."""
        return len(self.summaries)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ranks."""
        return iter(self.summaries)

    def window(self, at: str | tuple[int, int]) -> Job:
        """Return the job in a window of every rank: a step or other host range by name, or times.

        Raises
        ------
        WindowNotFoundError
            When it is asked: if a rank has no such range.
        """
        return Job(self.summaries, self.executor, self.class_rules, self.on_error, self.failed, at, self.cache)

    def _on_ranks(self, work: Mapping[int, Callable[[TraceGraph], Any]]) -> dict[int, Any]:
        """Return what some work gives on each of some ranks."""
        tasks = {
            rank: (_run, (self.summaries[rank], self.class_rules, self.at, function)) for rank, function in work.items()
        }
        n_bytes = sum(self.summaries[rank].path.stat().st_size for rank in work if self.summaries[rank].path.exists())
        results = _run_all(tasks, self.executor, n_bytes)
        return {rank: result for rank, result in results.items() if self._kept(rank, result)}

    def _kept(self, rank: int, result: object) -> bool:
        """Return whether a rank answered; note or raise its error if not."""
        if not isinstance(result, BaseException):
            return True
        if self.on_error == "raise":
            raise RankFailedError(
                str(result), rank=rank, hint='load with on_error="skip" to go on without.'
            ) from result
        self.failed[str(self.summaries[rank].path)] = str(result)
        warnings.warn(f"rank {rank} is left out: {result}", IncompleteTraceWarning, stacklevel=4)
        return False

    def map(self, work: Callable[[TraceGraph], Any]) -> dict[int, Any]:
        """Return what a function gives on the graph of each rank.

        Parameters
        ----------
        work : callable
            A function of a `TraceGraph`. It has to travel to other processes: a function of a module, not a lambda, unless
            the job runs in this process.

        Returns
        -------
        dict of int to object
            By rank.

        Raises
        ------
        RankFailedError
            If it fails on a rank, unless the job skips errors.
        """
        return self._on_ranks(dict.fromkeys(self.summaries, work))

    def _ask(self, question: Question, **options: Any) -> pd.DataFrame:  # noqa: ANN401  options of any question
        answers = self.map(_Asked(question, options))
        frames = [frame.assign(rank=np.int64(rank)) for rank, frame in answers.items()]
        if not frames:
            raise QueryError("no rank of the job could answer.", hint="see job.failures.")
        joined = pd.concat(frames, ignore_index=True)
        return joined[["rank", *(name for name in joined.columns if name != "rank")]]

    @cached_property
    def _matched(self) -> pd.DataFrame:
        return match_collectives({rank: summary.collectives for rank, summary in self.summaries.items()})

    @cached_property
    def _clocks(self) -> Clocks:
        fitted = fit_clocks(self._matched, list(self.summaries))
        impossible = [rank for rank, fit in fitted.fits.items() if fit.width_ns < 0]
        if impossible:
            warnings.warn(
                f"no clock brings rank{'s' if len(impossible) > 1 else ''} {', '.join(map(str, impossible))} together "
                "with the others: they may belong to another job, group or step. Waits across them are not used.",
                ClockSkewWarning,
                stacklevel=3,
            )
        return fitted

    @property
    def clocks(self) -> pd.DataFrame:
        """The clock of each rank against the first, and how sure it is; schema `frames.CLOCKS`."""
        return self._clocks.frame()

    @cached_property
    def meetings(self) -> pd.DataFrame:
        """The collectives across ranks in common time: who waited for whom; schema `frames.MEETINGS`.

        Ranks that no clock brings together with the others are left out.
        """
        fits = self._clocks.fits
        usable = self._matched[[fits[rank].width_ns >= 0 for rank in self._matched["rank"]]]
        size = usable.groupby("meeting")["rank"].transform("size")
        return measure_meetings(usable[size >= 2].reset_index(drop=True), self._clocks)

    def _common_clocks(self) -> dict[int, Clock]:
        return {rank: self._clocks.clock(rank) for rank in self.summaries}

    def _rank_ends(self) -> dict[int, RankEnds]:
        if self.at is None:
            return {rank: summary.ends for rank, summary in self.summaries.items()}
        return self.map(_ends)

    def critical_path(self) -> JobPath:
        """Return the job's critical path: across ranks, through the collectives in which they waited for each other.

        It tiles the job's window in common time: from when all ranks are recorded to the last end of any.

        Returns
        -------
        JobPath

        Raises
        ------
        RankFailedError
            If a rank that the path visits cannot be read any more.
        """
        ends, clocks = self._rank_ends(), self._common_clocks()
        tables = {rank: self.summaries[rank].collectives for rank in ends}
        meetings = self.meetings[self.meetings["rank"].isin(ends)]
        legs = find_legs(tables, ends, meetings, clocks)
        by_rank: dict[int, list[tuple[int, Leg]]] = {}
        for number, leg in enumerate(legs):
            by_rank.setdefault(leg.rank, []).append((number, leg))
        whole = Job(self.summaries, self.executor, self.class_rules, "raise", self.failed, None, self.cache)
        expanded = whole._on_ranks({rank: _Expanded(tuple(part)) for rank, part in by_rank.items()})
        start_ns = max(int(clocks[rank].to_common(end.start_ns)) for rank, end in ends.items())
        name = "job" if self.at is None else str(self.at)
        return JobPath.of(legs, expanded, clocks, start_ns=start_ns, name=name, job=self)

    def stragglers(self) -> pd.DataFrame:
        """Return how often each rank came last, what that cost the others, and what it did meanwhile.

        Returns
        -------
        DataFrame, schema `frames.STRAGGLERS`
            The rank that cost most first. Only waits longer than the clocks are uncertain count.
        """
        late = late_ranks(self.meetings)
        tables = {rank: summary.collectives for rank, summary in self.summaries.items()}
        windows = delay_windows(late, tables, {rank: s.ends.start_ns for rank, s in self.summaries.items()})
        work = {rank: _Expanded(tuple(enumerate(legs))) for rank, legs in windows.items()}
        whole = Job(self.summaries, self.executor, self.class_rules, self.on_error, self.failed, None, self.cache)
        return summarize_stragglers(self.meetings, late, whole._on_ranks(work), list(self.summaries))

    def pipeline_bubbles(self) -> pd.DataFrame:
        """Return how long each rank waited in receives for the sender, by group; schema `frames.BUBBLES`."""
        return pipeline_bubbles(self.meetings)

    def __repr__(self) -> str:
        """Say how many ranks and events there are."""
        n_events = sum(summary.n_events for summary in self.summaries.values())
        longest = max((s.ends.end_ns - s.ends.start_ns for s in self.summaries.values()), default=0)
        gone = f", {human_count(len(self.missing_ranks), 'rank')} missing" if self.missing_ranks else ""
        failed = f", {human_count(len(self.failed), 'file')} failed" if self.failed else ""
        return (
            f"Job({human_count(len(self), 'rank')}{gone}{failed}, {human_count(n_events, 'event')}, "
            f"{human_duration(longest)})"
        )


@contextmanager
def _default_executor(n_tasks: int, n_bytes: int) -> Iterator[Executor | None]:
    """Yield a pool of processes, or None where starting one costs more than it saves."""
    n_workers = min(n_tasks, os.cpu_count() or 1)
    if n_workers < 2 or n_bytes < _SMALL_BYTES:
        yield None
        return
    with ProcessPoolExecutor(n_workers, mp_context=get_context("spawn")) as pool:
        yield pool


def _result(future: Future[Any]) -> Any:  # noqa: ANN401  a result or an exception
    try:
        return future.result()
    except (HTAGraphError, OSError, RuntimeError, MemoryError, EOFError) as exc:
        return exc


def _run_all(
    tasks: Mapping[Any, tuple[Callable[..., Any], tuple[Any, ...]]],
    executor: Executor | None,
    n_bytes: int,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Any, Any]:
    """Return the result, or the exception, of each task, in the order of the tasks."""
    results: dict[Any, Any] = {}
    with _default_executor(len(tasks), n_bytes) as default:
        pool = executor or default
        if pool is None:
            for key, (function, args) in tasks.items():
                try:
                    results[key] = function(*args)
                except (HTAGraphError, OSError) as exc:
                    results[key] = exc
                if progress is not None:
                    progress(len(results), len(tasks))
            return results
        try:
            futures = {key: pool.submit(function, *args) for key, (function, args) in tasks.items()}
        except (pickle.PicklingError, AttributeError, TypeError) as exc:
            raise QueryError(
                f"the work cannot travel to another process: {exc}.", hint="give a function of a module, not a lambda."
            ) from exc
        for done, (key, future) in enumerate(futures.items(), start=1):
            results[key] = _result(future)
            if progress is not None:
                progress(done, len(tasks))
    return results


class _Cache:
    """A temporary folder that is removed when nobody needs it any more."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="htagraph-")
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


def load_job(
    where: str | Path | Iterable[str | Path],
    *,
    executor: Executor | None = None,
    on_error: OnError = "raise",
    class_rules: Iterable[ClassRule] = (),
    cache: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Job:
    """Return the job whose ranks lie in a folder, match a glob, or are listed.

    Parameters
    ----------
    where : str, Path, or iterable of them
        A folder (searched with its subfolders), a glob, or files.
    executor : concurrent.futures.Executor, optional
        Runs the work on ranks, for example Dask's ``client.get_executor()``. By default processes of this machine; none for
        a small job.
    on_error : {"raise", "skip"}
        Whether a rank that cannot be used ends the work, or is left out and listed in `Job.failures`.
    class_rules : iterable of ClassRule, optional
    cache : str or Path, optional
        Folder for compiled graphs; a temporary one by default. Workers on other machines use it if they see it, and compile
        again if not.
    progress : callable, optional
        Called with (ranks done, ranks in all).

    Returns
    -------
    Job

    Raises
    ------
    TraceFormatError
        If there are no traces.
    RankFailedError
        If a rank cannot be used and `on_error` is ``"raise"``.
    QueryError
        If two files are of one rank and `on_error` is ``"raise"``.
    """
    paths = find_traces(where)
    rules = tuple(class_rules)
    keeper = _Cache() if cache is None else None
    folder = Path(keeper.folder if keeper is not None else str(cache))
    folder.mkdir(parents=True, exist_ok=True)
    tasks = {path: (_prepare, (path, folder / f"{number}.npz", rules)) for number, path in enumerate(paths)}
    n_bytes = sum(path.stat().st_size for path in paths if path.exists())
    results = _run_all(tasks, executor, n_bytes, progress)
    failed: dict[str, str] = {}
    summaries: dict[int, RankSummary] = {}
    for path, result in results.items():
        if isinstance(result, BaseException):
            if on_error == "raise":
                raise RankFailedError(
                    str(result), rank=paths.index(path), hint='load with on_error="skip" to go on without.'
                ) from result
            failed[str(path)] = str(result)
        else:
            _add(summaries, result, failed, on_error)
    if failed:
        warnings.warn(
            f"{human_count(len(failed), 'file')} of {len(paths):,} could not be used: see job.failures.",
            IncompleteTraceWarning,
            stacklevel=2,
        )
    if not summaries:
        raise QueryError("no rank could be loaded.", hint="; ".join(failed.values()) or "check the path.")
    ordered = {rank: summaries[rank] for rank in sorted(summaries)}
    return Job(ordered, executor, rules, on_error, failed, None, keeper)


def _add(summaries: dict[int, RankSummary], found: RankSummary, failed: dict[str, str], on_error: OnError) -> None:
    """Add a rank; a second file of one rank is an error, unless no file says its rank: then ranks are counted."""
    if found.rank not in summaries:
        summaries[found.rank] = found
        return
    first = summaries[found.rank]
    if found.rank_source == "default":
        free = next(number for number in range(len(summaries) + 1) if number not in summaries)
        warnings.warn(
            f"{found.path.name} does not say its rank; it is taken as rank {free}.",
            IncompleteTraceWarning,
            stacklevel=3,
        )
        summaries[free] = RankSummary(**{**found.__dict__, "rank": free, "rank_source": "order of files"})
        return
    message = f"{found.path} and {first.path} are both of rank {found.rank}."
    if on_error == "raise":
        raise QueryError(message, hint="load one of them, or the ranks of one capture only.")
    failed[str(found.path)] = message
