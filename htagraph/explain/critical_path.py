"""The critical path of a window: what its length is made of, without gap or overlap.

The walk goes back from the window's end along binding edges to its start. Work that began before
the window is cut at its start; nothing is dropped. Each edge splits at its lag into what could not
have been shorter and the residual; what exceeds the usual size of such a residual is called
unexplained, not overhead.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.binding import walk_back
from htagraph.errors import GraphError
from htagraph.lookup.attribution import DATA_LOADING, innermost, track_labels, under_pattern
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.dag import Dag
from htagraph.model.edges import RULES, rule_code
from htagraph.model.frames import SEGMENTS
from htagraph.model.kinds import Bound, EdgeKind, EventKind, KernelClass
from htagraph.model.schema import categorical
from htagraph.model.window import Window

__all__ = [
    "NO_EVENT_NAMES",
    "critical_path",
    "critical_paths",
    "edge_bounds",
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
}
"""What a segment is called that belongs to no event."""

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
    """Return the edge that is under way when the window ends, -1 for none: of several, the one that began last.

    Running device work and running calls come before gaps, in which nothing is known to run. Who
    waits does not run.
    """
    edges, times = dag.edges, dag.events.node_ts_ns
    spans = np.isin(edges.kind, (EdgeKind.SPAN, EdgeKind.THREAD)) & dag.is_work[edges.tail >> 1]
    spans &= ~np.isin(edges.rule, (rule_code("blocking call"), rule_code("handed over")))
    crossing = np.flatnonzero(
        spans & (times[edges.tail] < window.end_ns) & (times[edges.head] > window.end_ns)
    )
    if not len(crossing):
        return -1
    event = edges.event[crossing]
    running = (event >= 0) & (dag.events.kind[np.maximum(event, 0)] != EventKind.ANNOTATION)
    keys = (crossing, edges.kind[crossing] == EdgeKind.SPAN, times[edges.tail[crossing]], running)
    return int(crossing[np.lexsort(keys)[-1]])


def last_node(dag: Dag, end_ns: int) -> int:
    """Return the last node of work at or before a time, -1 for none.

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
    """Return the binding edges of a window, from its start to its end."""
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
    """Return the rows of the edge table on the critical path of a window, earliest first."""
    return _walk(dag, window).edges


def edge_bounds(dag: Dag, rows: I32) -> I8:
    """Return what the time of each edge goes to, before anything is called unexplained."""
    edges = dag.edges
    kind, event = edges.kind[rows], edges.event[rows].astype(np.int64)
    owner = np.maximum(event, 0)
    event_kind = np.where(event >= 0, dag.events.kind[owner], -1)
    bound = np.full(len(rows), Bound.UNEXPLAINED, dtype=np.int8)
    ran = (kind == EdgeKind.SPAN) | (edges.rule[rows] == rule_code("stream overlap"))
    work = _CLASS_BOUND[dag.classification.kernel_class[owner]]
    host = kind == EdgeKind.THREAD
    gap = host & ((event < 0) | (event_kind == EventKind.ANNOTATION))
    is_sync_call = np.isin(call_meanings(dag.events)[owner], _WAITS) & (
        event_kind == EventKind.RUNTIME
    )
    loads = host & under_pattern(dag, np.where(host, event, -1), DATA_LOADING)
    bound[ran] = work[ran]
    bound[kind == EdgeKind.LAUNCH] = Bound.LAUNCH
    bound[(kind == EdgeKind.STREAM) & ~ran] = Bound.KERNEL_GAP
    bound[kind == EdgeKind.SYNC] = Bound.SYNC
    bound[kind == EdgeKind.QUEUE] = Bound.LAUNCH
    bound[kind == EdgeKind.FLOW] = Bound.PYTHON_GAP
    bound[host] = Bound.HOST
    bound[host & is_sync_call] = Bound.SYNC
    bound[gap] = Bound.PYTHON_GAP
    bound[loads] = Bound.DATA_LOADING
    return bound


def explained_until(dag: Dag, rows: I32) -> I64:
    """Return until when each edge's own mechanism explains the wait; later is unexplained.

    A launch is explained while its call still runs; beyond that, and for gaps between work that was
    already enqueued, up to the usual size of such a delay in this trace.
    """
    edges, times, calibration = dag.edges, dag.events.node_ts_ns, dag.calibration
    tail, head, kind = edges.tail[rows], edges.head[rows], edges.kind[rows]
    until = times[head].copy()
    after_lag = times[tail] + edges.lag_ns[rows]
    launch = kind == EdgeKind.LAUNCH
    call_end = np.where(launch, dag.events.end_ns[tail >> 1], after_lag)
    known = np.minimum(np.maximum(after_lag, call_end), until)
    device_wait = (kind == EdgeKind.SYNC) & dag.events.is_device[head >> 1]
    queued = (kind == EdgeKind.STREAM) & (edges.rule[rows] == rule_code("stream order"))
    usual = np.select(
        [launch, device_wait, queued],
        [calibration.launch_usual_ns, calibration.launch_usual_ns, calibration.stream_usual_ns],
        default=np.iinfo(np.int64).max // 4,
    )
    return np.where(until - known > usual, known, until)


