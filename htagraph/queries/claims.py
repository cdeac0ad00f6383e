"""Which cause claims which part of a critical path: every nanosecond has one claimant, so claims never exceed the window.

Most of a path is claimed by what ran. Host time right after a wait for the device is claimed by the wait, up to as long as
the host was blocked: had it not waited, it could have run ahead of the device by that much.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.dag import Dag
from htagraph.model.frames import CLAIMS
from htagraph.model.kinds import Bound, Cause, EdgeKind, EventKind
from htagraph.queries.attribution import innermost, under_pattern
from htagraph.queries.naming import frames_at, names_or_empty
from htagraph.queries.steps import find_steps

__all__ = ["claims"]

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_ALLOCATION = re.compile(
    r"^(cuda|hip|cu)_?(Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister|Mem(Alloc|Free|Create|Map|Unmap))"
)
_READS = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|nonzero|masked_select|equal)$")
"""Operators that bring a value of the device to the host, and wait for it."""

_FIRST_USE_NS = 5_000_000
"""A call that launches, queries or sets and takes longer than this creates a context or loads code."""

_WAITING = (CallMeaning.DEVICE_SYNC, CallMeaning.STREAM_SYNC, CallMeaning.EVENT_SYNC, CallMeaning.COPY)
_HOST_BLOCKS = (EdgeKind.SYNC, EdgeKind.QUEUE)
_HOST_BOUNDS = [bound.label for bound in (Bound.CPU, Bound.DATA_LOADING, Bound.PYTHON_GAP, Bound.LAUNCH)]
_CAUSE_OF_BOUND = {
    Bound.COMPUTE.label: Cause.COMPUTE,
    Bound.COMMUNICATION.label: Cause.COMMUNICATION,
    Bound.MEMORY.label: Cause.COPIES,
    Bound.LAUNCH.label: Cause.HOST,
    Bound.KERNEL_GAP.label: Cause.DEVICE_GAPS,
    Bound.CPU.label: Cause.HOST,
    Bound.DATA_LOADING.label: Cause.DATA_LOADING,
    Bound.PYTHON_GAP.label: Cause.HOST,
    Bound.SYNC.label: Cause.DEVICE_GAPS,
    Bound.CARRY_OVER.label: Cause.CARRY_OVER,
    Bound.UNEXPLAINED.label: Cause.UNEXPLAINED,
}


@dataclass(frozen=True)
class _Waits:
    """For each segment, the host wait that its stretch of host time begins with, -1 for none, and what it may claim."""

    call: I64
    claimed_ns: I64


def _named(dag: Dag, event: I64, pattern: re.Pattern[str]) -> Mask:
    """Return whether each event is an API call whose name matches; False for -1."""
    matches = dag.events.named(dag.events.symbols.mask(lambda name: pattern.search(name) is not None))
    matches = matches & (dag.events.kind == EventKind.RUNTIME)
    return np.where(event >= 0, matches[event], False)


def _ops(dag: Dag, event: I64) -> npt.NDArray[np.object_]:
    """Return the name of the innermost operator or annotation of each event, empty for none."""
    op = innermost(dag, event, (EventKind.OP, EventKind.ANNOTATION))
    return np.where(op >= 0, dag.events.names(np.maximum(op, 0)), "")


def _is_host(dag: Dag, segments: pd.DataFrame) -> Mask:
    """Return which segments are host time: work, gaps and launches, and returns from waits."""
    event = segments["event"].to_numpy()
    on_device = np.where(event >= 0, dag.events.is_device[event], False)
    waits = (segments["bound"] == Bound.SYNC.label).to_numpy() & ~on_device
    return segments["bound"].isin(_HOST_BOUNDS).to_numpy() | waits


def _blocking_calls(dag: Dag, edge: I64, since_ns: I64) -> I64:
    """Return for each edge the host call that waited for the device until the instant at which the edge begins, -1 for none.

    The call may lie some edges back that take no time: it returns, and the operator around it ends.
    """
    edges, times = dag.edges, dag.events.node_ts_ns
    call = np.full(len(edge), -1, dtype=np.int64)
    current = edge.copy()
    going = np.arange(len(edge))
    while True:
        going = going[current[going] >= 0]
        going = going[times[edges.tail[current[going]]] == since_ns[going]]
        if not len(going):
            return call
        head = edges.head[current[going]] >> 1
        blocks = np.isin(edges.kind[current[going]], _HOST_BLOCKS) & dag.events.is_host[head]
        call[going[blocks]] = head[blocks]
        going = going[~blocks]
        current[going] = dag.binding[edges.tail[current[going]]]


def _wait_claims(dag: Dag, segments: pd.DataFrame, is_host: Mask, exempt: Mask) -> _Waits:
    """Return what the waits of the host claim of the host time that follows each."""
    n = len(segments)
    start, length = segments["start_ns"].to_numpy(np.int64), segments["dur_ns"].to_numpy(np.int64)
    continues = np.concatenate([[False], is_host[:-1] & (start[:-1] + length[:-1] == start[1:])])
    begins = is_host & ~continues
    firsts = np.flatnonzero(begins)
    if not len(firsts):
        return _Waits(np.full(n, -1), np.zeros(n, np.int64))
    stretch = np.maximum(np.cumsum(begins) - 1, 0)
    since = start[firsts]
    caller = _blocking_calls(dag, segments["edge"].to_numpy(np.int64)[firsts], since)
    blocked_ns = np.where(caller >= 0, np.maximum(since - dag.events.ts_ns[caller], 0), 0)
    dur = np.where(is_host & ~exempt, length, 0)
    before = np.cumsum(dur) - dur
    offset = before - before[firsts[stretch]]
    claimed = np.clip(blocked_ns[stretch] - offset, 0, dur)
    return _Waits(np.where(is_host, caller[stretch], -1), claimed)


def _met_full_queue(dag: Dag, call: I64) -> Mask:
    """Return which calls were launches that waited for room in the launch queue."""
    waited = np.zeros(len(dag.events), dtype=bool)
    waited[dag.edges.head[dag.edges.kind == EdgeKind.QUEUE] >> 1] = True
    return waited[call]


def _own_causes(dag: Dag, segments: pd.DataFrame, is_host: Mask) -> npt.NDArray[np.object_]:
    """Return the cause of each segment by what ran in it."""
    event = segments["event"].to_numpy()
    cause = segments["bound"].astype(object).map(_CAUSE_OF_BOUND).to_numpy(dtype=object)
    cause[is_host & (cause == Cause.DEVICE_GAPS)] = Cause.HOST
    runs_call = is_host & (event >= 0) & (dag.events.kind[event] == EventKind.RUNTIME)
    waits = np.isin(call_meanings(dag.events), _WAITING)[event]
    launches = (segments["bound"] == Bound.LAUNCH.label).to_numpy()
    cause[runs_call & ~waits & ~launches & (dag.events.dur_ns[event] > _FIRST_USE_NS)] = Cause.FIRST_USE
    cause[is_host & _named(dag, event, _ALLOCATION)] = Cause.ALLOCATION
    copies = np.flatnonzero((cause == Cause.COPIES) & (event >= 0))
    blocking = np.zeros(len(dag.events), dtype=bool)
    blocking[dag.edges.head[dag.edges.kind == EdgeKind.SYNC] >> 1] = True
    launch = dag.launch[event[copies]]
    cause[copies[(launch >= 0) & blocking[launch]]] = Cause.BLOCKING_COPY
    reads = under_pattern(dag, event, _READS) & np.isin(cause, [Cause.HOST, Cause.BLOCKING_COPY, Cause.COPIES])
    cause[reads] = Cause.HOST_WAIT
    return cause


def _claims_of_waits(dag: Dag, segments: pd.DataFrame, waits: _Waits) -> pd.DataFrame:
    """Return the parts of segments that waits claim: the first part of each."""
    rows = np.flatnonzero(waits.claimed_ns > 0)
    call = waits.call[rows]
    copies = (call_meanings(dag.events)[call] == CallMeaning.COPY) & ~under_pattern(dag, call, _READS)
    cause = np.where(copies, Cause.BLOCKING_COPY, Cause.HOST_WAIT).astype(object)
    cause[_named(dag, call, _ALLOCATION)] = Cause.ALLOCATION
    cause[_met_full_queue(dag, call)] = Cause.FULL_QUEUE
    return segments.iloc[rows].assign(
        dur_ns=waits.claimed_ns[rows], cause=cause, name=dag.events.names(call), op=_ops(dag, call), event=call
    )


def _steps(dag: Dag, segments: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Return the step in which each segment begins, empty for none."""
    steps, start = find_steps(dag.events), segments["start_ns"].to_numpy(np.int64)
    at = np.searchsorted(steps["start_ns"].to_numpy(np.int64), start, side="right") - 1
    ends = np.append((steps["start_ns"] + steps["dur_ns"]).to_numpy(np.int64), 0)
    names = np.append(steps["name"].to_numpy(object), "")
    return np.where((at >= 0) & (start < ends[at]), names[at], "").astype(object)


