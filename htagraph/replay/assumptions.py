"""What a trace does not tell about the run under other durations, and the readings of it.

A scenario is replayed under each reading that applies; the spread of its answers is the interval
that is reported. All readings give back the recorded run exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum, unique

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.algorithms.retime import DROPPED
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, EventKind, KernelClass, among
from htagraph.model.rules import Rule
from htagraph.replay.own_times import held_calls, own_times
from htagraph.replay.replay import Replay, residuals
from htagraph.replay.typical_lags import with_typical_lags

__all__ = ["Assumption", "Reading", "readings"]

Bools = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]

_LESS_SURE = (
    Rule.HOST_POLLS,
    Rule.DEVICE_FULL,
)
"""Inferred rules that are wrong in one of a hundred edges; see docs/accuracy.md."""
_NEAR = 0.1
"""Device work that ends within this share of a gap before its end may be what it waited for."""


@unique
class Assumption(StrEnum):
    """A reading of what a trace leaves open; the value says it in words."""

    AS_BOUND = "what no edge explains goes with the edge that bound"
    RIGID = "what no edge explains stays, whatever binds, and changes do as little as they may"
    LOOSE = "calls that waited cost nothing by themselves, and changes do as much as they may"
    GAPS_WAIT = "host gaps that end as device work does wait for it"
    OWN_TIME = "waits that are inferred less surely are time of their own"
    OTHERS_LATE = "collectives end when they did: other ranks do not change"


@dataclass(frozen=True)
class Reading:
    """A replay under one assumption, as it was."""

    assumption: Assumption
    replay: Replay


def readings(dag: Dag, replay: Replay, *, is_alone: bool = True) -> Iterator[Reading]:
    """Yield the readings that apply to a graph, `Assumption.AS_BOUND` first.

    Parameters
    ----------
    replay : Replay
        As `replay_of` gives it.
    is_alone : bool, default=True
        Whether the graph is all that is known: collectives may wait for ranks that are not there.
    """
    usual = with_typical_lags(dag, replay, 50)
    yield Reading(Assumption.AS_BOUND, usual)
    slow = with_typical_lags(dag, replay.with_lags(_own_lags(dag, replay, 1.0)), 90)
    yield Reading(Assumption.RIGID, replace(slow, extra_ns=residuals(slow)))
    for assumption, made in (
        (Assumption.LOOSE, replay.with_lags(_own_lags(dag, replay, None))),
        (Assumption.GAPS_WAIT, _gaps_wait(dag, usual)),
        (Assumption.OWN_TIME, _own_time(replay)),
        (Assumption.OTHERS_LATE, _others_late(dag, usual) if is_alone else None),
    ):
        if made is not None:
            yield Reading(assumption, made)


def _own_lags(dag: Dag, replay: Replay, share: float | None) -> I64:
    """Lags by which calls that waited take by themselves what others do, or nothing."""
    lag, rows = replay.lag_ns.copy(), np.flatnonzero(held_calls(dag, replay.edges))
    lag[rows] = 0 if share is None else own_times(dag, replay.event[rows], share)
    return lag


def _gaps_wait(dag: Dag, replay: Replay) -> Replay | None:
    """Replay in which gaps end a fixed time after the device work that ended in them last."""
    events = dag.events
    is_gap = (replay.event < 0) | (gather(events.kind, replay.event) == EventKind.ANNOTATION)
    usual_ns = max(dag.calibration.launch_usual_ns, dag.calibration.stream_usual_ns)
    rows = np.flatnonzero(is_gap & (replay.rule == Rule.PROGRAM_ORDER) & (replay.lag_ns > usual_ns))
    work = np.flatnonzero(events.is_device)
    if not len(rows) or not len(work):
        return None
    work = work[np.argsort(events.end_ns[work], kind="stable")]
    until_ns = replay.ts_ns[replay.head[rows]]
    last = np.searchsorted(events.end_ns[work], until_ns, side="right") - 1
    left_ns = until_ns - events.end_ns[work[np.maximum(last, 0)]]
    waits = (last >= 0) & (left_ns <= usual_ns + _NEAR * replay.lag_ns[rows])
    waits &= replay.places[2 * work[np.maximum(last, 0)] + 1] < replay.head[rows]
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
    """Replay without the edges that are inferred less surely; what they explained is rigid."""
    unsure = among(replay.rule, _LESS_SURE)
    if not unsure.any():
        return None
    lag = np.where(unsure, DROPPED, replay.lag_ns)
    waits = np.isin(replay.kind, (EdgeKind.SYNC, EdgeKind.QUEUE, EdgeKind.FLOW)) & ~unsure
    still = np.zeros(len(replay.node), dtype=bool)
    still[replay.head[waits]] = True
    freed = np.zeros(len(replay.node), dtype=bool)
    freed[replay.head[unsure]] = True
    own = replay.rule == Rule.BLOCKING_CALL
    own &= (freed & ~still)[replay.head]
    elapsed = replay.ts_ns[replay.head] - replay.ts_ns[replay.tail]
    return replay.with_lags(np.where(own, elapsed, lag))


def _others_late(dag: Dag, replay: Replay) -> Replay | None:
    """Replay in which collectives end no earlier than they did, however early they begin."""
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
