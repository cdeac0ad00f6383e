"""A trace and its graph in one go; a cache folder keeps both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from htagraph.compiler.classes import ClassRule
from htagraph.model.archive import VERSION, Arrays, pack, pack_recording
from htagraph.model.kinds import Bound
from htagraph.model.progress import Listener, listening
from htagraph.model.settings import data_loading_names
from htagraph.readers.storage import file_of, n_bytes_of, path_of
from htagraph.run.cache import Entry, entry_of
from htagraph.run.graph import TraceGraph
from htagraph.run.trace import Trace, load

_SMALL_BYTES = 4 << 20
"""Files up to this size are read with their Python stacks. Measured: 111 thousand frames in a
compressed file of 2.3 MB add 0.5 s to a report of 1.6 s, the 34 thousand in one of 1.2 MB 0.1 s.
Reading a file of 5.7 MB twice, as its path asks for it, takes 3.5 s, not 2.8 s. Pinned by
test_compiled.
"""


class Compiled(NamedTuple):
    """A recorded rank, and its graph."""

    trace: Trace
    graph: TraceGraph


@dataclass(frozen=True)
class LoadOptions:
    """How a trace is read and compiled."""

    class_rules: tuple[ClassRule, ...] = ()
    # Load Python stacks, too. None: if the file is small, or untraced code is the largest part of
    # its critical path.
    stacks: bool | None = False
    infer: bool = True  # Infer waits that were not recorded
    # As of `Trace.compile`
    data_loading: tuple[str, ...] = field(default_factory=data_loading_names)

    def made(self, path: str | Path, beside: Sequence[Path] = ()) -> Compiled:
        """The trace in a file, with its companion files, and its graph."""
        if self.stacks is not None:
            return self._read(path, beside, stacks=self.stacks)
        small = n_bytes_of(file_of(Path(path))) <= _SMALL_BYTES
        found = self._read(path, beside, stacks=small)
        if found.trace.has_unread_stacks and _gaps_lead(found.graph):
            del found  # its memory is needed
            found = self._read(path, beside, stacks=True)
        return found

    def _read(self, path: str | Path, beside: Sequence[Path], *, stacks: bool) -> Compiled:
        trace = load(path, stacks=stacks, beside=beside)
        return Compiled(trace, self.compiled(trace))

    def compiled(self, trace: Trace) -> TraceGraph:
        """The graph of a trace."""
        return trace.compile(
            class_rules=self.class_rules, infer=self.infer, data_loading=self.data_loading
        )


def _gaps_lead(graph: TraceGraph) -> bool:
    """Whether untraced code is the largest part of the critical path."""
    by_bound = graph.critical_path().breakdown(by="bound")
    return bool(len(by_bound)) and by_bound.index[0] == Bound.UNTRACED_CODE.label


def load_graph(
    source: str | Path,
    *,
    stacks: bool | None = False,
    class_rules: Iterable[ClassRule] = (),
    infer: bool = True,
    data_loading: Iterable[str] | None = None,
    beside: Iterable[str | Path] = (),
    cache: str | Path | None = None,
    progress: Listener | None = None,
) -> TraceGraph:
    """The graph of a trace: `load` and `Trace.compile`, or what a cache folder keeps of them.

    A cached graph is valid as long as the file, its companions, the options and htagraph itself are
    unchanged: a file is identified by its path, size and times of change, and by its first and last
    bytes. Entries that are damaged or of another trace are replaced. Nothing in a cached file is
    executed, one of another user is not used, and links in the folder are not followed.

    Parameters
    ----------
    source : str or Path
    stacks : bool, optional
        None: if the file is small, or untraced code is the largest part of its path.
    class_rules : iterable of ClassRule, optional
    infer : bool, default=True
    data_loading : iterable of str, optional
    beside : iterable of str or Path, optional
    cache : str or Path, optional
        Cache folder; none by default. Unused entries are never removed.
    progress : callable, optional

    Returns
    -------
    TraceGraph

    Raises
    ------
    TraceFormatError
        If the file is no trace.
    TraceLimitError
        If it exceeds a documented limit.

    Warns
    -----
    IncompleteTraceWarning
        If the cache folder cannot be written.

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
    options = LoadOptions(tuple(class_rules), stacks, infer, data_loading_names(data_loading))
    files = tuple(map(Path, beside))
    folder = None if cache is None else Path(cache).expanduser()
    with listening(progress):
        return compiled(path_of(source), files, options, folder=folder).graph


def compiled(
    path: Path,
    beside: Sequence[Path],
    options: LoadOptions,
    *,
    folder: Path | None = None,
) -> Compiled:
    """A trace and its graph, from the cache `folder` if it has them; see `load_graph`."""
    if folder is None or not file_of(path).is_file():  # a pipe can be read only once
        return options.made(path, beside)
    kept = kept_file(path, beside, folder, options)
    found = opened(kept, path)
    if found is not None:
        return found
    made = options.made(path, beside)
    kept.write_or_warn(packed(made))
    return made


def kept_file(path: Path, beside: Sequence[Path], folder: Path, options: LoadOptions) -> Entry:
    """The cache entry of a trace and its graph: one per state of its files, and options."""
    return entry_of((path, *beside), folder, f"{VERSION} {options}")


def opened(kept: Entry, path: Path) -> Compiled | None:
    """The cached trace and graph of the trace in `path`; None if not there, or not to be used."""

    def of(arrays: Arrays) -> Compiled:
        from htagraph.readers.graph_file import compiled_of  # noqa: PLC0415  only where kept

        dag, recording = compiled_of(arrays, path)
        return Compiled(Trace(recording), TraceGraph(dag, None, recording.rank, recording.origin))

    return kept.read(of)


def packed(made: Compiled) -> Arrays:
    """A trace and its graph, as arrays to keep; the graph alone can be made of them as well."""
    from htagraph.readers.graph_file import arg_places  # noqa: PLC0415  only where kept

    recording, dag = made.trace.recording, made.graph.dag
    graph = pack(dag, rank=recording.rank, origin=recording.origin)
    return {**graph, **pack_recording(recording, dag), **arg_places(recording.origin)}