def _opening(dag: Dag, window: Window, walk: _Walk) -> tuple[int, int, int]:
    """Return (end, bound, event) of the segment before the first edge: what released the first node is not recorded."""
    if walk.first_node < 0:
        return window.end_ns, Bound.UNEXPLAINED, -1
    event = walk.first_node >> 1
    end = min(max(int(dag.events.node_ts_ns[walk.first_node]), window.start_ns), window.end_ns)
    launched_before = bool(dag.events.is_device[event]) and dag.launch[event] < 0
    return end, Bound.LAUNCHED_BEFORE_CAPTURE if launched_before else Bound.UNEXPLAINED, event


def critical_path(dag: Dag, window: Window) -> pd.DataFrame:
    """Return the segments of the critical path of a window; they tile it.

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
    """Return the segments of the critical paths of several windows, one after the other.

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
    known_end = np.clip(explained_until(dag, rows), begin, end)
    openings = np.array(
        [_opening(dag, window, walk) for window, walk in zip(windows, walks, strict=True)],
        dtype=np.int64,
    ).reshape(-1, 3)
    last = np.cumsum(counts) - 1
    closing = openings[:, 0].copy()
    walked = np.array(counts, dtype=np.int64) > 0
    closing[walked] = end[last[walked]]
    every, none = np.arange(len(windows)), np.full(len(windows), -1)
    place = np.arange(len(rows))
    unexplained = Bound.UNEXPLAINED
    piece = pd.DataFrame(
        {
            "window": np.concatenate([every, number, number, every]),
            "place": np.concatenate([none, place, place, np.full(len(windows), len(rows))]),
            "start_ns": np.concatenate([bounds_ns[:, 0], begin, known_end, closing]),
            "end_ns": np.concatenate([openings[:, 0], known_end, end, bounds_ns[:, 1]]),
            "lag_end_ns": np.concatenate([bounds_ns[:, 0], lag_end, known_end, closing]),
            "bound": np.concatenate(
                [
                    openings[:, 1],
                    edge_bounds(dag, rows),
                    np.full(len(rows), unexplained),
                    np.full(len(every), unexplained),
                ]
            ),
            "event": np.concatenate([openings[:, 2], edges.event[rows], edges.event[rows], none]),
            "edge": np.concatenate([none, rows, rows, none]),
        }
    )
    piece = piece[piece["end_ns"] > piece["start_ns"]].sort_values(
        ["window", "start_ns", "place"], kind="stable"
    )
    for window, part in zip(windows, _parts(piece, len(windows)), strict=True):
        _check_tiling(part, window)
    return _describe(dag, piece)


def _parts(piece: pd.DataFrame, n_windows: int) -> list[pd.DataFrame]:
    """Return the pieces of each window."""
    cuts = np.searchsorted(piece["window"].to_numpy(), np.arange(1, n_windows))
    edges = [0, *cuts.tolist(), len(piece)]
    return [piece.iloc[first:last] for first, last in itertools.pairwise(edges)]


def _describe(dag: Dag, piece: pd.DataFrame) -> pd.DataFrame:
    """Return pieces of the path with their names, as a frame of segments."""
    edge = piece["edge"].to_numpy(np.int64)
    event = piece["event"].to_numpy(np.int64)
    bound = piece["bound"].to_numpy(np.int64)
    start, end = piece["start_ns"].to_numpy(np.int64), piece["end_ns"].to_numpy(np.int64)
    lag = np.clip(piece["lag_end_ns"].to_numpy(np.int64), start, end) - start
    kind = np.where(edge >= 0, dag.edges.kind[edge] if len(dag.edges) else 0, EdgeKind.SOURCE)
    rule = np.where(
        edge >= 0, dag.edges.rule[edge] if len(dag.edges) else 0, rule_code("window start")
    )
    rule[bound == Bound.LAUNCHED_BEFORE_CAPTURE] = rule_code("launched before the capture")
    name = np.array([NO_EVENT_NAMES.get(member, "(host gap)") for member in Bound], dtype=object)[
        bound
    ]
    name[event >= 0] = dag.events.names(event[event >= 0])
    op = innermost(dag, event, (EventKind.OP, EventKind.ANNOTATION))
    op_name = np.full(len(op), "", dtype=object)
    op_name[op >= 0] = dag.events.names(op[op >= 0])
    where = np.where(
        event >= 0,
        event,
        np.where(edge >= 0, dag.edges.head[edge] >> 1 if len(dag.edges) else 0, -1),
    )
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
            "op": op_name,
            "track": track_labels(dag, where.astype(np.int64)),
            "edge": edge,
            "rule": categorical(rule, RULES),
        }
    ).reset_index(drop=True)


def _check_tiling(piece: pd.DataFrame, window: Window) -> None:
    """Raise unless pieces tile the window, to the nanosecond."""
    start, end = piece["start_ns"].to_numpy(), piece["end_ns"].to_numpy()
    if not len(piece):
        tiles = window.dur_ns == 0
    else:
        tiles = (
            start[0] == window.start_ns
            and end[-1] == window.end_ns
            and bool((start[1:] == end[:-1]).all())
        )
    if not tiles:
        raise GraphError(
            f"the critical path of {window.name!r} does not tile its window.",
            hint="this is a defect of htagraph; please report it with the trace.",
        )
