"""What a trace leaves open about a changed run, and a replay for each way to assume it.

A scenario is replayed under each reading that applies; the reported interval is the spread of the
results. Without a change, every reading reproduces the recorded run exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum, unique

import numpy as np

from htagraph.arrays.codes import gather, marked
from htagraph.arrays.retime import DROPPED, residuals
from htagraph.model.arrays import I64, brief
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, EventKind, KernelClass, among
from htagraph.model.rules import Rule
from htagraph.replay.replay import Replay, held_calls, own_times

_LESS_SURE = (
    Rule.HOST_POLLS,
    Rule.NO_FREE_SMS,
)
"""Inferred rules that are wrong for about 1% of their edges; see docs/accuracy.md."""
_TYPICAL_RULES = (
    Rule.CORRELATION,
    Rule.GRAPH_REPLAY,
    Rule.STREAM_ORDER,
    Rule.SYNC_RECORD,
    Rule.RECORD_AND_WAIT_ORDER,
    Rule.ENDED_RIGHT_BEFORE,
)
_NEAR = 0.1
"""Share of a host gap within which device work must end before the gap does, to be what it waited
for. Chosen: test_assumptions draws 10% and 15%."""
_FEWEST_TYPICAL = 5
"""Binding edges of a rule that make their times typical. Chosen: test_assumptions draws 4 and 6."""
_UNMEASURED_GAP_NS = {50: 1_000, 90: 2_000}
"""Gaps between queued kernels if a trace measures none, by percentile (A100, H100: 0.8 to 1.5 us).
test_changes: a kernel queued behind another starts 1 to 2 us after it."""


@unique
class Assumption(StrEnum):
    """One way to assume what a trace leaves open, in words."""

    AS_BOUND = "unknown waits move with the edge that bound"
    RIGID = "unknown waits stay, and each change does the least it can"
    LOOSE = "calls that waited take no time of their own, and each change does the most it can"
    GAPS_WAIT = "host gaps that end with device work waited for it"
    OWN_TIME = "less certain inferred waits are the host's own time"
    OTHERS_LATE = "collectives end no earlier: other ranks do not change"


@brief
@dataclass(frozen=True)
class Reading:
    """The recorded run, as replayed under one assumption."""

    assumption: Assumption
    replay: Replay


def readings(dag: Dag, replay: Replay, *, is_alone: bool = True) -> Iterator[Reading]:
    """Yield the readings that apply to a graph, `Assumption.AS_BOUND` first.

    A trace that is analyzed alone has collectives that may wait for ranks that are not there.
    """
    usual = _with_typical_lags(dag, replay, 50)
    yield Reading(Assumption.AS_BOUND, usual)
    slow = _with_typical_lags(dag, replay.with_lags(_own_lags(dag, replay, 1.0)), 90)
    left_ns = residuals(slow.offsets, slow.tail, slow.lag_ns, slow.release_ns, slow.ts_ns)
    yield Reading(Assumption.RIGID, replace(slow, extra_ns=left_ns))
    for assumption, made in (
        (Assumption.LOOSE, replay.with_lags(_own_lags(dag, replay, None))),
        (Assumption.GAPS_WAIT, _gaps_wait(dag, usual)),
        (Assumption.OWN_TIME, _own_time(replay)),
        (Assumption.OTHERS_LATE, _others_late(dag, usual) if is_alone else None),
    ):
        if made is not None:
            yield Reading(assumption, made)


def _with_typical_lags(dag: Dag, replay: Replay, percentile: int) -> Replay:
    """The replay with edges that did not bind as long as those of their rule that did.

    An edge's lag is the least that its mechanism takes. If the edge binds in a changed run, it
    takes what edges that bound usually take: the median, or the 90th percentile.
    """
    into_device = np.flatnonzero(dag.events.is_device[replay.node[replay.head] >> 1])
    elapsed = replay.ts_ns[replay.head[into_device]] - replay.ts_ns[replay.tail[into_device]]
    binds = replay.weight_ns[into_device] == elapsed
    lag = replay.lag_ns.copy()
    usual = {EdgeKind.STREAM: dag.calibration.stream_usual_ns}
    for rule in _TYPICAL_RULES:
        mine = replay.rule[into_device] == rule
        took = elapsed[mine & binds]
        took = took[took <= usual.get(rule.kind, dag.calibration.launch_usual_ns)]
        if len(took) >= _FEWEST_TYPICAL:
            typical = int(np.percentile(took, percentile, method="lower"))
        elif rule is Rule.STREAM_ORDER and not dag.calibration.stream_floor_ns:
            typical = _UNMEASURED_GAP_NS[percentile]
        else:
            continue
        late = mine & ~binds
        rows = into_device[late]
        lag[rows] = np.minimum(np.maximum(lag[rows], typical), elapsed[late])
    return replace(replay, lag_ns=lag)


def _own_lags(dag: Dag, replay: Replay, share: float | None) -> I64:
    """Lags if calls that waited take a quantile of what others of their name do; None: nothing."""
    lag, rows = replay.lag_ns.copy(), np.flatnonzero(replay.rule == Rule.BLOCKING_CALL)
    rows = rows[held_calls(dag, replay.edges_at(rows))]
    lag[rows] = 0 if share is None else own_times(dag, replay.event[rows], share)
    return lag


def _gaps_wait(dag: Dag, replay: Replay) -> Replay | None:
    """Replay in which host gaps wait for the last device work that ended in them.

    Not what ends at the very end of a gap: which of two at one time is first, only the file says.
    """
    events = dag.events
    is_gap = (replay.event < 0) | (gather(events.kind, replay.event) == EventKind.ANNOTATION)
    usual_ns = max(dag.calibration.launch_usual_ns, dag.calibration.stream_usual_ns)
    rows = np.flatnonzero(is_gap & (replay.rule == Rule.PROGRAM_ORDER) & (replay.lag_ns > usual_ns))
    work = np.flatnonzero(events.is_device)
    if not len(rows) or not len(work):
        return None
    work = work[np.lexsort((events.tiebreak[work], events.end_ns[work]))]
    until_ns = replay.ts_ns[replay.head[rows]]
    last = np.searchsorted(events.end_ns[work], until_ns) - 1
    left_ns = until_ns - events.end_ns[work[np.maximum(last, 0)]]
    waits = (last >= 0) & (left_ns <= usual_ns + _NEAR * replay.lag_ns[rows])
    rows, work, left_ns = rows[waits], work[last[waits]], left_ns[waits]
    if not len(rows):
        return None
    lag = replay.lag_ns.copy()
    lag[rows] = 0
    more = EdgeTable.of(
        Rule.HOST_POLLS,
        2 * work + 1,
        replay.node[replay.head[rows]],
        lag_ns=left_ns,
    )
    return replay.with_edges(more, lag, replay.extra_ns)[0]


def _own_time(replay: Replay) -> Replay | None:
    """Replay without the less certain inferred edges; what they explained stays."""
    unsure = among(replay.rule, _LESS_SURE)
    if not unsure.any():
        return None
    lag = np.where(unsure, DROPPED, replay.lag_ns)
    waits = np.isin(replay.kind, (EdgeKind.SYNC, EdgeKind.QUEUE, EdgeKind.FLOW)) & ~unsure
    still = marked(replay.head[waits], len(replay.node))
    freed = marked(replay.head[unsure], len(replay.node))
    own = replay.rule == Rule.BLOCKING_CALL
    own &= (freed & ~still)[replay.head]
    elapsed = replay.ts_ns[replay.head] - replay.ts_ns[replay.tail]
    return replay.with_lags(np.where(own, elapsed, lag))


def _others_late(dag: Dag, replay: Replay) -> Replay | None:
    """Replay in which collectives end no earlier than recorded, however early they begin."""
    events = dag.events
    meets = dag.classification.kernel_class == KernelClass.COMMUNICATION
    rows = np.flatnonzero((replay.kind == EdgeKind.SPAN) & meets[replay.event])
    if not len(rows):
        return None
    own = replay.event[rows]
    fastest = np.full(len(events.symbols), np.iinfo(np.int64).max)
    np.minimum.at(fastest, events.name[own], events.dur_ns[own])
    lag, release = replay.lag_ns.copy(), replay.release_ns.copy()
    lag[rows] = np.minimum(fastest[events.name[own]], lag[rows])
    release[replay.head[rows]] = replay.ts_ns[replay.head[rows]]
    return replace(replay, lag_ns=lag, release_ns=release)
