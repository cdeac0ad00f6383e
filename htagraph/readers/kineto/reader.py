"""The door of the Kineto reader: a file in, a recording out."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from htagraph.model.recording import Recording
from htagraph.readers.kineto.loading import Asked, load_file

__all__ = ["read_kineto"]


def read_kineto(
    source: str | Path | bytes,
    *,
    stacks: bool = False,
    categories: Collection[str] | None = None,
    window: tuple[int, int] | None = None,
) -> Recording:
    """The recording in a Kineto file, mended where the file is broken.

    Parameters
    ----------
    source : str, Path or bytes
        The file or its content: JSON, or gzip of it, whatever its name says.
    stacks : bool
        Load Python frames (``python_function`` events) too.
    categories : collection of str, optional
        Load only events of these categories, as the file names them (``kernel``, ``cpu_op``).
    window : (int, int), unit=ns, optional
        Load only events that touch ``[start_ns, end_ns)``, on the clock of ``ts_ns``.

    Raises
    ------
    TraceError
        If the file cannot be opened.
    TraceFormatError
        If it is no trace; with the first byte where that shows.
    TraceLimitError
        If it exceeds a stated limit.

    Examples
    --------
    >>> kernel = b'{"ph": "X", "cat": "kernel", "name": "k", "tid": 7, "ts": 1.5, "dur": 2}'
    >>> recording = read_kineto(b"[" + kernel + b"]")
    >>> recording.events.ts_ns.tolist(), recording.events.dur_ns.tolist(), recording.rank_source
    ([1500], [2000], 'default')
    """
    return load_file(source, Asked(stacks, categories, window))
