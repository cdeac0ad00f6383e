"""Why a rank has no answer, in one line: what workers and their libraries raise says it in many."""

from __future__ import annotations

from concurrent.futures import CancelledError

__all__ = ["WorkerDiedError", "failure_in_words", "worker_died"]

_KILLED_BY_DASK = "KilledWorker"
"""Name of what Dask raises of a task that it gives up; not imported, as Dask is an extra."""


class WorkerDiedError(RuntimeError):
    """A process that worked on a rank ended without an answer."""

    def __init__(self) -> None:
        super().__init__(
            "the process that worked on it died: killed, out of memory, or started by a script "
            'that does not keep its work under `if __name__ == "__main__":`.'
        )


def worker_died(outcome: object) -> bool:
    """Whether what some work gave is that its worker died."""
    return isinstance(outcome, WorkerDiedError) or type(outcome).__name__ == _KILLED_BY_DASK


def failure_in_words(exc: BaseException) -> str:
    """Why a rank has no answer: what was raised there, in words.

    Examples
    --------
    >>> failure_in_words(ValueError("one is odd")), failure_in_words(KeyError())
    ('one is odd', 'KeyError')
    >>> failure_in_words(MemoryError())
    'its worker has too little memory: give it more, or run fewer on one machine.'
    """
    if isinstance(exc, MemoryError):
        said = f" ({exc})" if str(exc) else ""
        return f"its worker has too little memory{said}: give it more, or run fewer on one machine."
    if isinstance(exc, CancelledError):
        return "its work was given up: the scheduler is gone, or somebody cancelled it."
    if type(exc).__name__ == _KILLED_BY_DASK:  # its own words are a paragraph, and addresses
        return "every worker that tried it died: killed, or out of memory."
    return str(exc) or type(exc).__name__
