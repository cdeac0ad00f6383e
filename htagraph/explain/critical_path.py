"""The critical path of a window: what its length is made of, without gap or overlap.

The walk goes back from the window's end along binding edges to its start (see
`htagraph.algorithms.binding`). Work that began before the window is cut at its start; nothing is
dropped. Each edge splits at its lag into what could not have been shorter and the residual; what
exceeds the usual size of such a residual is called unexplained, not overhead.

That the segments tile the window is checked to the nanosecond, always: shares of a path are shares
of measured time only if nothing is counted twice or left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.binding import walk_back
from htagraph.algorithms.gather import gather
from htagraph.algorithms.tiling import check_tiling
from htagraph.lookup.attribution import DATA_LOADING, track_labels, under_pattern
from htagraph.lookup.host_collectives import given_ranges, host_collectives, host_ranges
from htagraph.lookup.naming import op_names
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.frames import SEGMENTS
from htagraph.model.kinds import Bound, EdgeKind, EventKind, KernelClass
from htagraph.model.rules import Evidence, Rule
from htagraph.model.schema import categorical
from htagraph.model.window import Window

__all__ = [
    "NO_EVENT_NAMES",
    "critical_path",
    "critical_paths",
    "edge_bounds",
    "end_node",
    "explained_until",
    "last_node",
    "path_edges",
]

I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

NO_EVENT_NAMES = {
    Bound.PYTHON_GAP: "(host gap)",
    Bound.LAUNCHED_BEFORE_CAPTURE: "(before the capture)",
    Bound.UNEXPLAINED: "(unexplained)",
    Bound.WAITING_FOR_WORK: "(waits for work)",
}
"""Name of a segment that belongs to no event."""

_CLASS_BOUND = np.zeros(len(KernelClass), dtype=np.int8)
_CLASS_BOUND[KernelClass.COMPUTE] = Bound.COMPUTE
_CLASS_BOUND[KernelClass.COMMUNICATION] = Bound.COMMUNICATION
_CLASS_BOUND[KernelClass.MEMORY] = Bound.MEMORY
_WAITS = (CallMeaning.DEVICE_SYNC, CallMeaning.STREAM_SYNC, CallMeaning.EVENT_SYNC)


class _Walk(NamedTuple):
    """Edges of the path, earliest first; the last may reach beyond the window's end."""

    edges: I32
    first_node: int


def _sink_edge(dag: Dag, window: Window) -> int:
    """Edge that is under way when the window ends, -1 for none; of several, the last begun.

    Running device work and running calls come before gaps, in which nothing is known to run. Who
    waits does not run.
    """
    edges, times = dag.edges, dag.events.node_ts_ns
    spans = np.isin(edges.kind, (EdgeKind.SPAN, EdgeKind.THREAD)) & dag.is_work[edges.tail >> 1]
    spans &= ~np.isin(edges.rule, (Rule.BLOCKING_CALL, Rule.HANDED_OVER))
    crossing = np.flatnonzero(
        spans & (times[edges.tail] < window.end_ns) & (times[edges.head] > window.end_ns)
    )
    if not len(crossing):
        return -1
    event = edges.event[crossing]
    running = gather(dag.events.kind, event, EventKind.ANNOTATION) != EventKind.ANNOTATION
    keys = (crossing, edges.kind[crossing] == EdgeKind.SPAN, times[edges.tail[crossing]], running)
    return int(crossing[np.lexsort(keys)[-1]])


def last_node(dag: Dag, end_ns: int) -> int:
    """Last node of work at or before a time, -1 for none.

    Of several at one instant: device work before host work, then the longest event, then by name.
    """
    nodes = dag.order[dag.is_work[dag.order >> 1]]
    times = dag.events.node_ts_ns[nodes]
    position = int(np.searchsorted(times, end_ns, side="right")) - 1
    if position < 0:
        return -1
    together = nodes[np.searchsorted(times, times[position]) : position + 1].tolist()
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


