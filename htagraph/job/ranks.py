"""Work on the ranks of a job: one pure function of one file each, run by any `concurrent.futures.Executor`.

A rank's compiled graph stays in a file of a cache folder; only what the parent needs to know of it
travels.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from htagraph.compiler.classes import ClassRule
from htagraph.errors import QueryError
from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.critical_path import critical_paths, last_node
from htagraph.graph import TraceGraph
from htagraph.job.lateness import CAUSE_KEY
from htagraph.job.rank_segments import RankEnds, RankSegment
from htagraph.lookup.steps import without_numbers
from htagraph.model.window import Window
from htagraph.queries.collectives import first_anchor
from htagraph.questions import Question
from htagraph.trace import load

__all__ = [
    "WindowName",
    "RankSummary",
    "Reading",
    "Task",
    "cached_graph",
    "open_rank",
    "prepare_rank",
    "rank_ends",
    "run_tasks",
    "work_on",
]

WindowName = str | tuple[int, int] | None
"""A window of every rank: the name of a host range, times, or all."""

Task = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""

Key = TypeVar("Key", bound=Hashable)

_SMALL_BYTES = 64 << 20


@dataclass(frozen=True)
class Reading:
    """How the traces of a job are read and compiled.

    Parameters
    ----------
    class_rules : tuple of ClassRule
    stacks : bool
        Python stacks are read, too.
    """

    class_rules: tuple[ClassRule, ...] = ()
    stacks: bool = False


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
    n_events : int
    has_unread_stacks : bool
        The file has Python stacks that were not read.
    first_ns : int, unit=ns
        First time in the trace, also of what is no work.
    collectives : DataFrame, schema `frames.COLLECTIVES`
    ends : RankEnds
        Of the whole trace.
    steps : tuple of str
    """

    rank: int
    rank_source: str
    path: Path
    graph: Path
    world_size: int | None
    n_events: int
    has_unread_stacks: bool
    first_ns: int
    collectives: pd.DataFrame
    ends: RankEnds
    steps: tuple[str, ...]


def rank_ends(graph: TraceGraph) -> RankEnds:
    """Return where a window's path on one rank begins and ends."""
    dag, window = graph.dag, graph.interval
    node = window.anchor if window.anchor >= 0 else last_node(dag, window.end_ns)
    if node < 0:
        return RankEnds(window.start_ns, window.end_ns, -1, -1)
    kernels = TraceGraph(dag, dag.span).collectives()["event"].to_numpy(np.int64)
    anchor = int(first_anchor(dag, kernels)[node])
    found = np.flatnonzero(kernels == anchor >> 1) if anchor >= 0 else np.empty(0, dtype=np.int64)
    return RankEnds(window.start_ns, window.end_ns, node, int(found[0]) if len(found) else -1)


def cached_graph(path: Path, folder: Path, reading: Reading) -> Path:
    """Return the file for the compiled graph of a trace; one for each state of each trace and way of reading it."""
    state = path.stat() if path.exists() else None
    key = f"{path.resolve()} {state.st_size if state else 0} {state.st_mtime_ns if state else 0} {reading}"
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"


def prepare_rank(path: Path, graph_file: Path, reading: Reading) -> RankSummary:
    """Load, compile and save one rank; return what the parent needs to know."""
    trace = load(path, stacks=reading.stacks)
    graph = trace.compile(class_rules=reading.class_rules)
    graph.save(graph_file)
    return RankSummary(
        rank=trace.rank,
        rank_source=trace.rank_source,
        path=path,
        graph=graph_file,
        world_size=trace.world_size,
        n_events=len(graph.dag.events),
        has_unread_stacks=trace.has_unread_stacks,
        first_ns=int(graph.dag.events.ts_ns.min(initial=graph.dag.span.start_ns)),
        collectives=graph.collectives(),
        ends=rank_ends(graph),
        steps=tuple(graph.steps["name"]),
    )


def open_rank(summary: RankSummary, reading: Reading, window: WindowName) -> TraceGraph:
    """Return the graph of a rank: from the cache, else compiled again (on a machine that does not share it)."""
    if summary.graph.exists():
        graph = TraceGraph.open(summary.graph)
    else:
        graph = load(summary.path, stacks=reading.stacks).compile(class_rules=reading.class_rules)
    return graph if window is None else graph.window(window)


def work_on(
    summary: RankSummary, reading: Reading, window: WindowName, work: Callable[[TraceGraph], Any]
) -> Any:  # noqa: ANN401  whatever the work returns
    """Return what some work gives on one rank."""
    return work(open_rank(summary, reading, window))


@dataclass(frozen=True)
class Asked:
    """A question with its options, as a function of a graph that can travel."""

    question: Question
    options: Mapping[str, Any]

    def __call__(self, graph: TraceGraph) -> pd.DataFrame:
        return self.question(graph.dag, graph.interval, **self.options)


@dataclass(frozen=True)
class Expanded:
    """The segments of some rank segments of one rank, with the number of the rank segment."""

    rank_segments: tuple[tuple[int, RankSegment], ...]

    def __call__(self, graph: TraceGraph) -> pd.DataFrame:
        windows = [
            Window(
                rank_segment.local_start_ns,
                rank_segment.local_end_ns,
                "rank_segment",
                anchor=rank_segment.end_node,
            )
            for _, rank_segment in self.rank_segments
        ]
        segments = critical_paths(graph.dag, windows)
        lengths = np.array([window.dur_ns for window in windows])
        number = np.searchsorted(
            np.cumsum(lengths), np.cumsum(segments["dur_ns"].to_numpy(np.int64)), side="left"
        )
        return segments.assign(
            rank_segment=np.array(
                [rank_segment for rank_segment, _ in self.rank_segments], dtype=np.int64
            )[number]
        )


