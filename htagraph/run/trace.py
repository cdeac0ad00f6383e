"""Trace: what was recorded on one rank, and `load`, which reads it from a file."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.compiler.classes import ClassRule
from htagraph.compiler.passes import compile_events
from htagraph.errors import IncompleteTraceWarning, OutputError, QueryError, WindowNotFoundError
from htagraph.lookup.find_window import MEDIAN, WHOLE, bounds_of, times_in
from htagraph.lookup.steps import find_steps, is_annotation
from htagraph.model.events import EventTable
from htagraph.model.frames import ATTACHED, EVENTS, REPAIRS, SIZES, STEPS
from htagraph.model.kinds import DEVICE_KINDS, EventKind, in_words
from htagraph.model.names import PROFILER_STEP
from htagraph.model.progress import Listener, begin_stage, listening
from htagraph.model.recording import OUTSIDE, STACKS, Reader, Recording
from htagraph.model.settings import data_loading_names
from htagraph.model.units import human_count, human_duration
from htagraph.readers.event_filter import EventFilter
from htagraph.readers.formats import is_other_format, is_perfetto, refuse_other_format
from htagraph.readers.kineto.event_kinds import KIND_OF_CATEGORY, LAUNCH_FLOWS
from htagraph.readers.nsys.export import is_nsys
from htagraph.readers.storage import is_file, is_remote, name_of, path_of
from htagraph.run.graph import TraceGraph
from htagraph.writers.answering import answers
from htagraph.writers.notebook_cell import table_html


def _reader(name: str) -> Reader:
    """The reader of a package in `readers`, imported with the first file that needs it."""

    def read(source: str | Path | bytes, **options: Any) -> Recording:  # noqa: ANN401
        reader: Reader = getattr(import_module(f"htagraph.readers.{name}.reader"), f"read_{name}")
        return reader(source, **options)

    return read


_KINETO = _reader("kineto")

_READERS: tuple[tuple[Callable[[str | Path | bytes], bool], Reader], ...] = (
    (is_other_format, refuse_other_format),
    (is_nsys, _reader("nsys")),
    (is_perfetto, _reader("perfetto")),
    (lambda _: True, _KINETO),  # last: its errors identify other formats
)
"""Tests whether a source is of a format, and readers of it; the first match reads it."""

_NAMED_BY_USERS = ("user_annotation",)
"""Categories of ranges that programs name, including the profiler's steps."""


