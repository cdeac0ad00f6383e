"""Recorded overhead of the profiler, and how much of it is on the critical path.

CUPTI records two sorts of overhead as one kind: its own (buffers, instrumentation), which a run
without the profiler does not have, and the driver's (lazy loading of modules and functions, a full
command buffer), which it has. Neither includes the cost of recording each event.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import sum_by_code
from htagraph.arrays.nesting import nest
from htagraph.explain.critical_path import path_segments
from htagraph.explain.segments import Segments, coded_texts
from htagraph.lookup.windowed import Clipped, clipped
from htagraph.model.answers import PROFILER_OVERHEAD
from htagraph.model.arrays import I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, EventKind, among
from htagraph.model.schema import categorical
from htagraph.model.symbols import alphabetical
from htagraph.model.window import Window

_SOURCES = ("profiler", "driver", "unknown")
_DRIVER = re.compile(r"(?i)\bdriver\b|(module|function)[ _]loading|command[ _]buffer[ _]full")
_UNKNOWN = re.compile(
    r"(?i)^(cupti\W*)?(unknown|unrecognized|force int)$"
    r"|^dl(open|close)\b(?!.*(cupti|tools_?injection))"
)
"""Includes library loads that Nsight Systems records, unless they are its own."""
_FLUSH = re.compile(r"(?i)flush")
"""Overhead that is also on threads of the profiler, which the file may not name."""
_NO_PROCESS = -1
"""Process of the row to which Kineto assigns all overhead."""
_NEVER_NS = np.iinfo(np.int64).min
"""Before all times."""
_HOST_RUNS = (Bound.HOST, Bound.DATA_LOADING, Bound.UNTRACED_CODE)
_CALLS = (EventKind.OP, EventKind.RUNTIME)


def profiler_overhead(dag: Dag, window: Window) -> pd.DataFrame:
    """Recorded overhead by name: its source, its time, and its time on the path.

    ::

        cpu 1    |[aten::add [launch >a]   ]    6 us of the path are the profiler's: they lie in
                      [Buffer]                  aten::add
        stream 7 |                    [k <a ]

    Overhead is on the path while the path is on the same host thread; the innermost of overlapping
    ones counts. If the file names no thread, as Kineto does for CUPTI, the thread is the only one
    in an operator or call all that time. With none or several, and for buffer flushes, it is
    unknown, and the overhead is not on the path. Most time on the path first. Path times are too
    long by at least the profiler's share: the cost of recording each event is not recorded.
    """
    return profiler_overhead_of(dag, window, path_segments(dag, [window]))


def profiler_overhead_of(dag: Dag, window: Window, path: Segments) -> pd.DataFrame:
    """Recorded overhead by name, given the window's critical path."""
    events = dag.events
    found = clipped(dag, np.flatnonzero(events.kind == EventKind.OVERHEAD), window)
    # Sorted, so that the answer does not depend on the order of the file.
    symbols, at = np.unique(events.name[found.event], return_inverse=True)
    names, place = alphabetical(events.symbols.array[symbols])
    group, n = place[at], len(names)
    sources = [2 if _UNKNOWN.search(one) else int(bool(_DRIVER.search(one))) for one in names]
    lane = _lanes(dag, found)
    row, segment, dur_ns = _on_path(dag, found, lane, path)
    path_ns = sum_by_code(group[row], dur_ns, n)
    assert path_ns.sum() <= window.dur_ns, "overhead on the path is part of the window"
    frame = PROFILER_OVERHEAD.frame(
        {
            "name": names,
            "source": categorical(np.array(sources, dtype=np.int64), _SOURCES),
            "n_events": np.bincount(group, minlength=n),
            "n_placed": np.bincount(group[lane >= 0], minlength=n),
            "sum_ns": sum_by_code(group, found.dur_ns, n),
            "path_ns": path_ns,
            "path_share": path_ns / max(window.dur_ns, 1),
            "inside": _inside(dag, path.take(segment), group[row], dur_ns, n),
        }
    )
    return frame.sort_values(
        ["path_ns", "sum_ns", "name"], ascending=[False, False, True], ignore_index=True
    )


