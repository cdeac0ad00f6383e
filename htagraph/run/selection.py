"""Selection: an immutable set of events, and the patterns that `match` is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.reach import ancestors, descendants
from htagraph.errors import MissingEventsError, QueryError
from htagraph.lookup.attribution import track_labels
from htagraph.lookup.matching import linked_events
from htagraph.lookup.patterns import Hop, Pattern
from htagraph.lookup.selecting import events_in, tree_parent
from htagraph.lookup.windowed import edge_frame
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.frames import EDGES, EVENTS
from htagraph.model.kinds import EdgeKind
from htagraph.model.recording import Origin
from htagraph.model.symbols import Names
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window
from htagraph.writers.answering import answers

if TYPE_CHECKING:
    from htagraph.arrays.rustworkx_graphs import PyDiGraph

Via = str | tuple[str, ...] | None


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """A set of events of a graph, made by `TraceGraph.select`.

    Sets of one graph combine with ``& | - ^`` and ``~`` (the rest of the window); ``len``,
    ``in`` and ``==`` work as for sets.

    Parameters
    ----------
    dag : Dag
    window : Window
    rows : ndarray of shape (n,), dtype=int64
        Rows of the event table, ascending, each once.
    origin : Origin, optional
        The file that the trace was read from, for `to_chrome_json`.

    Examples
    --------
    >>> from htagraph import Trace, synth
    >>> graph = Trace.from_events(synth.timeline('''
    ...     cpu 1    |[aten::linear [launch >a]]  [aten::relu [launch >b]]
    ...     stream 7 |                     [gemm <a]              [relu <b]
    ... ''')).compile()
    >>> graph.select(name="aten::linear").follow("LAUNCH").events["name"].tolist()
    ['gemm']
    >>> len(graph.select(kind="kernel") - graph.select(name="gemm"))
    1
    """

    dag: Dag
    window: Window
    rows: I64
    origin: Origin | None = None

    def __post_init__(self) -> None:
        """Freeze the rows."""
        self.rows.setflags(write=False)

    def _of(self, rows: npt.NDArray[np.integer]) -> Selection:
        return Selection(self.dag, self.window, np.unique(rows.astype(np.int64)), self.origin)

    def _mask(self) -> Bools:
        mask = np.zeros(len(self.dag.events), dtype=bool)
        mask[self.rows] = True
        return mask

    def _same_graph(self, other: Selection) -> Selection:
        if other.dag is not self.dag:
            raise QueryError(
                "selections of different graphs cannot be combined.", hint="select from one graph."
            )
        return other

    def __and__(self, other: Selection) -> Selection:
        """The events of both."""
        return self._of(np.intersect1d(self.rows, self._same_graph(other).rows))

    def __or__(self, other: Selection) -> Selection:
        """The events of either."""
        return self._of(np.union1d(self.rows, self._same_graph(other).rows))

    def __sub__(self, other: Selection) -> Selection:
        """The events of the first that are not of the second."""
        return self._of(np.setdiff1d(self.rows, self._same_graph(other).rows))

    def __xor__(self, other: Selection) -> Selection:
        """The events of exactly one."""
        return self._of(np.setxor1d(self.rows, self._same_graph(other).rows))

    def __invert__(self) -> Selection:
        """The other events of the window."""
        return self._of(np.setdiff1d(events_in(self.dag, self.window), self.rows))

    def __len__(self) -> int:
        """The number of events."""
        return len(self.rows)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the rows."""
        return iter(self.rows.tolist())

    def __contains__(self, event: object) -> bool:
        """Whether an event (its row) is selected."""
        return isinstance(event, int | np.integer) and bool((self.rows == event).any())

    def __eq__(self, other: object) -> bool:
        """Whether both select the same events of the same graph."""
        return (
            isinstance(other, Selection)
            and other.dag is self.dag
            and np.array_equal(self.rows, other.rows)
        )

    def __hash__(self) -> int:
        """Hash by content."""
        return hash((id(self.dag), self.rows.tobytes()))

    @property
    @answers(EVENTS)
    def events(self) -> pd.DataFrame:
        """The events, schema `frames.EVENTS`."""
        return self.dag.events.frame(self.rows)

    def _edge_rows(self) -> I64:
        mask = self._mask()
        return np.flatnonzero(mask[self.dag.edges.tail >> 1] & mask[self.dag.edges.head >> 1])

    @property
    @answers(EDGES)
    def edges(self) -> pd.DataFrame:
        """The edges among the events, schema `frames.EDGES`."""
        return edge_frame(self.dag, self._edge_rows())

    @property
    def sum_ns(self) -> int:
        """Sum of the durations; overlaps and nested events count more than once."""
        return int(self.dag.events.dur_ns[self.rows].sum())

    def follow(self, kind: str) -> Selection:
        """The events at the other end of edges of a kind that leave these.

        From an operator, ``LAUNCH`` leads to all device work launched under it.

        Parameters
        ----------
        kind : str
            An `EdgeKind` (``"LAUNCH"``), or ``"CHILD"``.
        """
        return self._of(linked_events(self.dag, [kind], tails=self._mask()).head)

    def back(self, kind: str) -> Selection:
        """The events from which edges of a kind lead to these.

        Parameters
        ----------
        kind : str
            An `EdgeKind`, or ``"CHILD"``. By ``LAUNCH``, device work leads back to its call and to
            all that enclose it.
        """
        return self._of(linked_events(self.dag, [kind], heads=self._mask()).tail)

    def children(self) -> Selection:
        """The events directly below these; of a launch call, its device work."""
        return self.follow("CHILD")

    def parents(self) -> Selection:
        """The events directly above these; of device work, its launch call."""
        parent = tree_parent(self.dag)[self.rows]
        return self._of(parent[parent >= 0])

    def _allowed(self, via: Via) -> Bools:
        if via is None:
            return np.ones(len(self.dag.edges), dtype=bool)
        kinds = (via,) if isinstance(via, str) else via
        return np.isin(self.dag.edges.kind, [int(EdgeKind.parse(kind)) for kind in kinds])

    def ancestors(self, *, via: Via = None) -> Selection:
        """The events that had to begin first: all with a chain of edges to the starts of these.

        Parameters
        ----------
        via : str or tuple of str, optional
            Edge kinds to follow; all by default.
        """
        return self._reached(ancestors, 2 * self.rows, via)

    def descendants(self, *, via: Via = None) -> Selection:
        """The events that had to wait: all with a chain of edges from the ends of these.

        Parameters
        ----------
        via : str or tuple of str, optional
            Edge kinds to follow; all by default. Some, such as ``LAUNCH``, leave the start of an
            event, so with `via` chains may also begin there.
        """
        ends = 2 * self.rows + 1
        nodes = ends if via is None else np.concatenate([2 * self.rows, ends])
        return self._reached(descendants, nodes, via)

    def _reached(
        self,
        spread: Callable[..., Bools],
        nodes: I64,
        via: Via,
    ) -> Selection:
        """The other events that chains of edges connect with nodes."""
        dag = self.dag
        seeds = np.zeros(2 * len(dag.events), dtype=bool)
        seeds[nodes] = True
        reached = spread(dag.order, dag.in_offsets, dag.edges.tail, self._allowed(via), seeds)
        return self._of(np.flatnonzero(reached) >> 1) - self

    def around(self, hops: int = 1) -> Selection:
        """These events, and those that so many edges lead from or to.

        Examples
        --------
        >>> from htagraph import Trace, synth
        >>> graph = Trace.from_events(synth.timeline('''
        ...     cpu 1    |[launch >a][launch >b][launch >c]
        ...     stream 7 |     [gemm <a   ][relu <b  ][copy <c  ]
        ... ''')).compile()
        >>> graph.find("relu").around().events["name"].tolist()
        ['cudaLaunchKernel', 'gemm', 'relu', 'copy']
        """
        mask = self._mask()
        tail, head = self.dag.edges.tail >> 1, self.dag.edges.head >> 1
        for _ in range(hops):
            leads, follows = mask[tail], mask[head]
            mask[head[leads]] = mask[tail[follows]] = True
        return self._of(np.flatnonzero(mask))

    def between(self, other: Selection) -> Selection:
        """The events on chains from these to others."""
        return self.descendants() & self._same_graph(other).ancestors()

    def to_chrome_json(self, out: str | Path) -> Path:
        """Write the events as a smaller trace, each as in the original.

        Launch arrows, thread names and the metadata of the file are kept.

        Parameters
        ----------
        out : str or Path
            ``.json``, or ``.json.gz`` to compress.

        Raises
        ------
        MissingEventsError
            If the graph was not made from a file.
        OutputError
            If the file cannot be written.
        """
        if self.origin is None or self.origin.args is None:
            raise MissingEventsError(
                "there is no original file to take the events from.",
                missing="file",
                hint="load the trace from a file.",
            )
        from htagraph.writers.chrome_json import write_subset  # noqa: PLC0415  deferred: few need it

        return write_subset(
            out,
            self.origin.args.raw(self.rows),
            self.dag.events,
            self.rows,
            launch=self.dag.launch,
            metadata=self.origin.metadata,
            base_time_ns=self.origin.base_time_ns,
            clock_shift_ns=self.dag.clock_shift_ns,
        )

    def to_dot(
        self,
        out: str | Path | None = None,
        *,
        max_nodes: int = 300,
        marked: Selection | None = None,
    ) -> str:
        """The events and the edges among them as DOT, and write it if a file is given.

        Each track is a lane. Edges that bind are bold, others say their slack; those of the
        window's critical path are red.

        Parameters
        ----------
        out : str or Path, optional
        max_nodes : int, default=300
        marked : Selection, optional
            Events with a thick border.

        Raises
        ------
        QueryError
            If there are more boxes.
        OutputError
            If the file cannot be written.
        """
        from htagraph.explain.critical_path import path_edges  # noqa: PLC0415  deferred
        from htagraph.writers.dot import graph_dot  # noqa: PLC0415  deferred: few need it

        return graph_dot(
            self.dag,
            self._edge_rows(),
            tracks=partial(track_labels, self.dag),
            critical=path_edges(self.dag, self.window),
            marked=() if marked is None else marked.rows,
            out=out,
            max_nodes=max_nodes,
            title=f"{human_count(len(self), 'event')} of {self.window.name}",
        )

    def to_rustworkx(self) -> PyDiGraph:
        """The events and the edges among them as a rustworkx graph.

        A node carries the tuple that `TraceGraph.to_rustworkx` describes, without ``at``; an edge a
        dict of ``edge``, ``kind`` and ``lag_ns``.
        """
        from htagraph.arrays.rustworkx_graphs import nodes_of, to_rustworkx  # noqa: PLC0415  deferred

        rows = self._edge_rows()
        edges = self.dag.edges
        rows = rows[(edges.tail[rows] >> 1) != (edges.head[rows] >> 1)]
        place = np.zeros(len(self.dag.events), dtype=np.int64)
        place[self.rows] = np.arange(len(self.rows))
        return to_rustworkx(
            place[edges.tail[rows] >> 1],
            place[edges.head[rows] >> 1],
            nodes_of(self.dag.events, self.rows, repeat("")),
            {
                "edge": rows.tolist(),
                "kind": np.array(EdgeKind.labels(), dtype=object)[edges.kind[rows]].tolist(),
                "lag_ns": edges.lag_ns[rows].tolist(),
            },
        )

    def __repr__(self) -> str:
        """Summary in one line."""
        return (
            f"Selection({human_count(len(self), 'event')} of {self.window.name}, "
            f"{human_duration(self.sum_ns)})"
        )