def _walk(dag: Dag, window: Window) -> _Walk:
    """Binding edges of a window, from its start to its end."""
    edges, times = dag.edges, dag.events.node_ts_ns
    closing = np.empty(0, dtype=np.int32)
    last = window.anchor if window.anchor >= 0 else last_node(dag, window.end_ns)
    if (last < 0 or times[last] != window.end_ns) and (under_way := _sink_edge(dag, window)) >= 0:
        closing = np.array([under_way], dtype=np.int32)
        last = int(edges.tail[under_way])
    if last < 0:
        return _Walk(closing, -1)
    walked = walk_back(last, dag.binding, edges.tail, times, until_ns=window.start_ns)
    first = int(edges.tail[walked[0]]) if len(walked) else last
    return _Walk(np.concatenate([walked, closing]), first)


def path_edges(dag: Dag, window: Window) -> I32:
    """Rows of the edge table on the critical path of a window, earliest first."""
    return _walk(dag, window).edges


def end_node(dag: Dag, window: Window) -> int:
    """Node by the end of a window that the end waits for: where its path ends; -1 for none."""
    path = path_edges(dag, window)
    if not len(path):
        return window.anchor if window.anchor >= 0 else last_node(dag, window.end_ns)
    tail, head = int(dag.edges.tail[path[-1]]), int(dag.edges.head[path[-1]])
    return head if dag.events.node_ts_ns[head] <= window.end_ns else tail


def edge_bounds(dag: Dag, edges: EdgeTable) -> I8:
    """Bound of the time of each edge, before anything is called unexplained."""
    kind, event = edges.kind, edges.event.astype(np.int64)
    owner = np.maximum(event, 0)
    event_kind = gather(dag.events.kind, event)
    bound = np.full(len(edges), Bound.UNEXPLAINED, dtype=np.int8)
    ran = (kind == EdgeKind.SPAN) | edges.ran_until
    work = _CLASS_BOUND[dag.classification.kernel_class[owner]]
    host = kind == EdgeKind.THREAD
    gap = host & ((event < 0) | (event_kind == EventKind.ANNOTATION))
    is_sync_call = np.isin(call_meanings(dag.events)[owner], _WAITS) & (
        event_kind == EventKind.RUNTIME
    )
    ranges = np.union1d(host_ranges(dag), host_collectives(dag))
    on_worker, _ = given_ranges(dag, ranges)
    # Between a receive and its wait, the caller's own thread may do other work.
    meets = host & (np.isin(event, on_worker) | (edges.head == 2 * event + 1))
    meets &= np.isin(event, ranges)
    loads = host & under_pattern(dag, np.where(host, event, -1), DATA_LOADING)
    bound[kind == EdgeKind.LAUNCH] = Bound.LAUNCH
    bound[kind == EdgeKind.STREAM] = Bound.KERNEL_GAP
    bound[np.isin(kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC))] = Bound.SYNC
    bound[ran] = work[ran]
    bound[kind == EdgeKind.CONTENTION] = Bound.DEVICE_FULL
    bound[kind == EdgeKind.SOURCE] = Bound.LAUNCHED_BEFORE_CAPTURE
    bound[kind == EdgeKind.QUEUE] = Bound.LAUNCH
    bound[kind == EdgeKind.FLOW] = Bound.PYTHON_GAP
    bound[host] = Bound.HOST
    bound[host & is_sync_call] = Bound.SYNC
    bound[gap] = Bound.PYTHON_GAP
    bound[edges.rule == Rule.WAITS_FOR_WORK] = Bound.WAITING_FOR_WORK
    bound[meets] = Bound.COMMUNICATION
    bound[loads & ~meets] = Bound.DATA_LOADING
    return bound