def _frames(dag: Dag, segments: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Return the innermost Python frame in the middle of each host gap, empty for other segments and where none is known."""
    frames = np.full(len(segments), "", dtype=object)
    gaps = np.flatnonzero((segments["bound"] == Bound.PYTHON_GAP.label) & (segments["edge"] >= 0))
    if not len(gaps) or not (dag.events.kind == EventKind.PYTHON).any():
        return frames
    part = segments.iloc[gaps]
    lane = dag.events.lane[dag.edges.head[part["edge"].to_numpy(np.int64)] >> 1].astype(np.int64)
    middle = (part["start_ns"] + part["dur_ns"] // 2).to_numpy(np.int64)
    frames[gaps] = names_or_empty(dag, frames_at(dag, lane, middle))
    return frames


def claims(dag: Dag, segments: pd.DataFrame) -> pd.DataFrame:
    """Return which cause claims which part of the segments of a critical path.

    Parameters
    ----------
    dag : Dag
    segments : DataFrame, schema `frames.SEGMENTS`
        Of one path, or of several parts of paths one after the other.

    Returns
    -------
    DataFrame, schema `frames.CLAIMS`
        Tiles the segments, in their order; one that a wait claims in part has two rows.
    """
    if not len(segments):
        return CLAIMS.empty()
    segments = segments.assign(segment=np.arange(len(segments)))
    if not len(dag.events):
        unknown = segments.assign(cause=Cause.UNEXPLAINED, step="", frame="")
        return CLAIMS.frame({name: unknown[name].to_numpy() for name in CLAIMS.columns})
    is_host = _is_host(dag, segments)
    cause = _own_causes(dag, segments, is_host)
    waits = _wait_claims(
        dag, segments, is_host, np.isin(cause, [Cause.DATA_LOADING, Cause.ALLOCATION, Cause.FIRST_USE])
    )
    segments = segments.assign(step=_steps(dag, segments), frame=_frames(dag, segments))
    own = segments.assign(
        cause=cause, start_ns=segments["start_ns"] + waits.claimed_ns, dur_ns=segments["dur_ns"] - waits.claimed_ns
    )
    both = pd.concat([_claims_of_waits(dag, segments, waits), own[own["dur_ns"] > 0]])
    both = both.sort_values(["segment", "start_ns"], kind="stable")
    return CLAIMS.frame({name: both[name].to_numpy() for name in CLAIMS.columns})
