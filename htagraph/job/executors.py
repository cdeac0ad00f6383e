"""What runs the work on the ranks of a job: the user's executor, or processes of this machine.

A worker that dies, killed or out of memory, must cost one rank and no more. A `ProcessPoolExecutor`
gives up all of its work when one of its processes dies, so each of our processes is a pool of one.
To start them takes longer than most questions: they serve a job from its loading to its end.

An interrupt is for this process alone: it ends the others, which have no traceback to show.
"""

from __future__ import annotations

import os
import pickle
import signal
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from htagraph.errors import QueryError
from htagraph.job.failures import WorkerDiedError, worker_died
from htagraph.model.progress import counted, report_progress

__all__ = ["SMALL_BYTES", "IsolatedProcesses", "Task", "Workers"]

Task = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""

Key = TypeVar("Key", bound=Hashable)

SMALL_BYTES = 64 << 20
"""Size of the files of a job below which processes cost more than they save."""

_BYTES_OF_A_RANK = 2 << 20
"""What a rank costs beside its bytes, as much as so many: 0.3 s."""

_PATIENCE_S = 3.0
"""How long nothing may come from workers until it is told who is awaited."""

_MOST_NAMED = 4
"""How many that are awaited are named."""

_MOST_RETRIED = 16
"""How many tasks whose workers died are done once more: of more, the cause is another one."""


