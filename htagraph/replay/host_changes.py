"""Changes to the host: graphs instead of launches, and prefetched data."""

from __future__ import annotations

from functools import partial

import numpy as np

from htagraph.arrays.ancestors import nearest
from htagraph.arrays.codes import distinct, gather, marked
from htagraph.arrays.intervals import sum_by_code
from htagraph.arrays.retime import DROPPED
from htagraph.errors import QueryError
from htagraph.lookup.programs import batches, graph_launches
from htagraph.lookup.steps import find_steps, step_at
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.rules import Rule
from htagraph.replay.assumptions import Assumption
from htagraph.replay.changes import Change
from htagraph.replay.draft import Draft

_CODE_OF_A_LAUNCH_NS, _LAUNCHING_NS = 100_000, 1_000_000
"""Longest code between two operators, and longest stretch within one, that only launches (PyTorch:
5 to 50 us). test_host_changes draws both sides."""
_GRAPH_LAUNCH_NS = 10_000
"""Cost of a graph launch if none was recorded (measured on H100: 6 to 15 us). test_host_changes."""
_HANDOFF_NS = 2_000_000
"""Most time that a batch from another process costs its thread (PyTorch 2.15: 1.4 to 1.8 ms).
test_host_changes draws longer batches."""
_CONTENDED = 0.5
"""Most of a batch's loading that slows the step it is loaded in, as both share cores and memory.
Measured on the pairs of `bench_intervals`, see docs/accuracy.md; test_host_changes draws it."""


def _first_launches(dag: Dag) -> Bools:
    """Whether each event is the first launch of a step."""
    events = dag.events
    calls = distinct(dag.launch[dag.launch >= 0])
    calls = calls[np.argsort(events.ts_ns[calls], kind="stable")]
    step = step_at(find_steps(events), events.ts_ns[calls]) if len(calls) else calls
    _, at = np.unique(step, return_index=True)
    return marked(calls[at], len(events))


def graphed() -> Change:
    """Change: each step is captured as a CUDA or HIP graph, except where it waits or loads data.

    Operators and launches take no host time. The interval covers whether untraced code
    does.

    Returns
    -------
    Change

    Raises
    ------
    QueryError
        When it is applied, if nothing was launched.
    """
    return Change("graphed()", _graphed)


def _graphed(draft: Draft) -> None:
    """Remove the host time of operators and launches; each step's first launch stays.

    Long untraced code does more than launch, so it stays except in the loosest reading. In the
    tightest reading, all untraced code stays.
    """
    rows, most_ns, gaps, ends, cost_ns = draft.once(None, partial(_launching, draft))
    if draft.assumption is not Assumption.LOOSE:
        rows = rows[draft.lag_ns[rows] <= most_ns]
    draft.clear(rows)
    usual = draft.extra_ns[gaps] <= draft.dag.calibration.stream_usual_ns
    draft.extra_ns[gaps[usual]] = 0
    draft.lag_ns[ends] += cost_ns


def _launching(draft: Draft) -> tuple[I64, I64, I64, I64, int]:
    """Where the host only launches, and how long a launch of a graph takes.

    Edges of operators and launches, and how long each may be to do nothing else; those between work
    of a stream; those to the end of each step's first launch.
    """
    dag, replay = draft.dag, draft.replay
    if not (dag.launch >= 0).any():
        hint = "record device work with ProfilerActivity.CUDA."
        raise QueryError("no launches were recorded, so no graph replaces them.", hint=hint)
    events, owner = dag.events, replay.owner
    loads = marked(batches(dag), len(events))
    waiting = (CallMeaning.DEVICE_SYNC, CallMeaning.STREAM_SYNC, CallMeaning.EVENT_SYNC)
    gone = events.is_host & ~draft.nested(loads) & ~np.isin(call_meanings(events), waiting)
    runs = events.kind != EventKind.ANNOTATION
    rows = np.flatnonzero(replay.rule == Rule.PROGRAM_ORDER)
    if draft.assumption is Assumption.RIGID:
        rows = rows[gather(gone & runs, owner[rows], default=False)]
    else:
        rows = rows[gather(gone, owner[rows], default=True)]
        rows = rows[dag.is_work[replay.node[replay.head[rows]] >> 1]]
    is_gap = ~gather(runs, owner[rows], default=False)
    cost = np.flatnonzero(graph_launches(dag))
    into = replay.rows_into(2 * np.flatnonzero(_first_launches(dag)) + 1)
    return (
        rows,
        np.where(is_gap, _CODE_OF_A_LAUNCH_NS, _LAUNCHING_NS),
        np.flatnonzero(replay.kind == EdgeKind.STREAM),
        into[replay.kind[into] == EdgeKind.THREAD],
        int(np.median(events.dur_ns[cost])) if len(cost) else _GRAPH_LAUNCH_NS,
    )


