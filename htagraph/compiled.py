"""A trace and its graph in one go, or opened from the cache folder that keeps both."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from htagraph.compiler.classes import ClassRule
from htagraph.errors import IncompleteTraceWarning, OutputError, TraceFormatError
from htagraph.graph import TraceGraph
from htagraph.model.archive import VERSION, pack_recording
from htagraph.model.progress import Listener, listening
from htagraph.readers.rank_paths import file_of
from htagraph.trace import Trace, load
from htagraph.writers.text_file import new_folder

__all__ = ["Compiled", "Reading", "compiled", "kept_file", "load_graph", "opened", "saved"]

_ENDS = 1 << 16
"""Chosen: bytes at each end of a file that identify it in the cache."""


class Compiled(NamedTuple):
    """What was recorded on one rank, and the graph of it."""

    trace: Trace
    graph: TraceGraph


@dataclass(frozen=True)
class Reading:
    """How a trace is read and compiled.

    Parameters
    ----------
    stacks : bool
        Python stacks are read, too.
    infer : bool
        Waits that no record names are inferred.
    """

    class_rules: tuple[ClassRule, ...] = ()
    stacks: bool = False
    infer: bool = True

    def made(self, path: str | Path, beside: Sequence[Path] = ()) -> Compiled:
        """The trace in a file with the content of companion files, and its graph."""
        trace = load(path, stacks=self.stacks, beside=beside)
        return Compiled(trace, trace.compile(class_rules=self.class_rules, infer=self.infer))


def load_graph(
    source: str | Path,
    *,
    stacks: bool = False,
    class_rules: Iterable[ClassRule] = (),
    infer: bool = True,
    beside: Iterable[str | Path] = (),
    cache: str | Path | None = None,
    progress: Listener | None = None,
) -> TraceGraph:
    """The graph of a trace: `load` and `Trace.compile`, or opened from a cache.

    A cached graph is used as long as the trace, its companion files, the options and htagraph are
    unchanged. A file is identified by its path, size, times of change, and first and last bytes. A
    damaged cache file is made again; nothing in it is executed.

    Parameters
    ----------
    source : str or Path
    stacks : bool, default=False
    class_rules : iterable of ClassRule, optional
    infer : bool, default=True
    beside : iterable of str or Path, optional
    cache : str or Path, optional
        Folder of the cache; none by default. Files that are no longer used stay there.
    progress : callable, optional
        As for `load`.

    Returns
    -------
    TraceGraph

    Raises
    ------
    TraceFormatError
        If the file is no trace.
    TraceLimitError
        If it exceeds a stated limit.

    Warns
    -----
    IncompleteTraceWarning
        If nothing can be cached: the disk is full, or the folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import htagraph as hg
    >>> file = hg.demo_trace("none")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for _ in range(2):  # the second time, nothing is compiled
    ...         graph = load_graph(file, cache=Path(folder) / "kept")
    >>> [*graph.steps["name"]]
    ['ProfilerStep#0', 'ProfilerStep#1', 'ProfilerStep#2']
    """
    reading = Reading(tuple(class_rules), stacks, infer)
    files = tuple(map(Path, beside))
    folder = None if cache is None else Path(cache).expanduser()
    with listening(progress):
        return compiled(Path(source), files, reading, folder=folder).graph


def compiled(
    path: Path,
    beside: Sequence[Path],
    reading: Reading,
    *,
    folder: Path | None = None,
) -> Compiled:
    """A trace and its graph; opened from a folder that keeps them, if one is given.

    See `load_graph`.
    """
    if folder is None or not file_of(path).is_file():  # a pipe can be read only once
        return reading.made(path, beside)
    kept = kept_file(path, beside, folder, reading)
    found = opened(kept, path)
    if found is not None:
        return found
    made = reading.made(path, beside)
    try:
        new_folder(folder, hint="choose another cache.")
        saved(made, kept)
    except OutputError as exc:
        warnings.warn(f"nothing is kept: {exc}", IncompleteTraceWarning, stacklevel=3)
    return made


def kept_file(path: Path, beside: Sequence[Path], folder: Path, reading: Reading) -> Path:
    """The file for a trace and its graph: one per state of its files, and way of reading them."""
    states = [(str(file.absolute()), _state(file_of(file))) for file in (path, *beside)]
    key = f"{VERSION} {_code()} {reading} {states}"
    return folder / f"{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.npz"


def opened(kept: Path, path: Path) -> Compiled | None:
    """The trace in a file and its graph, as they were kept; None where they were not, or damaged.

    Parameters
    ----------
    path : Path
        The trace.
    """
    if not kept.is_file():
        return None
    from htagraph.readers.graph_file import read_compiled  # noqa: PLC0415  only where kept

    try:
        dag, recording = read_compiled(kept, path)
    except TraceFormatError:
        return None
    return Compiled(Trace(recording), TraceGraph(dag, dag.span, recording.rank, recording.origin))


def saved(made: Compiled, kept: Path) -> Path:
    """Keep a trace and its graph in one file; a graph alone can be opened from it as well.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    from htagraph.readers.graph_file import arg_places  # noqa: PLC0415  only where kept
    from htagraph.writers.graph_file import write_graph  # noqa: PLC0415

    recording, dag = made.trace.recording, made.graph.dag
    more = {**pack_recording(recording, dag), **arg_places(recording.origin)}
    return write_graph(kept, dag, rank=recording.rank, origin=recording.origin, more=more)


def _state(path: Path) -> tuple[object, ...]:
    """What changes with the content of a file; nothing where it is not there."""
    if not path.is_file():
        return ()
    try:
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            ends = sha256(file.read(_ENDS))
            file.seek(max(stat.st_size - _ENDS, 0))
            ends.update(file.read(_ENDS))
    except OSError:
        return ()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, ends.hexdigest()


@lru_cache
def _code() -> str:
    """The package as it is: when its files were last changed."""
    states = ((file, file.stat()) for file in sorted(Path(__file__).parent.rglob("*.py")))
    known = [(file.name, stat.st_size, stat.st_mtime_ns) for file, stat in states]
    return sha256(str(known).encode()).hexdigest()
