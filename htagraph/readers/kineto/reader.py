"""The door of the Kineto reader: a file in, an event table and what is known about it out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from htagraph.model.events import EventTable
from htagraph.readers.kineto.arguments import ArgsIndex
from htagraph.readers.kineto.header import RankSource, rank_of, world_size
from htagraph.readers.kineto.loading import Asked, load_file
from htagraph.readers.kineto.repairs import Repair, RepairLog

__all__ = ["KinetoTrace", "Progress", "read_kineto"]

Progress = Callable[[int, int], None]
"""Called with the bytes read so far, of the file as it is on disk, and their total."""


@dataclass(frozen=True)
class KinetoTrace:
    """What a Kineto file holds.

    Parameters
    ----------
    events : EventTable
        Rows in file order.
    metadata : mapping of str to object
        Every top-level key but ``traceEvents``, wherever it stands in the file.
    rank : int
    rank_source : {"distributedInfo", "file name", "default"}
        Where the rank was found; 0 by default.
    world_size : int or None
    base_time_ns : int, unit=ns
        What the file adds to every time; the event table has it added already.
    path : Path or None
        None if the trace was read from bytes.
    repairs : tuple of Repair
        What had to be mended, each kind counted, with its first byte.
    skipped : mapping of str to int
        Events that were not loaded, by category or reason.
    args : ArgsIndex
        Where each event stands in the file; `ArgsIndex.decode` reads its args.
    n_bytes : int
        Size of the decompressed file.
    """

    events: EventTable
    metadata: Mapping[str, Any]
    rank: int
    rank_source: RankSource
    world_size: int | None
    base_time_ns: int
    path: Path | None
    repairs: tuple[Repair, ...]
    skipped: Mapping[str, int]
    args: ArgsIndex = field(repr=False)
    n_bytes: int = 0

    @property
    def source(self) -> Path | bytes:
        """The file, or what is in it."""
        return self.args.source


def read_kineto(
    source: str | Path | bytes,
    *,
    stacks: bool = False,
    categories: Collection[str] | None = None,
    window: tuple[int, int] | None = None,
    progress: Progress | None = None,
) -> KinetoTrace:
    """Return the trace in a Kineto file, ``.json`` or ``.json.gz`` by content, mended where it is broken.

    Parameters
    ----------
    source : str, Path or bytes
        The file, or what is in it.
    stacks : bool
        Load Python frames (``python_function`` events) too.
    categories : collection of str, optional
        Load only events of these categories, as the file names them (``kernel``, ``cpu_op``).
    window : (int, int), unit=ns, optional
        Load only events that touch ``[start_ns, end_ns)``, on the clock of ``ts_ns``.
    progress : callable, optional
        Called with the bytes read so far and their total.

    Returns
    -------
    KinetoTrace

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
    >>> trace = read_kineto(b'[{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2}]')
    >>> trace.events.ts_ns.tolist(), trace.events.dur_ns.tolist(), trace.rank_source
    ([1500], [2000], 'default')
    """
    log = RepairLog()
    asked = Asked(stacks=stacks, categories=categories, window=window)
    loaded = load_file(source, asked, log, progress)
    path = None if isinstance(source, bytes) else Path(source)
    rank, rank_source = rank_of(loaded.metadata, path)
    return KinetoTrace(
        events=loaded.events,
        metadata=loaded.metadata,
        rank=rank,
        rank_source=rank_source,
        world_size=world_size(loaded.metadata),
        base_time_ns=loaded.base_ns,
        path=path,
        repairs=log.repairs(),
        skipped=loaded.left_out,
        args=ArgsIndex(
            source if isinstance(source, bytes) else Path(source), loaded.offset, loaded.length
        ),
        n_bytes=loaded.n_bytes,
    )