def _lanes(dag: Dag, found: Clipped) -> I64:
    """Host thread of each overhead, -1 if unknown."""
    events = dag.events
    lane = events.lane[found.event].astype(np.int64)
    threads = np.unique(events.lane[events.is_host]).astype(np.int64)
    by_tid: dict[int | str, list[int]] = {}
    for thread in threads.tolist():
        by_tid.setdefault(events.lanes.tid[thread], []).append(thread)
    own = np.full(len(events.lanes) + 1, -1, dtype=np.int64)
    own[threads] = threads
    unnamed = np.zeros(len(events.lanes) + 1, dtype=bool)
    for one in np.setdiff1d(lane, threads).tolist():
        if events.lanes.pid[one] == _NO_PROCESS:
            alike = by_tid.get(events.lanes.tid[one], [])
            own[one] = alike[0] if len(alike) == 1 else -1
            unnamed[one] = not alike
    is_flush = events.named(events.symbols.searched(_FLUSH))[found.event]
    lane, asked = own[lane], np.flatnonzero(unnamed[lane] & ~is_flush)
    lane[asked] = _only_thread_in_a_call(dag, found.take(asked))
    return lane


def _only_thread_in_a_call(dag: Dag, found: Clipped) -> I64:
    """The thread that is in one operator or call from start to end; -1 for none or several.

    Of all that have begun, the last end and the last one of another thread are running maxima.
    """
    events = dag.events
    calls = np.flatnonzero(among(events.kind, _CALLS))
    calls = calls[np.argsort(events.ts_ns[calls], kind="stable")]
    lane, ends_ns = events.lane[calls], events.end_ns[calls]
    last_ns = np.maximum.accumulate(np.append(_NEVER_NS, ends_ns))
    latest = np.maximum.accumulate(np.where(ends_ns > last_ns[:-1], np.arange(len(calls)), 0))
    leads = gather(lane, latest, -1)
    is_other = lane != np.append(-1, leads[:-1])
    next_ns = np.maximum.accumulate(
        np.where(is_other, np.minimum(ends_ns, last_ns[:-1]), _NEVER_NS)
    )
    last = np.searchsorted(events.ts_ns[calls], found.start_ns, side="right") - 1
    covers = gather(last_ns[1:], last, _NEVER_NS) >= found.end_ns
    covers &= gather(next_ns, last, _NEVER_NS) < found.end_ns
    return np.where(covers, gather(leads, last, -1), -1)


def _on_path(dag: Dag, found: Clipped, lane: I64, path: Segments) -> tuple[I64, I64, I64]:
    """Parts of the path with overhead: the innermost overhead, the segment, and the time."""
    placed = np.flatnonzero(lane >= 0)
    some = found.take(placed)
    nesting = nest(
        lane[placed].astype(np.int32),
        some.start_ns,
        some.end_ns,
        (np.zeros(len(placed), dtype=np.int8), dag.events.tiebreak[some.event]),
    )
    times = np.stack([some.start_ns, some.end_ns], axis=1).reshape(-1)[nesting.boundary]
    # After the last boundary of a thread, nothing is innermost.
    runs = np.flatnonzero(nesting.innermost[:-1] >= 0)
    row, begin, end = placed[nesting.innermost[runs]], times[runs], times[runs + 1]
    start_ns, end_ns = path.start_ns, path.start_ns + path.dur_ns
    first = np.searchsorted(end_ns, begin, side="right")
    n_segments = np.maximum(np.searchsorted(start_ns, end, side="left") - first, 0)
    of = np.repeat(np.arange(len(runs)), n_segments)
    segment = first[of] + np.arange(len(of)) - (np.cumsum(n_segments) - n_segments)[of]
    inside_ns = np.minimum(end[of], end_ns[segment]) - np.maximum(begin[of], start_ns[segment])
    # The path continues on the thread of the edge's head.
    head = gather(dag.edges.head.astype(np.int64), path.edge[segment], -2)
    counts = among(path.bound[segment], _HOST_RUNS) & (inside_ns > 0)
    counts &= gather(dag.events.lane.astype(np.int64), head >> 1) == lane[row[of]]
    return row[of][counts], segment[counts], inside_ns[counts]


def _inside(dag: Dag, path: Segments, group: I64, dur_ns: I64, n: int) -> Texts:
    """Operator, else name, with most of each group's overhead on the path."""
    op, name = (coded_texts(dag, path, column).words for column in ("op", "name"))
    time = pd.DataFrame({"group": group, "name": np.where(op == "", name, op), "dur_ns": dur_ns})
    sums = time.groupby(["group", "name"], as_index=False).sum()
    most = sums.sort_values(["dur_ns", "name"], ascending=[False, True]).drop_duplicates("group")
    out = np.full(n, "", dtype=object)
    out[most["group"].to_numpy(np.int64)] = most["name"].to_numpy(object)
    return out