@dataclass(frozen=True)
class Attributed:
    """What claims the time of some rank segments of one rank, with the number of the rank segment."""

    rank_segments: tuple[tuple[int, RankSegment], ...]

    def __call__(self, graph: TraceGraph) -> pd.DataFrame:
        segments = Expanded(self.rank_segments)(graph)
        found = attributed_time(graph.dag, segments)
        return found.assign(rank_segment=segments["rank_segment"].to_numpy()[found["segment"]])


@dataclass(frozen=True)
class TimesByName:
    """How long each thing took in some rank segments of one rank, with the number of the rank segment."""

    rank_segments: tuple[tuple[int, RankSegment], ...]

    def __call__(self, graph: TraceGraph) -> pd.DataFrame:
        segments = Expanded(self.rank_segments)(graph)
        named = segments.assign(
            bound=segments["bound"].astype(object),
            name=without_numbers(segments["name"]),
            op=without_numbers(segments["op"]),
        )
        return pd.DataFrame(
            named.groupby(["rank_segment", *CAUSE_KEY], as_index=False, sort=False).agg(
                dur_ns=("dur_ns", "sum")
            )
        )


class _WorkerDiedError(RuntimeError):
    """A process that worked on a rank ended without an answer."""

    def __init__(self) -> None:
        super().__init__(
            "the process that worked on it died: killed, out of memory, or started by a script "
            'that does not keep its work under `if __name__ == "__main__":`.'
        )


class _IsolatedProcesses(Executor):
    """Processes of this machine, each a pool of its own: one that dies takes only its own work along."""

    def __init__(self, n_workers: int) -> None:
        self._threads = ThreadPoolExecutor(n_workers)
        self._pools: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
        for _ in range(n_workers):
            self._pools.put(self._new_pool())

    @staticmethod
    def _new_pool() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:  # noqa: ANN401  whatever it returns
        pool = self._pools.get()
        try:
            return pool.submit(function, *args).result()
        except BrokenExecutor:
            pool.shutdown()
            pool = self._new_pool()
            raise _WorkerDiedError from None
        finally:
            self._pools.put(pool)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401
        """Run a function in one of the processes."""
        assert not kwargs
        return self._threads.submit(self._run, fn, args)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT002  as in `Executor`
        """End all processes, after the work that is under way."""
        self._threads.shutdown(wait=True, cancel_futures=cancel_futures)
        while not self._pools.empty():
            self._pools.get().shutdown(wait=wait)


@contextmanager
def _chosen(executor: Executor | None, n_tasks: int, n_bytes: int) -> Iterator[Executor | None]:
    """Yield the executor that was given, else processes of this machine, or None where they cost more than they save."""
    n_workers = min(n_tasks, os.cpu_count() or 1)
    if executor is not None or n_workers < 2 or n_bytes < _SMALL_BYTES:
        yield executor
        return
    with _IsolatedProcesses(n_workers) as pool:
        yield pool


def _check_portable(task: Task, pool: Executor) -> None:
    """Raise if a task cannot travel to another process."""
    if not isinstance(pool, ProcessPoolExecutor | _IsolatedProcesses):
        return
    try:
        pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError) as exc:
        raise QueryError(
            f"the work cannot travel to another process: {exc}.",
            hint="give a function of a module, not a lambda.",
        ) from exc


def _submitted(pool: Executor, task: Task) -> Future[Any]:
    """Return the future of a task; of a pool that broke meanwhile, one that says so."""
    try:
        return pool.submit(task[0], *task[1])
    except BrokenExecutor as exc:
        future: Future[Any] = Future()
        future.set_exception(exc)
        return future


def _outcome(future: Future[Any]) -> Any:  # noqa: ANN401  a result or an exception
    """Return the result of a future, or its exception."""
    try:
        return future.result()
    except Exception as exc:  # noqa: BLE001  whatever it is, it belongs to one rank
        return exc


def _here(task: Task) -> Future[Any]:
    """Return the future of a task that has been run in this process."""
    future: Future[Any] = Future()
    try:
        future.set_result(task[0](*task[1]))
    except Exception as exc:  # noqa: BLE001  whatever it is, it belongs to one rank
        future.set_exception(exc)
    return future


def run_tasks(
    tasks: Mapping[Key, Task],
    executor: Executor | None,
    *,
    n_bytes: int,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Key, Any]:
    """Return the result, or the exception, of each task, in the order of the tasks.

    Parameters
    ----------
    tasks : mapping
    executor : Executor, optional
        By default processes of this machine, or none where there is little to do.
    n_bytes : int, unit=bytes
        How much there is to do.
    progress : callable, optional
        Called with (tasks done, tasks in all).

    Raises
    ------
    QueryError
        If a task cannot travel to another process.

    Notes
    -----
    A worker that dies breaks a whole `ProcessPoolExecutor`. What it lost is done again in processes of their own, so that
    only the task that kills its worker is lost.
    """
    results: dict[Key, Any] = {}
    with _chosen(executor, len(tasks), n_bytes) as pool:
        if pool is not None and tasks:
            _check_portable(next(iter(tasks.values())), pool)
        futures = {
            key: None if pool is None else _submitted(pool, task) for key, task in tasks.items()
        }
        for key, future in futures.items():
            results[key] = _outcome(future if future is not None else _here(tasks[key]))
            if progress is not None:
                progress(len(results), len(tasks))
    lost = [key for key, result in results.items() if isinstance(result, BrokenExecutor)]
    if lost:
        with _IsolatedProcesses(min(len(lost), os.cpu_count() or 1)) as isolated:
            again = {key: _submitted(isolated, tasks[key]) for key in lost}
            results |= {key: _outcome(future) for key, future in again.items()}
    return results