@dataclass(frozen=True, repr=False)
class Trace:
    """One rank as it was recorded; made by `load`, or from events in memory.

    Parameters
    ----------
    recording : Recording
        Events as columns, and what else the reader found in the file.
    """

    recording: Recording

    @classmethod
    def from_events(cls, events: EventTable, *, rank: int = 0) -> Trace:
        """A trace of events in memory.

        Parameters
        ----------
        events : EventTable
        rank : int, default=0

        Returns
        -------
        Trace
        """
        return cls(Recording(events, rank))

    @property
    def rank(self) -> int:
        """Rank of the process in its job."""
        return self.recording.rank

    @property
    def rank_source(self) -> str:
        """Where the rank was found: ``distributedInfo``, ``file name``, ``default``, ``given``."""
        return self.recording.rank_source

    @property
    def world_size(self) -> int | None:
        """Number of ranks of the job, None if the file does not record it."""
        return self.recording.world_size

    @property
    def path(self) -> Path | None:
        """The file of the trace, None for content in memory."""
        origin = self.recording.origin
        return origin.path if origin else None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Header of the file: every top-level key except ``traceEvents``."""
        origin = self.recording.origin
        return origin.metadata if origin else {}

    @property
    def skipped(self) -> Mapping[str, int]:
        """Number of events that were not loaded, by category or reason."""
        return self.recording.skipped

    @property
    def has_unread_stacks(self) -> bool:
        """Whether the file has Python stacks that ``load(stacks=True)`` would read."""
        return self.skipped.get(STACKS, 0) > 0

    @cached_property
    @answers(EVENTS)
    def events(self) -> pd.DataFrame:
        """All events, schema `frames.EVENTS`."""
        return self.recording.events.frame()

    @cached_property
    @answers(STEPS)
    def steps(self) -> pd.DataFrame:
        """Steps, schema `frames.STEPS`; empty if nothing marks them."""
        return find_steps(self.recording.events)

    @property
    @answers(REPAIRS)
    def repairs(self) -> pd.DataFrame:
        """Repaired or skipped defects of the file, schema `frames.REPAIRS`."""
        repairs = self.recording.repairs
        return REPAIRS.frame(
            {name: [getattr(repair, name) for repair in repairs] for name in REPAIRS.columns}
        )

    @cached_property
    @answers(SIZES)
    def sizes(self) -> pd.DataFrame:
        """How much of the file each category takes, largest first; schema `frames.SIZES`."""
        events, n_bytes = self.recording.events, self.recording.n_bytes
        n_symbols = len(events.symbols)
        counts = np.bincount(events.category, minlength=n_symbols)
        of_flows = np.bincount(events.flows.category, minlength=n_symbols)
        by_kind = events.category.astype(np.int64) * len(EventKind) + events.kind
        kinds = np.bincount(by_kind, minlength=n_symbols * len(EventKind))
        kinds = kinds.reshape(n_symbols, len(EventKind)).argmax(axis=1)
        texts = [text or "no category" for text in events.symbols.texts]
        loaded, kind = {}, dict.fromkeys(LAUNCH_FLOWS, "flow") | {STACKS: EventKind.PYTHON.label}
        for code in np.flatnonzero(counts + of_flows).tolist():
            loaded[texts[code]] = int(counts[code] + of_flows[code])
            kind[texts[code]] = EventKind(kinds[code]).label if counts[code] else "flow"
        every = list({**loaded, **self.skipped, **n_bytes})
        n = [loaded.get(name, 0) + self.skipped.get(name, 0) for name in every]
        size = [n_bytes.get(name, 0) for name in every] if n_bytes else n
        frame = SIZES.frame(
            {
                "category": every,
                "n_loaded": [loaded.get(name, 0) for name in every],
                "n_skipped": [self.skipped.get(name, 0) for name in every],
                "n_bytes": [n_bytes.get(name, -1) for name in every],
                "share": np.array(size, dtype=np.float64) / max(sum(size), 1),
                "kind": [kind.get(name, "") for name in every],
            }
        )
        return frame.sort_values(["share", "category"], ascending=[False, True], ignore_index=True)

    @property
    @answers(ATTACHED)
    def attached(self) -> pd.DataFrame:
        """Files of other instruments that were added, schema `frames.ATTACHED`."""
        attached = self.recording.attached
        frame = {name: [getattr(one, name) for one in attached] for name in ATTACHED.columns}
        return ATTACHED.frame({**frame, "path": [str(one.path) for one in attached]})

    def args(self, events: npt.ArrayLike) -> list[dict[str, Any]]:
        """The ``args`` of events as in the file; reads the file again.

        Parameters
        ----------
        events : array_like of int
            Rows of the event table.

        Returns
        -------
        list of dict
            Empty dicts for events without any, or if the trace was not read from a file.
        """
        rows = np.atleast_1d(np.asarray(events, dtype=np.int64))
        origin = self.recording.origin
        return origin.args.decode(rows) if origin and origin.args else [{} for _ in rows]

    def compile(
        self,
        *,
        class_rules: Sequence[ClassRule] = (),
        infer: bool = True,
        data_loading: Iterable[str] | None = None,
    ) -> TraceGraph:
        """The typed graph of the trace.

        Parameters
        ----------
        class_rules : sequence of ClassRule
            Rules that tell which kernels compute, communicate or move memory; tried before the
            built-in ones.
        infer : bool, default=True
            Whether to infer waits that were not recorded from order and times. Each inferred edge
            is labelled by its rule (`Rule`), and ``graph.quality()`` counts them.
        data_loading : iterable of str, optional
            Globs of host ranges that load data, besides those with usual names; by default
            ``data-loading`` in ``[tool.htagraph]`` of the nearest ``pyproject.toml``.

        Returns
        -------
        TraceGraph

        Raises
        ------
        QueryError
            If that setting is no list of names.
        """
        begin_stage("Compiling the graph")
        dag = compile_events(self.recording.events, class_rules=class_rules, infer=infer)
        kinds = (KIND_OF_CATEGORY.get(category) for category in self.skipped)
        notes = {
            **dag.notes,
            "n_unread_stacks": self.skipped.get(STACKS, 0),
            "is_part": int(OUTSIDE in self.skipped or not set(DEVICE_KINDS).isdisjoint(kinds)),
        }
        loading = data_loading_names(data_loading)
        dag = replace(dag, notes=notes, repairs=self.recording.repairs, data_loading=loading)
        return TraceGraph(dag, None, self.rank, self.recording.origin)

    def __repr__(self) -> str:
        """Summarise the trace in a line."""
        events = self.recording.events
        span_ns = int(events.end_ns.max() - events.ts_ns.min()) if len(events) else 0
        name = f"{name_of(self.path)}, " if self.path else ""
        return (
            f"Trace({name}rank={self.rank}, {human_count(len(events), 'event')}, "
            f"{human_count(len(self.steps), 'step')}, {human_duration(span_ns)})"
        )

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        kinds = self.recording.events.kind
        present = [(kind.label, int(np.count_nonzero(kinds == kind))) for kind in EventKind]
        rows = [(in_words(label), f"{count:,}") for label, count in present if count]
        if self.recording.repairs:
            rows.append(("repairs of the file", f"{len(self.recording.repairs):,}"))
        return table_html(rows, title=repr(self))


def load(
    source: str | Path | bytes,
    *,
    stacks: bool = False,
    categories: Collection[str] | None = None,
    window: str | tuple[int, int] | None = None,
    instance: int | None = None,
    beside: Iterable[str | Path] = (),
    cache: str | Path | None = None,
    progress: Listener | None = None,
) -> Trace:
    """The trace of one rank, read from the file of a profiler.

    Parameters
    ----------
    source : str, Path or bytes
        A trace of the PyTorch profiler, plain or gzip whatever its name; or its content. Or an
        SQLite export of Nsight Systems (of several ranks, ``run.sqlite/rank-1``); a Perfetto trace
        (``.pftrace``) of htagraph or another tool; any Chrome trace. A URL, such as
        ``s3://bucket/rank-0.json.gz``, is opened by ``fsspec``.
    stacks : bool, default=False
        Whether to load Python frames (``python_function``), which are most of a file that has them.
    categories : collection of str, optional
        Load only events of these categories.
    window : (int, int) or str, optional, unit=ns
        Load only events that overlap ``[start_ns, end_ns)``; or the name of a step or another
        range, as in `TraceGraph.window`, which loads as much again before and after it.
    instance : int, optional
        Which of several ranges of that name; by default the first, with a warning.
    beside : iterable of str or Path, optional
        Files of other instruments about the same run, and traces in which its graphs were captured:
        `Trace.attached` lists what they added.
    cache : str or Path, optional
        Folder that keeps the events of the file as columns: with it, the next window is read
        without the rest.
    progress : callable, optional
        Called with a `Progress` now and then; ``print`` shows it.

    Returns
    -------
    Trace

    Raises
    ------
    TraceFormatError
        If the file is no trace; the message tells where and what to do.
    TraceLimitError
        If it exceeds a documented limit.
    WindowNotFoundError
        If nothing has the name of the window.
    QueryError
        If the window ends before it starts, or its name needs the whole trace.

    Examples
    --------
    >>> event = b'{"ph": "X", "cat": "cpu_op", "name": "mm", "pid": 1, "tid": 1, "ts": 5, "dur": 2}'
    >>> load(b'{"traceEvents": [' + event + b"]}")
    Trace(rank=0, 1 event, 0 steps, 2.00 us)
    """
    source = source if isinstance(source, bytes) else path_of(source)
    read = _reader_of(source)
    with listening(progress):
        begin_stage("Reading" if isinstance(source, bytes) else f"Reading {name_of(Path(source))}")
        is_kept = cache is not None and window is not None and categories is None
        is_kept = is_kept and read is _KINETO
        if is_kept and isinstance(source, Path) and not is_remote(source) and is_file(source):
            read = _of_chunks(source, Path(str(cache)).expanduser())
        if isinstance(window, str):
            window = _surroundings(source, read, window, instance)
        elif window is not None:
            window = bounds_of(window)
        recording = read(source, stacks=stacks, categories=categories, window=window)
        if files := list(beside):
            from htagraph.readers.beside import with_beside  # noqa: PLC0415  deferred: few need it

            recording = with_beside(recording, files)
    return Trace(recording)


def is_kineto(source: str | Path | bytes) -> bool:
    """Whether the Kineto reader reads a file."""
    return _reader_of(source) is _KINETO


def _reader_of(source: str | Path | bytes) -> Reader:
    """The reader of a file, by its format."""
    return next(reader for is_of_format, reader in _READERS if is_of_format(source))


def _of_chunks(path: Path, folder: Path) -> Reader:
    """Reader of one file: of a window by its chunks, of all else as without them."""
    from htagraph.run.chunks import Chunks  # noqa: PLC0415  only where kept

    try:
        chunks = Chunks(path, folder)
    except OutputError as exc:
        warnings.warn(f"nothing is kept: {exc}", IncompleteTraceWarning, stacklevel=3)
        return _KINETO

    def read(source: str | Path | bytes, **options: Any) -> Recording:  # noqa: ANN401
        if options["window"] is not None:
            return chunks.read(EventFilter(**options))
        if options["categories"] == _NAMED_BY_USERS:
            return chunks.named_ranges()
        return _KINETO(source, **options)

    return read


def _surroundings(
    source: str | Path | bytes, read: Reader, name: str, instance: int | None
) -> tuple[int, int]:
    """The range with a name, and as much again before and after it.

    Most names are of user ranges, which are few: only those are read at first.
    """

    def ranges(categories: Collection[str] | None) -> TraceGraph:
        everything = read(source, stacks=False, categories=categories, window=None)
        return Trace(everything).compile(infer=False)

    graph = ranges(_NAMED_BY_USERS)
    of_whole = name in (MEDIAN, WHOLE) or times_in(name) is not None
    if of_whole and not is_annotation(graph.dag, name):
        raise QueryError(
            f"the window {name!r} needs the whole trace.",
            hint="name a step, or give (start_ns, end_ns); or load all, and use graph.window.",
        )
    try:
        found = graph.window(name, instance=instance).interval
    except WindowNotFoundError:
        if PROFILER_STEP.search(name):  # no other range is a step
            raise
        found = ranges(None).window(name, instance=instance).interval
    return found.start_ns - found.dur_ns, found.end_ns + found.dur_ns
