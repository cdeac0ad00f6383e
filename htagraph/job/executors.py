"""Runs the work on the ranks of a job: in the user's executor, or in processes of this machine.

A worker that dies, killed or out of memory, must cost one rank and no more. A `ProcessPoolExecutor`
gives up all of its work when one of its processes dies, so each process is a pool of one. Starting
them takes longer than most questions, so they serve a job from loading to its last question.

An interrupt reaches this process alone, which ends the others: they have no traceback to show.
"""

from __future__ import annotations

import os
import pickle
import signal
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from concurrent.futures import wait as wait_for
from contextlib import suppress
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.resource_tracker import ensure_running
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from htagraph.arrays.memory import keeps_memory
from htagraph.errors import NO_THREAD, QueryError, shortage
from htagraph.model.progress import counted, report_progress

Task = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""

Key = TypeVar("Key", bound=Hashable)

SMALL_BYTES = 64 << 20
"""Jobs with smaller files run in this process: starting others costs more than they save. Pinned by
test_executors."""

_BYTES_OF_A_RANK = 2 << 20
"""Fixed cost of a rank, counted as bytes of its file. Chosen. Pinned with `SMALL_BYTES`."""

_PATIENCE_S = 3.0
"""Silence after which the progress line names the ranks it waits for. Chosen: short enough that it
does not seem to hang. A limit of the screen, not of the answer; documented in
`docs/how-to/huge-traces.md`."""

_KILLED_BY_DASK = "KilledWorker"
"""Exception that Dask raises for a task that it gives up; not imported, as Dask is an extra."""


_CHECK_S = 0.2
"""How often a thread that waits for a worker checks that there is one. Chosen."""


class WorkerDiedError(RuntimeError):
    """A process that worked on a rank ended without an answer."""

    def __init__(self) -> None:
        super().__init__(
            "the process that worked on it died: killed, out of memory, or started by a script "
            'that does not keep its work under `if __name__ == "__main__":`.'
        )


def failure_in_words(exc: BaseException) -> str:
    """Why a rank has no answer, in one line: exceptions of workers and of Dask take several."""
    if isinstance(exc, MemoryError):
        why = f" ({exc})" if str(exc) else ""
        more = "give it more, or run fewer workers on one machine."
        return f"its worker ran out of memory{why}: {more}"
    if isinstance(exc, CancelledError):
        return "its work was cancelled, or the scheduler is gone."
    if type(exc).__name__ == _KILLED_BY_DASK:
        return "every worker that tried it died: killed, or out of memory."
    return str(exc) or type(exc).__name__


