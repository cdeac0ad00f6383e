"""Trace: what was recorded on one rank, and `load`, which reads it from a file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.compiler.classes import ClassRule
from htagraph.compiler.passes import compile_events
from htagraph.graph import TraceGraph
from htagraph.lookup.steps import find_steps
from htagraph.model.events import EventTable
from htagraph.model.frames import REPAIRS
from htagraph.model.source import TraceSource
from htagraph.model.units import human_count, human_duration
from htagraph.readers.kineto import KinetoTrace, read_kineto
from htagraph.readers.kineto.categories import STACKS

__all__ = ["Trace", "load"]


@dataclass(frozen=True, repr=False)
class Trace:
    """What was recorded on one rank; made by `load`, or from events that are at hand.

    Parameters
    ----------
    table : EventTable
        Events as columns.
    rank : int
    rank_source : str
        Where the rank was found: ``distributedInfo``, ``file name``, ``default`` or ``given``.
    file : KinetoTrace, optional
        What else was read from the file.
    """

    table: EventTable
    rank: int = 0
    rank_source: str = "given"
    file: KinetoTrace | None = field(default=None, compare=False)

    @classmethod
    def from_events(cls, events: EventTable, *, rank: int = 0) -> Trace:
        """Return a trace of events that are at hand.

        Parameters
        ----------
        events : EventTable
        rank : int, default=0

        Returns
        -------
        Trace
        """
        return cls(events, rank)

    @property
    def _source(self) -> TraceSource | None:
        if self.file is None:
            return None
        return TraceSource(
            self.file.args.source, self.file.base_time_ns, self.file.args, self.file.metadata
        )

    @property
    def path(self) -> Path | None:
        """File that the trace was read from."""
        return self.file.path if self.file else None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the file says beside events: every top-level key but ``traceEvents``."""
        return self.file.metadata if self.file else {}

    @property
    def skipped(self) -> Mapping[str, int]:
        """How many events were not loaded, by category."""
        return self.file.skipped if self.file else {}

    @property
    def has_unread_stacks(self) -> bool:
        """Whether the file has Python stacks that were not read: `load` with ``stacks=True`` does."""
        return self.skipped.get(STACKS, 0) > 0

    @cached_property
    def events(self) -> pd.DataFrame:
        """All events, schema `frames.EVENTS`."""
        return self.table.frame()

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Steps, schema `frames.STEPS`; empty where nothing marks them."""
        return find_steps(self.table)

    @property
    def repairs(self) -> pd.DataFrame:
        """What was wrong in the file and was repaired or set aside, schema `frames.REPAIRS`."""
        repairs = self.file.repairs if self.file else ()
        return REPAIRS.frame(
            {name: [getattr(repair, name) for repair in repairs] for name in REPAIRS.columns}
        )

    def args(self, events: npt.ArrayLike) -> list[dict[str, Any]]:
        """Return the ``args`` of events as the file has them; reads the file again.

        Parameters
        ----------
        events : array_like of int
            Rows of the event table.

        Returns
        -------
        list of dict
            Empty dicts where an event has none, or where the trace was not read from a file.
        """
        rows = np.atleast_1d(np.asarray(events, dtype=np.int64))
        return self.file.args.decode(rows) if self.file else [{} for _ in rows]

    def compile(self, *, class_rules: Sequence[ClassRule] = ()) -> TraceGraph:
        """Return the typed graph of the trace.

        Parameters
        ----------
        class_rules : sequence of ClassRule
            Rules that say which kernels compute, communicate or move memory; tried before the
            built-in ones.

        Returns
        -------
        TraceGraph
        """
        dag = compile_events(self.table, class_rules=class_rules)
        return TraceGraph(dag, dag.span, self.rank, self._source)

    def __repr__(self) -> str:
        """Say what is in the trace."""
        table = self.table
        span_ns = int(table.end_ns.max() - table.ts_ns.min()) if len(table) else 0
        name = f"{self.path.name}, " if self.path else ""
        return (
            f"Trace({name}rank={self.rank}, {human_count(len(table), 'event')}, "
            f"{human_count(len(self.steps), 'step')}, {human_duration(span_ns)})"
        )


def load(
    source: str | Path | bytes,
    *,
    stacks: bool = False,
    categories: Collection[str] | None = None,
    window: tuple[int, int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Trace:
    """Return the trace of one rank, read from a file of the PyTorch profiler.

    Parameters
    ----------
    source : str, Path or bytes
        ``.json`` or ``.json.gz``, whatever its name says; or the content itself.
    stacks : bool, default=False
        Whether to load Python frames (``python_function``), which are most of a file that has them.
    categories : collection of str, optional
        Load only events of these categories.
    window : (int, int), optional, unit=ns
        Load only events that overlap ``[start_ns, end_ns)``.
    progress : callable, optional
        Called with (bytes read, bytes in all) now and then.

    Returns
    -------
    Trace

    Raises
    ------
    TraceFormatError
        If the file is no trace; the message says where and what to do.
    TraceLimitError
        If it exceeds a stated limit.

    Examples
    --------
    >>> trace = load(b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": 2}]}')
    >>> trace
    Trace(rank=0, 1 event, 0 steps, 2.00 us)
    """
    read = read_kineto(
        source, stacks=stacks, categories=categories, window=window, progress=progress
    )
    return Trace(read.events, read.rank, read.rank_source, read)
