"""Kernels, copies and fills: in groups, one by one, as nodes of graphs, and sequences that repeat.

Sequences are those along a stream, or those under an operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import highest
from htagraph.arrays.codes import QUANTILES, distribution, gather, take
from htagraph.arrays.intervals import sum_by_code
from htagraph.arrays.matching import group_starts, running_latest
from htagraph.arrays.sequences import repeats
from htagraph.errors import GraphError, QueryError
from htagraph.lookup.attribution import (
    innermost,
    modules_at,
    names_or_empty,
    op_names,
    track_labels,
)
from htagraph.lookup.programs import graph_nodes as nodes_of
from htagraph.lookup.queues import NEVER, queues
from htagraph.lookup.windowed import Clipped, device_work
from htagraph.lookup.work_groups import BY_LAUNCH, Groups, named
from htagraph.model.answers import GRAPH_NODES, KERNEL_BREAKDOWN, KERNEL_DURATIONS, KERNEL_PATTERNS
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind, KernelClass
from htagraph.model.schema import categorical
from htagraph.model.window import Window


def _by_stream(dag: Dag, events: I64) -> Groups:
    lanes = np.stack([dag.events.device[events].astype(np.int64), dag.events.stream[events]])
    _, first, code = np.unique(lanes, axis=1, return_index=True, return_inverse=True)
    return Groups(code.reshape(-1).astype(np.int64), track_labels(dag, events[first]))


_GROUPS: Mapping[str, Callable[[Dag, I64], Groups]] = {
    "class": lambda dag, events: Groups(
        dag.classification.kernel_class[events].astype(np.int64),
        np.array(KernelClass.labels(), dtype=object),
    ),
    "name": named,
    "op": lambda dag, events: named(
        dag, innermost(dag.unrolled, events, (EventKind.OP, EventKind.ANNOTATION))
    ),
    "stream": _by_stream,
    "rule": lambda dag, events: Groups(
        dag.classification.rule[events].astype(np.int64),
        np.array(dag.classification.rules, dtype=object),
    ),
}
"""Per way to group: the code of each event, and what the codes are called."""


def kernel_breakdown(dag: Dag, window: Window, *, by: str = "class") -> pd.DataFrame:
    """Number and time of device work by group; the sums add up to all device time in the window.

    Work that crosses a bound of the window counts with the time inside. `by`: ``op`` is the
    innermost operator or annotation around the launch, ``rule`` the rule that chose the class. A
    ``shape`` is that of the innermost operator's inputs. A ``phase`` is of training: forward,
    recomputed forward (activation checkpointing), backward, optimizer. Largest first. A group whose
    work is of several classes has a row for each.
    """
    work = device_work(dag, window)
    code, names = {**_GROUPS, **BY_LAUNCH}[by](dag, work.event)
    n_classes = len(KernelClass)
    found = distribution(
        code * n_classes + dag.classification.kernel_class[work.event], work.dur_ns, QUANTILES
    )
    if int(found.total.sum()) != int(work.dur_ns.sum()):
        raise GraphError("the parts of the kernel breakdown do not add up to the device time.")
    group, kernel_class = np.divmod(found.group, n_classes)
    frame = KERNEL_BREAKDOWN.frame(
        {
            "group": names[group],
            "class": categorical(kernel_class, KernelClass.labels()),
            "n_kernels": found.n,
            "sum_ns": found.total,
            **found.spread,
            "share": found.total / max(int(found.total.sum()), 1),
        }
    )
    return frame.sort_values(["sum_ns", "group"], ascending=[False, True], ignore_index=True)


def kernel_durations(
    dag: Dag, window: Window, *, name: str | re.Pattern[str] = "*"
) -> pd.DataFrame:
    """Kernels, copies and fills that overlap the window, with what launched each, by start.

    Durations are not clipped to the window.
    """
    events = dag.events
    rows = device_work(dag, window).event
    rows = rows[events.named(events.symbols.named(name))[rows]]
    keys = (events.stream, events.device, events.end_ns, events.ts_ns)
    rows = rows[np.lexsort([key[rows] for key in keys])]
    calls = dag.unrolled
    module = modules_at(calls, calls.launch[rows].astype(np.int64))
    return KERNEL_DURATIONS.frame(
        {
            "event": rows,
            "name": events.names(rows),
            "class": categorical(dag.classification.kernel_class[rows], KernelClass.labels()),
            "op": op_names(dag, rows),
            "annotation": names_or_empty(dag, innermost(dag, rows, (EventKind.ANNOTATION,))),
            "module": names_or_empty(calls, module),
            "device": events.device[rows],
            "stream": events.stream[rows],
            "ts_ns": events.ts_ns[rows],
            "dur_ns": events.dur_ns[rows],
        }
    )


_FOUND_BY = ("position", "node id")


def graph_nodes(dag: Dag, window: Window) -> pd.DataFrame:
    """Nodes of CUDA and HIP graphs, with their time over the replays that overlap the window.

    By graph and node. Times are not clipped to the window.
    """
    nodes, events = nodes_of(dag), dag.events
    replay = nodes.replay
    _, first, row = np.unique(replay, return_index=True, return_inverse=True)
    begin = events.ts_ns[nodes.event[first]]
    offset = events.ts_ns[nodes.event] - begin[row]
    until = offset + events.dur_ns[nodes.event]
    # An offset per replay keeps them apart, so that one pass finds the latest end in each.
    apart = np.cumsum(np.diff(replay, prepend=-1) != 0) * (int(until.max(initial=0)) + 1)
    ended = np.maximum.accumulate(until + apart) - apart
    before = np.concatenate([[0], ended[:-1]])[: len(ended)]
    gap = np.where(offset > 0, np.maximum(offset - before, 0), 0)
    inside = np.isin(nodes.event, device_work(dag, window).event)
    nodes, offset, gap = take(nodes, inside), offset[inside], gap[inside]
    node = pd.DataFrame({"graph": nodes.graph, "node": nodes.node}).groupby(["graph", "node"])
    group = np.asarray(node.ngroup(), dtype=np.int64)
    of = np.unique(group, return_index=True)[1]
    work, start, idle = (
        distribution(group, values, (0.5,)) for values in (events.dur_ns[nodes.event], offset, gap)
    )
    event = nodes.event[of]
    return GRAPH_NODES.frame(
        {
            "graph": nodes.graph[of],
            "node": nodes.node[of],
            "name": events.names(event),
            "device": events.device[event],
            "stream": events.stream[event],
            "n_replays": work.n,
            "sum_ns": work.total,
            "mean_ns": work.mean,
            "median_ns": work.quantiles[0],
            "min_ns": work.smallest,
            "max_ns": work.largest,
            "offset_ns": start.quantiles[0],
            "offset_spread_ns": start.largest - start.smallest,
            "gap_ns": idle.quantiles[0],
            "found_by": categorical(nodes.is_recorded[of].astype(np.int64), _FOUND_BY),
        }
    )


class _Occurrences(NamedTuple):
    """Runs of device work: occurrence ``i`` is ``work[first[i] : first[i] + length[i]]``."""

    work: I64  # Device events in order
    gap_ns: I64  # Idle time of the stream between each event and the one before it in the run
    # pattern, first, length, host: of shape (m,). Occurrences by pattern; `host` is the operator
    # call, -1 for none.
    pattern: I64
    first: I64
    length: I64
    host: I64


def _along_streams(dag: Dag, window: Window, min_length: int, max_length: int) -> _Occurrences:
    """Sequences that repeat on a stream."""
    events, by = dag.events, queues(dag, "stream")
    rows = device_work(dag, window).event
    ordered, lane, before_ns = by.in_order(Clipped(rows, events.ts_ns[rows], events.end_ns[rows]))
    work, is_first = ordered.event, before_ns == NEVER
    gap = np.where(is_first, 0, np.maximum(ordered.start_ns - before_ns, 0))
    _, code = np.unique(events.name[work], return_inverse=True)
    found = repeats(code.astype(np.int64), lane, min_length=min_length, max_length=max_length)
    return _Occurrences(
        work, gap, found.sequence, found.start, found.length, np.full(len(found.start), -1)
    )


def _under_operators(
    dag: Dag, window: Window, under: str | re.Pattern[str], lengths: tuple[int, int]
) -> _Occurrences:
    """Sequences of whole calls of an operator; a call inside a call belongs to the outer one.

    Operators of a capture are called when a replay is launched.
    """
    launch, n_recorded = dag.launch, len(dag.events)
    dag = dag.unrolled
    events = dag.events
    wanted = events.named(events.symbols.named(under))
    wanted &= np.isin(events.kind, (EventKind.OP, EventKind.ANNOTATION))
    inside = (events.ts_ns >= window.start_ns) & (events.ts_ns < window.end_ns)
    captured = np.arange(len(events)) >= n_recorded
    work = np.flatnonzero(launch >= 0)
    call = highest(dag.parent, dag.launch[work].astype(np.int64), wanted & (inside | captured))
    work, call = work[call >= 0], call[call >= 0]
    replay = np.where(captured[call], launch[work], -1)
    kept = (replay < 0) | inside[replay]
    work, call, replay = work[kept], call[kept], replay[kept]
    begin = events.ts_ns[np.where(replay >= 0, replay, call)]
    order = np.lexsort((events.end_ns[work], events.ts_ns[work], begin, call, replay))
    work, call, replay, begin = work[order], call[order], replay[order], begin[order]
    starts = group_starts(replay, call)
    first = np.flatnonzero(starts)
    length = np.diff(np.append(first, len(call)))
    fits = (length >= lengths[0]) & (length <= lengths[1])
    latest = events.end_ns[work[running_latest(events.end_ns[work], starts)]] if len(work) else work
    gap = np.zeros(len(work), dtype=np.int64)
    gap[1:] = np.where(starts[1:], 0, np.maximum(events.ts_ns[work[1:]] - latest[:-1], 0))
    first, length = first[fits], length[fits]
    host = call[first]
    # One iteration per call of the operator, not per event.
    seen: dict[tuple[int, bytes], int] = {}
    names = events.name[work]
    number = [
        seen.setdefault((int(events.name[h]), names[a : a + n].tobytes()), len(seen))
        for h, a, n in zip(host.tolist(), first.tolist(), length.tolist(), strict=True)
    ]
    pattern = np.array(number, dtype=np.int64)
    order = np.lexsort((begin[first], pattern))
    return _Occurrences(work, gap, pattern[order], first[order], length[order], host[order])


def kernel_patterns(
    dag: Dag,
    window: Window,
    *,
    under: str | re.Pattern[str] | None = None,
    min_length: int = 2,
    max_length: int = 16,
    rank_by: str = "device_ns",
    top: int = 100,
    by: str = "pattern",
) -> pd.DataFrame:
    """Repeated sequences of kernels, and the gaps that fusing them would save.

    Along a stream, a sequence must occur at least twice without overlapping itself, and not always
    as part of the same longer one. Under an operator, a sequence is all device work of one call.

    ::

        stream 7 | [copy][gemm] [relu]    [copy][gemm] [relu]     (copy, gemm, relu) twice
                               ^                      ^           gap_ns

    `window`: along a stream, work that overlaps it; under an operator, calls that begin in it.
    Times are not clipped. `under`: name, glob or regex of operators and annotations; default is
    along the streams. `min_length`, `max_length`: kernels of a sequence. `by`: ``occurrence`` is a
    row for each time that one of the `top` patterns ran, in order of time. Largest first.
    """
    if not 1 <= min_length <= max_length:
        hint = "1 <= min_length <= max_length."
        raise QueryError(f"no length is from {min_length} to {max_length}.", hint=hint)
    if under is None:
        found = _along_streams(dag, window, min_length, max_length)
    else:
        found = _under_operators(dag, window, under, (min_length, max_length))
    return _frame(dag, window, found, (rank_by, top), each=by == "occurrence")


def _frame(
    dag: Dag, window: Window, found: _Occurrences, ranked: tuple[str, int], *, each: bool
) -> pd.DataFrame:
    """Answer for the patterns of occurrences, or for each of their occurrences."""
    events, (rank_by, top) = dag.events, ranked
    # The first occurrence is the earliest one, not that of the stream with the lowest number.
    order = np.lexsort((events.ts_ns[found.work[found.first]], found.pattern))
    places = (column[order] for column in (found.pattern, found.first, found.length, found.host))
    found = _Occurrences(found.work, found.gap_ns, *places)
    n = int(found.pattern.max(initial=-1)) + 1
    dur = np.concatenate([[0], np.cumsum(events.dur_ns[found.work])])
    gap = np.concatenate([[0], np.cumsum(found.gap_ns)])
    last = found.first + found.length
    device_ns = dur[last] - dur[found.first]
    # The gap before the first kernel of a run is not inside it.
    gap_ns = gap[last] - gap[np.minimum(found.first + 1, last)]
    recorded = np.where(found.host < len(events), found.host, -1)
    host_ns = gather(events.dur_ns, recorded, 0)
    span_ns = events.end_ns[found.work[last - 1]] - events.ts_ns[found.work[found.first]]
    count = np.bincount(found.pattern, minlength=n)
    begins = np.flatnonzero(group_starts(found.pattern))
    event, length = found.work[found.first], found.length[begins]
    times: tuple[I64, ...] = (device_ns, host_ns, gap_ns, span_ns)
    sums = tuple(sum_by_code(found.pattern, one, n) for one in times)
    ranks = {"device_ns": sums[0], "n_occurrences": count, "gap_ns": sums[2]}
    keys = (
        events.stream[event[begins]],
        events.device[event[begins]],
        events.ts_ns[event[begins]],
        -length,
        -sums[0],
        -ranks[rank_by],
    )
    rows = np.lexsort(keys)[:top]
    names = events.names(found.work)
    pattern = np.empty(n, dtype=object)
    for row in rows.tolist():  # one iteration per pattern of the answer
        first = found.first[begins[row]]
        pattern[row] = tuple(names[first : first + length[row]].tolist())
    if each:
        shown = np.flatnonzero(np.isin(found.pattern, rows))
        shown = shown[np.argsort(events.ts_ns[event[shown]], kind="stable")]
        rows = found.pattern[shown]
    else:
        shown, times = begins[rows], tuple(one[found.pattern] for one in sums)
    total = int(device_work(dag, window).dur_ns.sum())
    return KERNEL_PATTERNS.frame(
        {
            "pattern": pattern[rows],
            "op": names_or_empty(dag.unrolled, found.host[shown]),
            "length": found.length[shown],
            "n_occurrences": count[rows],
            "device_ns": times[0][shown],
            "host_ns": times[1][shown],
            "gap_ns": times[2][shown],
            "share": times[0][shown] / max(total, 1),
            "event": event[shown],
            "ts_ns": events.ts_ns[event[shown]],
            "dur_ns": times[3][shown],
        }
    )