def op(
    name: Names | None = None,
    *,
    where: str | None = None,
    under: Names | None = None,
    on_path: bool | None = None,
) -> Pattern:
    """A pattern for a host operator.

    Parameters
    ----------
    name : str, re.Pattern, or tuple of them, optional
        Glob or regex, or several of which one has to match.
    where : str, optional
        Condition on the columns of events: ``"dur_ns > 1_000 and 'gemm' in name"``.
    under : as name, optional
        Below these in the call tree: nested in them, or launched from there.
    on_path : bool, optional
        On the window's critical path, or not.

    Returns
    -------
    Pattern
    """
    return Pattern("op", name, where, under, on_path)


def kernel(
    name: Names | None = None,
    *,
    where: str | None = None,
    under: Names | None = None,
    on_path: bool | None = None,
) -> Pattern:
    """A pattern for a device kernel; parameters are those of `op`."""
    return Pattern("kernel", name, where, under, on_path)


def launch(
    name: Names | None = None,
    *,
    where: str | None = None,
    under: Names | None = None,
    on_path: bool | None = None,
) -> Pattern:
    """A pattern for an API call that launched device work; parameters are those of `op`."""
    return Pattern("launch", name, where, under, on_path)


def collective(
    name: Names | None = None,
    *,
    where: str | None = None,
    under: Names | None = None,
    on_path: bool | None = None,
) -> Pattern:
    """A pattern for a communication kernel; parameters are those of `op`."""
    return Pattern("collective", name, where, under, on_path)


def hop(kind: str = "", *, at_least: int = 1, at_most: int = 1, backward: bool = False) -> Hop:
    """A hop along edges of some kinds, taken several times.

    Parameters
    ----------
    kind : str, optional
        An `EdgeKind`, or ``"CHILD"``, or several with ``|`` between them; any edge by default.
    at_least, at_most : int, default=1
    backward : bool, default=False
        From the head of the edges to their tail.

    Returns
    -------
    Hop

    Raises
    ------
    QueryError
        If a kind does not exist, or the numbers are in the wrong order.
    """
    return Hop(kind, at_least, at_most, backward)