def explained_until(dag: Dag, edges: EdgeTable) -> I64:
    """Time until which each edge's own mechanism explains the wait; later is unexplained.

    A launch is explained while its call still runs; beyond that, and for gaps between work that was
    already enqueued, up to the usual size of such a delay in this trace.
    """
    times, calibration = dag.events.node_ts_ns, dag.calibration
    tail, head, kind = edges.tail, edges.head, edges.kind
    until = times[head].copy()
    after_lag = times[tail] + edges.lag_ns
    launch = kind == EdgeKind.LAUNCH
    call_end = np.where(launch, dag.events.end_ns[tail >> 1], after_lag)
    known = np.minimum(np.maximum(after_lag, call_end), until)
    device_wait = (kind == EdgeKind.SYNC) & dag.events.is_device[head >> 1]
    queued = (kind == EdgeKind.STREAM) & (edges.rule == Rule.STREAM_ORDER)
    usual = np.select(
        [launch, device_wait, queued],
        [calibration.launch_usual_ns, calibration.launch_usual_ns, calibration.stream_usual_ns],
        default=np.iinfo(np.int64).max // 4,
    )
    return np.where(until - known > usual, known, until)


def _host_opens_ns(dag: Dag) -> int:
    """Time of the first host event, if device work was recorded before it, which it did not launch.

    Until then the capture saw only the device, at work on what had been launched before.
    """
    events = dag.events
    if not events.is_host.any():
        return np.iinfo(np.int64).min
    begins = int(events.ts_ns[events.is_host].min())
    unseen = events.is_device & (dag.launch < 0) & (events.ts_ns < begins)
    return begins if unseen.any() else np.iinfo(np.int64).min


def _is_of_pool(dag: Dag, event: int) -> bool:
    """Whether the thread of an event waits for work anywhere."""
    edges, lane = dag.edges, dag.events.lane
    heads = edges.head[edges.rule == Rule.WAITS_FOR_WORK] >> 1
    return bool((lane[heads] == lane[event]).any())


def _opening(dag: Dag, window: Window, walk: _Walk) -> tuple[int, int, int, int]:
    """Two segments before the first edge of the path: end of the first, end, bound and event.

    What released the first node is not recorded. The first segment, often empty, is what lies
    before the capture saw the host.
    """
    if walk.first_node < 0:
        return window.start_ns, window.end_ns, Bound.UNEXPLAINED, -1
    event = walk.first_node >> 1
    end = min(max(int(dag.events.node_ts_ns[walk.first_node]), window.start_ns), window.end_ns)
    if not dag.events.is_device[event]:
        opens = min(max(_host_opens_ns(dag), window.start_ns), end)
        if _is_of_pool(dag, event):
            return opens, end, Bound.WAITING_FOR_WORK, -1
        return opens, end, Bound.UNEXPLAINED, event
    before = dag.launch[event] < 0
    bound = Bound.LAUNCHED_BEFORE_CAPTURE if before else Bound.UNEXPLAINED
    return window.start_ns, end, bound, event


def critical_path(dag: Dag, window: Window) -> pd.DataFrame:
    """Segments of the critical path of a window; they tile it.

    Parameters
    ----------
    dag : Dag
    window : Window

    Returns
    -------
    DataFrame, schema `frames.SEGMENTS`
        In order of time. ``dur_ns`` adds up to the window, and each row starts where the one before
        ended.

    Raises
    ------
    GraphError
        If the segments do not tile the window: a defect of this package.
    """
    return critical_paths(dag, [window])