class IsolatedProcesses(Executor):
    """Processes of this machine, each a pool of one: a death takes only its own work along.

    Parameters
    ----------
    n_workers : int
        At most so many; a process starts when there is work for it.
    """

    def __init__(self, n_workers: int) -> None:
        # A process takes the signals that are blocked from the thread that starts it.
        self._threads = ThreadPoolExecutor(n_workers, initializer=_block_interrupts)
        self._pools: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
        self._made: list[ProcessPoolExecutor] = []
        self._is_ended = False

    def _new_pool(self) -> ProcessPoolExecutor:
        pool = ProcessPoolExecutor(1, get_context("spawn"), _end_with_parent)
        self._made.append(pool)
        return pool

    def _run(self, function: Callable[..., object], args: tuple[Any, ...]) -> object:
        try:
            pool = self._pools.get_nowait()
        except Empty:  # each thread has one at a time, so there are never more than workers
            pool = self._new_pool()
        try:
            if self._is_ended:
                raise WorkerDiedError
            return pool.submit(function, *args).result()
        except BrokenExecutor:
            pool.shutdown()
            pool = self._new_pool()
            raise WorkerDiedError from None
        finally:
            self._pools.put(pool)

    def submit(self, fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Future[Any]:
        """Run a function in one of the processes."""
        assert not kwargs
        return self._threads.submit(self._run, fn, args)

    def end(self) -> None:
        """End all processes at once, in the middle of their work."""
        self._is_ended = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for pool in self._made:
            for process in list((pool._processes or {}).values()):  # noqa: SLF001  until 3.14
                process.kill()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT002
        """End all processes, after the work that is under way."""
        self._threads.shutdown(wait=True, cancel_futures=cancel_futures)
        while not self._pools.empty():
            self._pools.get().shutdown(wait=wait)


def _end_with_parent() -> None:
    """End this process when the one that started it ends, which may be killed and tell nobody."""
    parent = parent_process()
    assert parent is not None

    def end() -> None:
        wait([parent.sentinel])
        os._exit(1)

    Thread(target=end, daemon=True).start()


def _block_interrupts() -> None:
    """Leave interrupts to the main thread; what is started from here never gets one."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


class Workers:
    """What runs the work on the ranks of one job, from its loading to its last question.

    Processes of this machine start when there is first something to do for them, serve every later
    question, and end with the last job that uses them.

    Parameters
    ----------
    executor : Executor, optional
        Given by the user. By default processes of this machine, or none for a small job.
    n_tasks : int, default=1
        How many tasks there are to do at a time: more processes than that would be idle.
    n_bytes : int, unit=bytes, default=0
        Size of the files of the job.
    """

    def __init__(
        self, executor: Executor | None = None, *, n_tasks: int = 1, n_bytes: int = 0
    ) -> None:
        self._given = executor
        self._n_processes = min(n_tasks, os.cpu_count() or 1)
        n_bytes += n_tasks * _BYTES_OF_A_RANK
        self._is_small = n_bytes < SMALL_BYTES or self._n_processes < 2
        self._started: IsolatedProcesses | None = None

    def _processes(self) -> IsolatedProcesses:
        """The processes of this machine, started if they are not there."""
        if self._started is None:
            self._started = IsolatedProcesses(self._n_processes)
            weakref.finalize(self, self._started.shutdown)
        return self._started

    def _pool(self, n_tasks: int) -> Executor | None:
        """What a number of tasks is given to; None for this process."""
        if self._given is not None:
            return self._given
        return None if self._is_small or n_tasks < 2 else self._processes()

    def run(
        self, tasks: Mapping[Key, Task], *, named: Callable[[Key], str] = str
    ) -> dict[Key, Any]:
        """Run tasks; return the result, or the exception, of each, in their order.

        Each task is handed out by itself: a worker that is slow keeps no others waiting but for the
        one that it works on. What a broken executor of the user's lost is done again in processes
        of our own. A task whose worker died may have had too little memory beside others, or (with
        Dask) only have lain on that worker: unless there are many, each is done once more, alone.

        Parameters
        ----------
        named : callable, optional
            What a task is called while it is awaited.

        Raises
        ------
        QueryError
            If a task cannot travel to another process.
        """
        pool = self._pool(len(tasks))
        try:
            return self._run(pool, tasks, named)
        except BaseException:  # an interrupt, or a listener that cancels: stop the rest
            if self._started is not None:
                self._started.end()
                self._started = None
            raise

    def _run(
        self, pool: Executor | None, tasks: Mapping[Key, Task], named: Callable[[Key], str]
    ) -> dict[Key, Any]:
        """Run tasks in a pool, or in this process without one."""
        if pool is not None and tasks:
            _check_portable(next(iter(tasks.values())), pool)
        done = _done_here(tasks) if pool is None else _done_by(pool, tasks, named)
        results: dict[Key, Any] = dict(done)
        if lost := [key for key in tasks if isinstance(results[key], BrokenExecutor)]:
            pool = self._processes()
            results |= _done_by(pool, {key: tasks[key] for key in lost}, named)
        died = [key for key in tasks if worker_died(results[key])]
        if pool is not None and len(died) <= _MOST_RETRIED:
            for key in died:
                results |= _done_by(pool, {key: tasks[key]}, named)
        return {key: results[key] for key in tasks}


def _check_portable(task: Task, pool: Executor) -> None:
    """Raise if a task cannot travel to another process."""
    if not isinstance(pool, ProcessPoolExecutor | IsolatedProcesses):
        return
    try:
        pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError) as exc:
        raise QueryError(
            f"the work cannot travel to another process: {exc}.",
            hint="give a function of a module, not a lambda.",
        ) from exc


def _submitted(pool: Executor, task: Task) -> Future[Any]:
    """Hand a task to a pool; if that broke meanwhile, the future says so."""
    try:
        return pool.submit(task[0], *task[1])
    except BrokenExecutor as exc:
        future: Future[Any] = Future()
        future.set_exception(exc)
        return future


def _done_by(
    pool: Executor, tasks: Mapping[Key, Task], named: Callable[[Key], str]
) -> Iterator[tuple[Key, Any]]:
    """Yield results of tasks as a pool finishes them; report how many, and who is awaited."""
    done: SimpleQueue[Key] = SimpleQueue()
    awaited: dict[Key, Future[Any]] = {}
    try:
        for key, task in tasks.items():
            awaited[key] = _submitted(pool, task)
        for key, future in awaited.items():
            future.add_done_callback(lambda _, key=key: done.put(key))  # type: ignore[misc]
        while awaited:
            try:
                key = done.get(timeout=_PATIENCE_S)
            except Empty:
                slow = _named(list(awaited), named)
                report_progress("rank", len(tasks) - len(awaited), len(tasks), slow)
                continue
            report_progress("rank", len(tasks) - len(awaited), len(tasks))
            # Popped: a worker of Dask keeps a result as long as somebody holds its future.
            yield key, _outcome(awaited.pop(key))
        report_progress("rank", len(tasks), len(tasks))
    finally:
        for future in awaited.values():
            future.cancel()


def _named(keys: Sequence[Key], named: Callable[[Key], str]) -> str:
    """Tasks that are awaited, in words; a few by name."""
    if len(keys) > _MOST_NAMED:
        return f"{len(keys):,} more"
    return ", ".join(map(named, keys))


def _done_here(tasks: Mapping[Key, Task]) -> Iterator[tuple[Key, Any]]:
    """Yield what tasks give in this process."""
    for key, (function, args) in zip(tasks, counted("rank", tasks.values()), strict=True):
        try:
            yield key, function(*args)
        except Exception as exc:  # noqa: BLE001  whatever it is, it belongs to one rank
            yield key, exc


def _outcome(future: Future[Any]) -> Any:  # noqa: ANN401  a result or an exception
    """The result of a future, or its exception."""
    try:
        return future.result()
    except Exception as exc:  # noqa: BLE001  whatever it is, it belongs to one rank
        return exc