def _prefetch(draft: Draft, workers: int) -> None:
    """Free the thread of loading: the workers take its batches in turn.

    They begin together, with the first batch of the thread, which is waited for. A worker is free
    when its batch was handed out.
    """
    events, outer = draft.dag.events, batches(draft.dag)
    if not len(outer):
        hint = "PyTorch's DataLoader records them; name yours data_loading."
        raise QueryError("no host range that loads data was recorded.", hint=hint)
    is_batch = marked(outer, len(events))
    own = draft.replay.rows_owned(draft.nested(is_batch))
    dur_ns = (events.dur_ns - _taken_off(draft, own, is_batch))[outer]
    draft.clear(own)
    first = np.searchsorted(events.lane[outer], events.lane[outer])
    number = np.arange(len(outer)) - first
    later = np.flatnonzero(number)
    # In the tightest reading a batch costs what passing it on takes, or what it takes from the step
    # that it is loaded in.
    waited_ns = np.where(number > 0, 0, dur_ns)
    if draft.assumption is Assumption.RIGID:
        least_ns = np.maximum(_HANDOFF_NS, _CONTENDED * dur_ns[later])
        waited_ns[later] = np.minimum(dur_ns[later], least_ns)
    own_ns = np.zeros(len(events), dtype=np.int64)
    own_ns[outer] = waited_ns
    ends = draft.replay.node[draft.replay.head]
    rows = np.flatnonzero((draft.replay.kind == EdgeKind.THREAD) & np.isin(ends, 2 * outer + 1))
    draft.lag_ns[rows] = own_ns[ends[rows] >> 1]
    earlier = outer[np.arange(len(outer)) - np.minimum(number, workers)]
    is_free = np.where(number < workers, 2 * outer[first], 2 * earlier + 1)
    draft.add(
        EdgeTable.of(
            Rule.PROGRAM_ORDER,
            is_free[later],
            2 * outer[later] + 1,
            lag_ns=dur_ns[later],
            event=outer[later],
        )
    )


def _taken_off(draft: Draft, own: I64, is_top: Bools) -> I64:
    """By how much earlier changes shortened each event, for some events with their own edges."""
    rows = own[draft.lag_ns[own] != DROPPED]
    top = nearest(draft.dag.parent, draft.replay.owner[rows].astype(np.int64), is_top)
    less = (draft.replay.lag_ns - draft.lag_ns)[rows]
    return sum_by_code(top, less, len(is_top))


def prefetch(workers: int = 1) -> Change:
    """Change: data is loaded during the step, by workers of which each loads one batch at a time.

    The first batch of each loading thread is still waited for.

    Parameters
    ----------
    workers : int, default=1
        Batches that are loaded at once.

    Returns
    -------
    Change

    Raises
    ------
    QueryError
        If there is no worker.
    """
    if workers < 1:
        raise QueryError(f"prefetch: workers must be 1 or more, not {workers}.")
    call = "prefetch()" if workers == 1 else f"prefetch(workers={workers})"
    return Change(call, _prefetch, (workers,))