class IsolatedProcesses(Executor):
    """Up to `n_workers` processes, each a pool of one: a death loses only its own work."""

    def __init__(self, n_workers: int) -> None:
        # A process inherits the blocked signals of the thread that starts it.
        self._threads = ThreadPoolExecutor(n_workers, initializer=_block_interrupts)
        self._pools: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
        self._made: list[ProcessPoolExecutor] = []
        self._is_ended = False

    def _new_pool(self) -> ProcessPoolExecutor:
        pool = ProcessPoolExecutor(1, get_context("spawn"), _started)
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
            return self._result(pool, pool.submit(function, *args))
        except BrokenExecutor:
            pool.shutdown()
            pool = self._new_pool()
            raise WorkerDiedError from None
        finally:
            self._pools.put(pool)

    def _result(self, pool: ProcessPoolExecutor, future: Future[Any]) -> object:
        """The result of some work, or an error if the thread that would bring it has ended."""
        while not wait_for([future], _CHECK_S).done:
            if self._is_ended:
                raise WorkerDiedError
            thread: Any = pool._executor_manager_thread  # noqa: SLF001  as above
            if not (thread is None or thread.is_alive() or future.done()):
                raise RuntimeError(NO_THREAD)
        return future.result()

    def submit(self, fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Future[Any]:
        """Run a function in one of the processes."""
        assert not kwargs
        return self._threads.submit(self._run, fn, args)

    def end(self) -> None:
        """End all processes at once, in the middle of their work."""
        self._is_ended = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._kill()
        for thread in list(self._threads._threads):  # noqa: SLF001  it may be starting a process
            thread.join(2 * _CHECK_S)
        self._kill()

    def _kill(self) -> None:
        for pool in self._made:
            for process in list((pool._processes or {}).values()):  # noqa: SLF001  until 3.14
                process.kill()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT002
        """End all processes, after the work that is under way."""
        if self._is_ended:
            return
        self._threads.shutdown(wait=True, cancel_futures=cancel_futures)
        while not self._pools.empty():
            with suppress(RuntimeError):  # it could not start its thread
                self._pools.get().shutdown(wait=wait)


def _started() -> None:
    """Set up a worker process: it ends with its parent, which may be killed without notice."""
    keeps_memory()
    parent = parent_process()
    assert parent is not None

    def end() -> None:
        wait([parent.sentinel])
        os._exit(1)

    with suppress(RuntimeError):  # no more threads: it works all the same
        Thread(target=end, daemon=True).start()


def _block_interrupts() -> None:
    """Leave interrupts to the main thread; processes started from here never get one."""
    if hasattr(signal, "pthread_sigmask"):
        ensure_running()  # the start of multiprocessing's tracker unblocks interrupts
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


class Workers:
    """Runs the work on the ranks of one job, from its loading to its last question.

    Without an executor of the user's, these are processes of this machine, or none for a small job.
    Processes start with the first work and end with the last job that uses them. `n_tasks`: tasks
    at a time: more processes would be idle. `n_bytes`: size of the job's files.
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
        if self._started is None:
            self._started = IsolatedProcesses(self._n_processes)
            weakref.finalize(self, self._started.shutdown)
        return self._started

    def run(
        self, tasks: Mapping[Key, Task], *, named: Callable[[Key], str] = str
    ) -> dict[Key, Any]:
        """Run tasks; return the result, or the exception, of each, in their order.

        Tasks are handed out one by one, so a slow worker delays only its own. What a broken
        executor of the user's lost runs again in processes of this machine. A task whose worker
        died may have lacked memory next to others, or (with Dask) only have been queued there: it
        runs once more, alone, unless all of them died. `named`: name of a task, for the progress
        line.
        """
        if self._given is not None or self._is_small or len(tasks) < 2:
            pool = self._given
        else:
            pool = self._processes()
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
        if pool is not None and tasks:
            _check_portable(next(iter(tasks.values())), pool)
        done = _done_here(tasks) if pool is None else _done_by(pool, tasks, named)
        results: dict[Key, Any] = dict(done)
        if lost := [key for key in tasks if isinstance(results[key], BrokenExecutor)]:
            pool = self._processes()
            results |= _done_by(pool, {key: tasks[key] for key in lost}, named)
        died = [
            key
            for key in tasks
            if isinstance(results[key], WorkerDiedError)
            or type(results[key]).__name__ == _KILLED_BY_DASK
        ]
        if pool is not None and len(died) < len(tasks):
            for key in died:
                results |= _done_by(pool, {key: tasks[key]}, named)
        return {key: results[key] for key in tasks}


def _check_portable(task: Task, pool: Executor) -> None:
    """Raise if a task cannot be pickled for another process."""
    if not isinstance(pool, ProcessPoolExecutor | IsolatedProcesses):
        return
    try:
        pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError) as exc:
        raise QueryError(
            f"the work cannot be pickled for another process: {exc}.",
            hint="pass a function of a module, not a lambda.",
        ) from exc


def _submitted(pool: Executor, task: Task) -> Future[Any]:
    """Submit a task; if the pool broke meanwhile, the future raises that."""
    try:
        return pool.submit(task[0], *task[1])
    except BrokenExecutor as exc:
        future: Future[Any] = Future()
        future.set_exception(exc)
        return future


def _done_by(
    pool: Executor, tasks: Mapping[Key, Task], named: Callable[[Key], str]
) -> Iterator[tuple[Key, Any]]:
    """Yield results from a pool as they arrive; report how many did, and which are missing."""
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
                first, more = named(next(iter(awaited))), len(awaited) - 1
                whom = f"{first} and {more:,} more" if more else first
                report_progress("rank", len(tasks) - len(awaited), len(tasks), whom)
                continue
            report_progress("rank", len(tasks) - len(awaited), len(tasks))
            # Popped: a Dask worker keeps a result as long as somebody holds its future.
            yield key, _outcome(awaited.pop(key).result)
        report_progress("rank", len(tasks), len(tasks))
    finally:
        for future in awaited.values():
            future.cancel()


def _done_here(tasks: Mapping[Key, Task]) -> Iterator[tuple[Key, Any]]:
    for key, (function, args) in zip(tasks, counted("rank", tasks.values()), strict=True):
        yield key, _outcome(partial(function, *args))


def _outcome(work: Callable[[], Any]) -> Any:  # noqa: ANN401
    """The result, or the error, which other ranks need not have, even of memory.

    Too few files or processes raise.
    """
    try:
        return work()
    except Exception as error:
        short = None if isinstance(error, MemoryError) else shortage(error)
        if short is not None:
            raise short from error
        return error
