"""Latent waits: they cost no time in the recorded run, but may in a faster one.

A call that waits for the device returns at once if the device is idle, and a launch if its queue
has room. A faster host would wait there. The edges for these waits have slack in the recorded run,
so they do not change its critical path. Such a call then takes what those of its name take that do
not wait.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.arrays.matching import group_starts, last_before, last_of_groups
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.arrays import I32, I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.rules import Rule

_QUEUE_HOLDS = 1_022
"""Launches that a queue holds if the trace never filled it (measured: about 1,022).
test_host_changes launches more."""
_MOST_STREAMS = 32
"""Streams whose work a call is found to wait for; of more, those on which work was enqueued last. A
limit of time: hundreds of calls and streams have a hundred thousand pairs, and real traces have a
dozen streams. test_host_changes draws more."""
_INFERRED_WAITS = (
    Rule.ENDED_RIGHT_BEFORE,
    Rule.RECURRING_IN_REPLAYS,
    Rule.RECORD_AND_WAIT_ORDER,
)
_MOSTLY = 0.5
"""Share of a kernel's instances with an inferred wait from which the others wait, too. Chosen:
test_host_changes draws 30% and 70%."""
_OF_DEVICE = (CallMeaning.DEVICE_SYNC, CallMeaning.FREE)


def latent_waits(dag: Dag) -> EdgeTable:
    """Latent waits of calls, of launches for room in the queue, and of streams for each other.

    Waits that the graph has already are left out; all edges run forward in time.
    """
    work, called_ns = _launched(dag)
    if not len(work):
        return EdgeTable()
    found = EdgeTable.concat(
        [_of_calls(dag, work, called_ns), *_of_queues(dag, work), *_of_streams(dag, work)]
    )
    times = dag.events.node_ts_ns
    return found.take(times[found.tail] <= times[found.head])


def _launched(dag: Dag) -> tuple[I64, I64]:
    """Device work and the start of its recorded launch, sorted by that.

    Work of one launch is in the order in which it ran, not that of the file.
    """
    events = dag.events
    work = np.flatnonzero(events.is_device & (dag.launch >= 0))
    called_ns = events.ts_ns[dag.launch[work]]
    order = np.lexsort((events.tiebreak[work], events.ts_ns[work], called_ns))
    return work[order], called_ns[order]


def _of_calls(dag: Dag, work: I64, called_ns: I64) -> EdgeTable:
    """Edges from the last work enqueued on each stream to the end of a waiting call.

    A wait for an unknown stream is for the one on which its thread enqueued last.
    """
    events, meanings = dag.events, call_meanings(dag.events)
    known = np.zeros(len(events), dtype=bool)
    known[dag.edges.head[dag.edges.kind == EdgeKind.SYNC] >> 1] = True
    every = np.flatnonzero(np.isin(meanings, _OF_DEVICE))
    one = np.flatnonzero((meanings == CallMeaning.STREAM_SYNC) & ~known)
    if not (len(every) or len(one)):
        return EdgeTable()
    device, stream = (
        pd.factorize(column[work], sort=True)[0] for column in (events.device, events.stream)
    )
    stream = pd.factorize(device * (stream.max() + 1) + stream, sort=True)[0]
    every = every[np.argsort(events.ts_ns[every], kind="stable")]
    until = np.searchsorted(called_ns, events.ts_ns[every], side="left")
    last = last_of_groups(stream, until, _MOST_STREAMS)
    of_every, place = np.nonzero(last >= 0)
    lane = events.lane[dag.launch[work]].astype(np.int64)
    order = np.lexsort((called_ns, lane))
    last_there = last_before(lane[order], called_ns[order], events.lane[one], events.ts_ns[one])
    wanted = gather(stream[order], last_there)
    by_stream = np.argsort(stream, kind="stable")
    at = last_before(stream[by_stream], called_ns[by_stream], wanted, events.ts_ns[one])
    calls = np.concatenate([every[of_every], one[at >= 0]])
    awaited = np.concatenate([last[of_every, place], by_stream[at[at >= 0]]])
    order = np.argsort(stream[awaited], kind="stable")
    calls, awaited = calls[order], work[awaited[order]]
    # A call that need not wait only takes the time to return.
    left_ns = np.maximum(events.end_ns[calls] - events.end_ns[awaited], 0)
    return EdgeTable.of(
        Rule.CALL_SEMANTICS,
        2 * awaited + 1,
        2 * calls + 1,
        lag_ns=np.where(known[calls], 0, np.minimum(events.dur_ns[calls], left_ns)),
        event=calls,
    )


def _of_queues(dag: Dag, work: I64) -> Iterator[EdgeTable]:
    """Yield edges from the start of work to the launch that takes its place in a full queue.

    If the trace filled the queue, it holds as many as were ever outstanding.
    """
    events, edges, tiebreak = dag.events, dag.edges, dag.events.tiebreak
    was_full = bool((edges.rule == Rule.QUEUE_FULL).any())
    by_device = work[np.argsort(events.device[work], kind="stable")]
    bounds = np.flatnonzero(group_starts(events.device[by_device]))
    for mine in np.split(by_device, bounds)[1:]:
        calls, n_work = np.unique(dag.launch[mine], return_counts=True)
        calls = calls[n_work == 1]  # a graph launch takes one place for all its kernels
        single = mine[np.isin(dag.launch[mine], calls)]
        calls = calls[np.lexsort((tiebreak[calls], events.ts_ns[calls]))]
        started = single[np.lexsort((tiebreak[single], events.ts_ns[single]))]
        outstanding = np.arange(len(calls)) - np.searchsorted(
            events.ts_ns[started], events.end_ns[calls], side="right"
        )
        most = int(outstanding.max(initial=0)) + 1
        holds = most if was_full else max(most, _QUEUE_HOLDS)
        if len(calls) > holds:
            head = calls[holds:]
            tail = started[: len(head)]
            yield EdgeTable.of(Rule.QUEUE_FULL, 2 * tail, 2 * head + 1, event=head)


def _of_streams(dag: Dag, work: I64) -> Iterator[EdgeTable]:
    """Yield edges between streams for kernels whose other instances have an inferred wait.

    Inference finds only waits that cost time. If most instances of a kernel wait for a kernel on
    another stream, the others wait, too: for the last one of that name enqueued before.
    """
    events, edges = dag.events, dag.edges
    found = np.isin(edges.rule, _INFERRED_WAITS) & (edges.tail & 1 == 1)
    rows = np.flatnonzero(found & events.is_device[edges.head >> 1])
    if not len(rows):
        return
    source, target = (
        (edges.tail[rows] >> 1).astype(np.int64),
        (edges.head[rows] >> 1).astype(np.int64),
    )
    keys = ("name", "device", "stream")
    pairs = np.stack([getattr(events, key)[side] for side in (source, target) for key in keys])
    pairs, n_found = np.unique(pairs, axis=1, return_counts=True)
    waits = np.zeros(len(events), dtype=bool)
    waits[edges.head[(edges.kind == EdgeKind.SYNC) & (edges.head & 1 == 0)] >> 1] = True
    launched_ns = np.where(dag.launch >= 0, events.ts_ns[dag.launch], events.ts_ns)
    instances = {
        tuple(int(getattr(events, key)[rows[0]]) for key in keys): rows
        for rows in _alike(np.stack([getattr(events, key)[work] for key in keys]), work)
    }
    for pair, n_waits in zip(pairs.T.tolist(), n_found.tolist(), strict=True):
        sources, targets = (instances.get(tuple(key), work[:0]) for key in (pair[:3], pair[3:]))
        others = targets[~waits[targets]]
        if n_waits < _MOSTLY * len(targets) or not len(others) or not len(sources):
            continue
        last = np.searchsorted(launched_ns[sources], launched_ns[others], side="left") - 1
        others, last = others[last >= 0], last[last >= 0]
        before = sources[last]
        ended = events.end_ns[before] <= events.ts_ns[others]
        before, others = before[ended], others[ended]
        yield EdgeTable.of(Rule.RECURRING_IN_REPLAYS, 2 * before + 1, 2 * others, event=others)


def _alike(keys: npt.NDArray[np.integer], rows: I64) -> list[I64]:
    """Rows grouped by their keys, shape (n_keys, n)."""
    order = np.lexsort(keys[::-1])
    differs = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
    return np.split(rows[order], np.flatnonzero(differs) + 1)


def held_calls(dag: Dag, edges: EdgeTable) -> Bools:
    """Whether each edge spans a runtime call that waited."""
    call = edges.event.astype(np.int64)
    held = (edges.rule == Rule.BLOCKING_CALL) & (call >= 0)
    held &= (edges.tail == 2 * call) & (edges.head == 2 * call + 1)
    runtime: Bools = held & (dag.events.kind[call] == EventKind.RUNTIME)
    return runtime


def own_times(dag: Dag, calls: I32, share: float) -> I64:
    """Quantile of the times of calls of the same name that did not wait, at most the call's own.

    If all of a name waited, calls that enqueue work take the time of a launch, others none.
    """
    events, edges = dag.events, dag.edges
    if not len(calls):
        return np.empty(0, dtype=np.int64)
    is_free = events.kind == EventKind.RUNTIME
    waited = edges.event[edges.rule == Rule.BLOCKING_CALL]
    is_free[waited[waited >= 0]] = False
    free = np.flatnonzero(is_free & np.isin(events.name, events.name[calls]))
    by_name = pd.Series(events.dur_ns[free]).groupby(events.name[free])
    usual = by_name.quantile(share, interpolation="lower")
    enqueues = np.zeros(len(events), dtype=bool)
    enqueues[dag.launch[dag.launch >= 0]] = True
    launches = events.dur_ns[enqueues & is_free]
    of_launches = float(np.quantile(launches, 0.5, method="lower")) if len(launches) else 0.0
    own = usual.reindex(events.name[calls]).to_numpy(np.float64)
    own = np.where(np.isnan(own), np.where(enqueues[calls], of_launches, 0.0), own)
    return np.minimum(own.astype(np.int64), events.dur_ns[calls])