def critical_paths(dag: Dag, windows: Sequence[Window]) -> pd.DataFrame:
    """Segments of the critical paths of several windows, one after the other.

    Parameters
    ----------
    dag : Dag
    windows : sequence of Window

    Returns
    -------
    DataFrame, schema `frames.SEGMENTS`

    Raises
    ------
    GraphError
        If the segments of a window do not tile it: a defect of this package.
    """
    walks = [_walk(dag, window) for window in windows]
    rows = np.concatenate([np.empty(0, dtype=np.int32), *(walk.edges for walk in walks)])
    counts = [len(walk.edges) for walk in walks]
    number = np.repeat(np.arange(len(windows)), counts)
    edges, times = dag.edges, dag.events.node_ts_ns
    tail, head = times[edges.tail[rows]], times[edges.head[rows]]
    bounds_ns = np.array(
        [(window.start_ns, window.end_ns) for window in windows], dtype=np.int64
    ).reshape(-1, 2)
    begin, end = np.maximum(tail, bounds_ns[number, 0]), np.minimum(head, bounds_ns[number, 1])
    lag_end = np.clip(tail + edges.lag_ns[rows], begin, end)
    walked_edges = edges.take(rows)
    known_end = np.clip(explained_until(dag, walked_edges), begin, end)
    openings = np.array(
        [_opening(dag, window, walk) for window, walk in zip(windows, walks, strict=True)],
        dtype=np.int64,
    ).reshape(-1, 4)
    last = np.cumsum(counts) - 1
    opens, closing = openings[:, 0], openings[:, 1].copy()
    walked = np.array(counts, dtype=np.int64) > 0
    closing[walked] = end[last[walked]]
    every, none = np.arange(len(windows)), np.full(len(windows), -1)
    place = np.arange(len(rows))
    unexplained = Bound.UNEXPLAINED
    piece = pd.DataFrame(
        {
            "window": np.concatenate([every, every, number, number, every]),
            "place": np.concatenate([none, none, place, place, np.full(len(windows), len(rows))]),
            "start_ns": np.concatenate([bounds_ns[:, 0], opens, begin, known_end, closing]),
            "end_ns": np.concatenate([opens, openings[:, 1], known_end, end, bounds_ns[:, 1]]),
            "lag_end_ns": np.concatenate([bounds_ns[:, 0], opens, lag_end, known_end, closing]),
            "bound": np.concatenate(
                [
                    np.full(len(every), Bound.LAUNCHED_BEFORE_CAPTURE),
                    openings[:, 2],
                    edge_bounds(dag, walked_edges),
                    np.full(len(rows), unexplained),
                    np.full(len(every), unexplained),
                ]
            ),
            "event": np.concatenate(
                [none, openings[:, 3], edges.event[rows], edges.event[rows], none]
            ),
            "edge": np.concatenate([none, none, rows, rows, none]),
        }
    )
    piece = piece[piece["end_ns"] > piece["start_ns"]].sort_values(
        ["window", "start_ns", "place"], kind="stable"
    )
    start_ns, end_ns, of = (
        piece[name].to_numpy(np.int64) for name in ("start_ns", "end_ns", "window")
    )
    check_tiling("the critical path", start_ns, end_ns, (bounds_ns[:, 0], bounds_ns[:, 1]), of)
    return _describe(dag, piece)


def _describe(dag: Dag, piece: pd.DataFrame) -> pd.DataFrame:
    """Pieces of the path with their names, as a frame of segments."""
    edge = piece["edge"].to_numpy(np.int64)
    event = piece["event"].to_numpy(np.int64)
    bound = piece["bound"].to_numpy(np.int64)
    start, end = piece["start_ns"].to_numpy(np.int64), piece["end_ns"].to_numpy(np.int64)
    lag = np.clip(piece["lag_end_ns"].to_numpy(np.int64), start, end) - start
    kind = gather(dag.edges.kind, edge, EdgeKind.SOURCE)
    rule = gather(dag.edges.rule, edge, Rule.WINDOW_START)
    rule[(bound == Bound.LAUNCHED_BEFORE_CAPTURE) & (edge < 0)] = Rule.LAUNCHED_BEFORE_CAPTURE
    rule[(bound == Bound.WAITING_FOR_WORK) & (edge < 0)] = Rule.WAITS_FOR_WORK
    name = np.array([NO_EVENT_NAMES.get(member, "(host gap)") for member in Bound], dtype=object)[
        bound
    ]
    name[event >= 0] = dag.events.names(event[event >= 0])
    where = np.where(event >= 0, event, gather(dag.edges.head, edge) >> 1)
    return SEGMENTS.frame(
        {
            "start_ns": start,
            "dur_ns": end - start,
            "bound": categorical(bound, Bound.labels()),
            "kind": categorical(kind, EdgeKind.labels()),
            "lag_ns": lag,
            "residual_ns": end - start - lag,
            "event": event,
            "name": name,
            "op": op_names(dag, event),
            "track": track_labels(dag, where.astype(np.int64)),
            "edge": edge,
            "rule": categorical(rule, Rule.labels()),
            "is_inferred": np.isin(rule, Rule.on(Evidence.INFERRED)),
        }
    ).reset_index(drop=True)
