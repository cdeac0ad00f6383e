"""The critical path of a window, without gap or overlap.

The walk follows binding edges from the end of the window back to its start (see
`htagraph.arrays.binding`). Work that began before the window is clipped at its start. Each edge
splits at its lag into a part that could not have been shorter, and a residual; a residual longer
than usual is an unknown wait, not overhead.

The code checks that segments tile the window to the nanosecond: shares of a path are shares of
measured time only if nothing is counted twice or missing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from htagraph.arrays.binding import walk_back
from htagraph.arrays.by_head import EdgeColumns
from htagraph.arrays.codes import gather
from htagraph.arrays.inner import inlined
from htagraph.arrays.intervals import not_tiled
from htagraph.arrays.passes import compiled
from htagraph.explain.edge_bounds import BoundRules, bound_of, explained
from htagraph.explain.segments import Segments, segment_frame
from htagraph.model.arrays import I32, I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, EdgeKind, EventKind, among
from htagraph.model.rules import Rule
from htagraph.model.window import Window

_AT_ONCE = 1 << 16
"""Edges of a part of a path. Changes only the speed."""

_BEFORE, _REST = int(Bound.WORK_FROM_BEFORE_THE_PROFILE), int(Bound.UNKNOWN_WAITS)


def _sink_edge(dag: Dag, window: Window) -> int:
    """Edge that crosses the end of the window, -1 for none; ties go to the last to start.

    Running kernels and calls take precedence over gaps, in which nothing is known to run. Waiting
    is not running.
    """
    edges, times = dag.edges, dag.events.node_ts_ns
    spans = among(edges.kind, (EdgeKind.SPAN, EdgeKind.THREAD)) & dag.is_work[edges.tail >> 1]
    spans &= edges.rule != Rule.BLOCKING_CALL
    crossing = np.flatnonzero(
        spans & (times[edges.tail] < window.end_ns) & (times[edges.head] > window.end_ns)
    )
    if not len(crossing):
        return -1
    event = edges.event[crossing]
    running = gather(dag.events.kind, event, EventKind.ANNOTATION) != EventKind.ANNOTATION
    keys = (crossing, edges.kind[crossing] == EdgeKind.SPAN, times[edges.tail[crossing]], running)
    return int(crossing[np.lexsort(keys)[-1]])


def last_node(dag: Dag, window: Window) -> int:
    """Node that a window ends with, else the last of work at or before its end; -1 for none.

    Ties: device work before host work, then the longest event, then the name.
    """
    if window.anchor >= 0:
        return window.anchor
    order, times = dag.order, dag.events.node_ts_ns
    end = bisect_right(order, window.end_ns, key=times.__getitem__)
    together: list[int] = []
    while end and not together:
        begin = bisect_left(order, times[order[end - 1]], hi=end, key=times.__getitem__)
        nodes = order[begin:end]
        together, end = nodes[dag.is_work[nodes >> 1]].tolist(), begin
    if not together:
        return -1
    names, events = dag.events.symbols.texts, dag.events

    def key(node: int) -> tuple[bool, int, str, int]:
        event = node >> 1
        return (
            bool(events.is_device[event]),
            int(events.dur_ns[event]),
            names[events.name[event]],
            node & 1,
        )

    return int(max(together, key=key))


def path_end(dag: Dag, window: Window) -> tuple[int, int]:
    """Node from which a path is walked back, and edge that crosses its end; -1 for none."""
    last = last_node(dag, window)
    if last < 0 or dag.events.node_ts_ns[last] != window.end_ns:
        under_way = _sink_edge(dag, window)
        if under_way >= 0:
            return int(dag.edges.tail[under_way]), under_way
    return last, -1


def _walk(dag: Dag, window: Window) -> tuple[I32, int]:
    """Edges of the path, earliest first, and its first node; the last may cross the end."""
    edges, times = dag.edges, dag.events.node_ts_ns
    last, under_way = path_end(dag, window)
    closing = np.array([under_way] if under_way >= 0 else [], dtype=np.int32)
    if last < 0:
        return closing, -1
    walked = walk_back(last, dag.binding, edges.tail, times, until_ns=window.start_ns)
    first = int(edges.tail[walked[0]]) if len(walked) else last
    return np.concatenate([walked, closing]), first


def path_edges(dag: Dag, window: Window) -> I32:
    """Rows of the edge table on the critical path of a window, earliest first."""
    return _walk(dag, window)[0]


def end_node(dag: Dag, window: Window) -> int:
    """Node at which the path of a window ends, -1 for none."""
    path = path_edges(dag, window)
    if not len(path):
        return last_node(dag, window)
    tail, head = int(dag.edges.tail[path[-1]]), int(dag.edges.head[path[-1]])
    return head if dag.events.node_ts_ns[head] <= window.end_ns else tail


@dataclass(frozen=True)
class Openings:
    """What precedes the first edge of paths; what all of them need is looked up once."""

    dag: Dag

    @cached_property
    def _host_opens_ns(self) -> int:
        """Time of the first host event, if device work without a recorded launch precedes it.

        Until then the device ran work from before the profile.
        """
        dag, events = self.dag, self.dag.events
        begins = int(events.ts_ns[events.is_host].min())
        unseen = events.is_device & (dag.launch < 0) & (events.ts_ns < begins)
        return begins if unseen.any() else np.iinfo(np.int64).min

    @cached_property
    def _pools(self) -> set[int]:
        """Threads that wait for work anywhere."""
        edges = self.dag.edges
        heads = edges.head[edges.rule == Rule.WAITS_FOR_WORK] >> 1
        return set(self.dag.events.lane[heads].tolist())

    def of(self, window: Window, first_node: int) -> tuple[int, int, int, int]:
        """Two segments before the first edge of a path: end of the first, end, bound and event.

        What released the first node is not recorded. The first segment, often empty, is what lies
        before the profile saw the host.
        """
        if first_node < 0:
            return window.start_ns, window.end_ns, Bound.UNKNOWN_WAITS, -1
        dag, event = self.dag, first_node >> 1
        end = min(max(int(dag.events.node_ts_ns[first_node]), window.start_ns), window.end_ns)
        if not dag.events.is_device[event]:
            opens = min(max(self._host_opens_ns, window.start_ns), end)
            if int(dag.events.lane[event]) in self._pools:
                return opens, end, Bound.WAITING_FOR_WORK, -1
            return opens, end, Bound.UNKNOWN_WAITS, event
        before = dag.launch[event] < 0
        bound = Bound.WORK_FROM_BEFORE_THE_PROFILE if before else Bound.UNKNOWN_WAITS
        return window.start_ns, end, bound, event


def critical_path(dag: Dag, window: Window) -> pd.DataFrame:
    """Segments of the critical path of a window in order of time; they tile it."""
    return critical_paths(dag, [window])


def critical_paths(dag: Dag, windows: Sequence[Window]) -> pd.DataFrame:
    """Segments of the critical paths of several windows, one after the other."""
    return segment_frame(dag, path_segments(dag, windows))


def path_segments(dag: Dag, windows: Sequence[Window]) -> Segments:
    """The same as `critical_paths`, in codes.

    Each window has two segments before the first edge of its path, two of each edge, up to where
    its mechanism explains it and beyond, and one after the last. Those of no length are left out.
    """
    walks = [_walk(dag, window) for window in windows]
    rows = np.concatenate([np.empty(0, dtype=np.int32), *(edges for edges, _ in walks)])
    openings = Openings(dag)
    ends = [
        (window.start_ns, window.end_ns, len(edges), *openings.of(window, first))
        for window, (edges, first) in zip(windows, walks, strict=True)
    ]
    return _filled(rows, ends, EdgeColumns.of(dag.edges.columns), BoundRules.of(dag))


def path_parts(dag: Dag, window: Window) -> Iterator[Segments]:
    """The segments of one window in parts, for sums: all at once are much memory."""
    walked, first = _walk(dag, window)
    edges, rules = EdgeColumns.of(dag.edges.columns), BoundRules.of(dag)
    since, opening = window.start_ns, Openings(dag).of(window, first)
    for begin in range(0, max(len(walked), 1), _AT_ONCE):
        rows, until = walked[begin : begin + _AT_ONCE], window.end_ns
        if begin + _AT_ONCE < len(walked):
            until = max(since, int(rules.node_ts_ns[edges.head[rows[-1]]]))
        yield _filled(rows, [(since, until, len(rows), *opening)], edges, rules)
        since, opening = until, (until, until, Bound.UNKNOWN_WAITS, -1)


def _filled(
    rows: I32, windows: Sequence[tuple[int, ...]], edges: EdgeColumns, rules: BoundRules
) -> Segments:
    """Segments of some edges; of each window, the numbers that `_fill` takes."""
    found = Segments.empty(2 * len(rows) + 3 * len(windows))
    of_windows = np.array(windows, dtype=np.int64).reshape(-1, 7)
    n, torn = _fill(rows, of_windows, edges, rules, found)
    if torn >= 0:
        raise not_tiled("the critical path", *windows[torn][:2])
    for column in found:
        column.resize(n, refcheck=False)
    return found


@compiled
def _fill(
    rows: I32, windows: I64, edges: EdgeColumns, rules: BoundRules, out: Segments
) -> tuple[int, int]:
    """Fill segments; return their number, and a window that they do not tile, -1 for none.

    Of each window: start, end, number of edges, and what `Openings` says.
    """
    n, last = 0, 0
    torn = -1
    for window in range(len(windows)):
        first = last
        last += windows[window, 2]
        n, tiles = added_window(n, out, windows[window], (rows, first, last), edges, rules)
        if not tiles:
            torn = window
    return n, torn


@inlined
def added_window(  # noqa: PLR0917 - compiled
    n: int,
    out: Segments,
    window: I64,
    path: tuple[I32, int, int],
    edges: EdgeColumns,
    rules: BoundRules,
) -> tuple[int, bool]:
    """Add the segments of a window; return how many there are, and whether these tile it.

    The window is a row as `_fill` takes them; the path a part of some rows of the edge table.
    """
    since, until, opens, opened = window[0], window[1], window[3], window[4]
    rows, first, last = path
    begun = n
    n = _added(n, out, (since, opens), (_BEFORE, -1, -1))
    n = _added(n, out, (opens, opened), (window[5], window[6], -1))
    closing = opened
    for position in range(first, last):
        edge = rows[position]
        event = edges.event[edge]
        begin = max(rules.node_ts_ns[edges.tail[edge]], since)
        end = min(rules.node_ts_ns[edges.head[edge]], until)
        known = min(max(explained(edge, edges, rules), begin), end)
        n = _added(n, out, (begin, known), (bound_of(edge, edges, rules), event, edge))
        n = _added(n, out, (known, end), (_REST, event, edge))
        closing = end
    n = _added(n, out, (closing, until), (_REST, -1, -1))
    reached = since
    tiles = True
    for segment in range(begun, n):
        if out.start_ns[segment] != reached:
            tiles = False
        reached += out.dur_ns[segment]
    return n, tiles and reached == until


@inlined
def _added(n: int, out: Segments, times: tuple[int, int], what: tuple[int, int, int]) -> int:
    """Add a segment (bound, event, edge) unless it has no length; return how many there are."""
    start, end = times
    if end <= start:
        return n
    out.start_ns[n] = start
    out.dur_ns[n] = end - start
    out.bound[n], out.event[n], out.edge[n] = what
    return n + 1
