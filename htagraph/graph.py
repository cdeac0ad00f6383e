"""TraceGraph: the typed graph of one rank, or of a window of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from htagraph.model.dag import Dag
from htagraph.model.frames import categorical
from htagraph.model.kinds import EdgeKind
from htagraph.model.source import TraceSource
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window, WindowClock
from htagraph.path import CriticalPath
from htagraph.queries.edges import edge_frame
from htagraph.queries.find_window import find_window
from htagraph.queries.quality import quality
from htagraph.queries.steps import find_steps
from htagraph.queries.windowed import windowed_edges
from htagraph.writers.dot import graph_dot

if TYPE_CHECKING:
    import rustworkx

__all__ = ["TraceGraph"]


@dataclass(frozen=True, repr=False)
class TraceGraph:
    """The graph of one rank: what happened, and what had to happen before what.

    Parameters
    ----------
    dag : Dag
    at : Window
        What questions are asked of.
    rank : int
    source : TraceSource, optional
        The original trace.
    """

    dag: Dag
    at: Window
    rank: int = 0
    source: TraceSource | None = None

    @property
    def dur_ns(self) -> int:
        """Length of the window."""
        return self.at.dur_ns

    @cached_property
    def _event_rows(self) -> np.ndarray:
        """Events that overlap the window."""
        events = self.dag.events
        if self.at == self.dag.span:
            return np.arange(len(events))
        inside = (events.ts_ns < self.at.end_ns) & (events.end_ns > self.at.start_ns)
        inside |= (events.dur_ns == 0) & (events.ts_ns >= self.at.start_ns) & (events.ts_ns < self.at.end_ns)
        return np.flatnonzero(inside)

    @cached_property
    def _edge_rows(self) -> np.ndarray:
        """Edges that overlap the window."""
        edges, times = self.dag.edges, self.dag.events.node_ts_ns
        if self.at == self.dag.span:
            return np.arange(len(edges))
        return np.flatnonzero((times[edges.tail] < self.at.end_ns) & (times[edges.head] > self.at.start_ns))

    @property
    def events(self) -> pd.DataFrame:
        """Events that overlap the window, schema `frames.EVENTS`; not clipped."""
        return self.dag.events.frame(self._event_rows)

    @property
    def edges(self) -> pd.DataFrame:
        """Edges that overlap the window, schema `frames.EDGES`."""
        return edge_frame(self.dag, self._edge_rows)

    @property
    def rejected_edges(self) -> pd.DataFrame:
        """Edges that would run backward in time, with their skew; no answer uses them."""
        rejected = self.dag.rejected
        return pd.DataFrame(
            {
                "kind": categorical(rejected.edges.kind, EdgeKind.labels()),
                "tail_event": rejected.edges.tail.astype(np.int64) >> 1,
                "head_event": rejected.edges.head.astype(np.int64) >> 1,
                "skew_ns": rejected.skew_ns,
                "rule": rejected.edges.rule_names,
            }
        )

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Steps of the trace, schema `frames.STEPS`."""
        return find_steps(self.dag.events)

    def window(
        self, at: str | re.Pattern[str] | tuple[int, int], *, on: WindowClock = "host", instance: int = 0
    ) -> TraceGraph:
        """Return the graph of a part of the trace.

        Parameters
        ----------
        at : str, re.Pattern or (int, int)
            Name of a step or of any host range, a glob or regex for one, or ``(start_ns, end_ns)``.
        on : {"host", "device"}
            For a name: the host range ("why did the host take this long"), or the span of the device work launched in it
            ("why did the device").
        instance : int, default=0
            Which of several ranges of this name, in order of time; negative from the end.

        Returns
        -------
        TraceGraph

        Raises
        ------
        WindowNotFoundError
            If nothing has this name; the hint lists the steps.
        QueryError
            If the times are in the wrong order, or the pattern is no regular expression.
        """
        return replace(self, at=find_window(self.dag, at, on=on, instance=instance))

    def critical_path(self) -> CriticalPath:
        """Return the critical path of the window: segments that tile it, each what the next had to wait for."""
        return CriticalPath(self.dag, self.at, self.rank, self.source)

    def quality(self) -> pd.DataFrame:
        """Return what is linked, classified and recorded, and which answers are weaker; schema `frames.QUALITY`."""
        return quality(self.dag, self.at)

    def to_rustworkx(self) -> rustworkx.PyDiGraph:
        """Return the window's graph with one source and one sink as a rustworkx graph.

        Nodes carry ``(event, "start" | "end")``, or ``("source",)`` and ``("sink",)`` for the last two. Edges carry a dict
        of ``edge``, ``kind``, ``lag_ns`` and ``residual_ns``; the longest path over ``lag_ns + residual_ns`` is as long as
        the window.

        Returns
        -------
        rustworkx.PyDiGraph

        Notes
        -----
        About 1 us an edge: take a window of a large trace.
        """
        from htagraph.algorithms.reach import to_rustworkx  # noqa: PLC0415  deferred: few need rustworkx itself

        closed = windowed_edges(self.dag, self.at)
        labels = EdgeKind.labels()
        nodes: list[Any] = [(int(node) >> 1, "end" if node & 1 else "start") for node in closed.nodes]
        payload = (
            {"edge": edge, "kind": labels[kind], "lag_ns": lag, "residual_ns": residual}
            for edge, kind, lag, residual in zip(
                closed.edge.tolist(),
                closed.kind.tolist(),
                closed.lag_ns.tolist(),
                closed.residual_ns[closed.head].tolist(),
                strict=True,
            )
        )
        return to_rustworkx(closed.tail, closed.head, [*nodes, ("source",), ("sink",)], payload)

    def to_dot(self, out: str | Path | None = None, *, max_nodes: int = 300) -> str:
        """Return the window's graph as DOT, with the critical path marked, and write it if a file is given.

        Parameters
        ----------
        out : str or Path, optional
        max_nodes : int, default=300

        Returns
        -------
        str
            DOT text.

        Raises
        ------
        QueryError
            If the window has more nodes; the hint says how to narrow it.
        OutputError
            If the file cannot be written.
        """
        path = self.critical_path()
        return graph_dot(
            self.dag,
            self._edge_rows,
            critical=path.edges["edge"].to_numpy(),
            out=out,
            max_nodes=max_nodes,
            title=self.at.name,
        )

    def __repr__(self) -> str:
        """Say what is in the graph."""
        where = "" if self.at.name == self.dag.span.name else f"{self.at.name}, "
        return (
            f"TraceGraph(rank={self.rank}, {where}{human_count(len(self._event_rows), 'event')}, "
            f"{human_count(len(self._edge_rows), 'edge')}, {human_count(len(self.steps), 'step')}, "
            f"{human_duration(self.dur_ns)})"
        )
