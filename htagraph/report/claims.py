"""Which cause claims which part of a critical path: every nanosecond has one claimant, so claims never exceed the window.

Most of a path is claimed by what ran. Host time right after a wait for the device is claimed by the wait, up to as long as
the host was blocked: had it not waited, it could have run ahead of the device by that much.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.dag import Dag
from htagraph.model.frames import Column, Schema
from htagraph.model.kinds import Bound, EdgeKind, EventKind
from htagraph.path import CriticalPath
from htagraph.queries.attribution import innermost, under_pattern

__all__ = ["CLAIMS", "Cause", "claims"]

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Cause(StrEnum):
    """What claims time of a critical path."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    COPIES = "copies"
    BLOCKING_COPY = "blocking copy"
    HOST_WAIT = "host wait"
    FULL_QUEUE = "full launch queue"
    DATA_LOADING = "data loading"
    ALLOCATION = "memory allocation"
    FIRST_USE = "first use"
    HOST = "host"
    DEVICE_GAPS = "device gaps"
    CARRY_OVER = "carry-over"
    UNEXPLAINED = "unexplained"


CLAIMS = Schema(
    "CLAIMS",
    {
        "cause": Column("object", "Cause", "what claims the time"),
        "name": Column("object", "name", "what ran, or for claims of a wait the call that waited"),
        "op": Column("object", "name", "innermost operator or annotation of that"),
        "bound": Column("object", "Bound", "what the time went to"),
        "start_ns": Column("int64", "ns", "start of the segment"),
        "dur_ns": Column("int64", "ns", "claimed time; adds up to the window"),
    },
)

_ALLOCATION = re.compile(
    r"^(cuda|hip|cu)_?(Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister|Mem(Alloc|Free|Create|Map|Unmap))"
)
_READS = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|nonzero|masked_select|equal)$")
"""Operators that bring a value of the device to the host, and wait for it."""

_FIRST_USE_NS = 5_000_000
"""A call that launches, queries or sets and takes longer than this creates a context or loads code."""

_WAITING = (CallMeaning.DEVICE_SYNC, CallMeaning.STREAM_SYNC, CallMeaning.EVENT_SYNC, CallMeaning.COPY)
_HOST_BLOCKS = (EdgeKind.SYNC.label, EdgeKind.QUEUE.label)
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
    return np.where(event >= 0, matches[event], False) if len(matches) else np.zeros(len(event), dtype=bool)


def _ops(dag: Dag, event: I64) -> npt.NDArray[np.object_]:
    """Return the name of the innermost operator or annotation of each event, empty for none."""
    op = innermost(dag, event, (EventKind.OP, EventKind.ANNOTATION))
    return np.where(op >= 0, dag.events.names(np.maximum(op, 0)), "")


def _is_host(dag: Dag, segments: pd.DataFrame) -> Mask:
    """Return which segments are host time: work, gaps and launches, and returns from waits."""
    event = segments["event"].to_numpy()
    on_device = (
        np.where(event >= 0, dag.events.is_device[event], False) if len(dag.events) else np.zeros(len(event), bool)
    )
    waits = (segments["bound"] == Bound.SYNC.label).to_numpy() & ~on_device
    return segments["bound"].isin(_HOST_BOUNDS).to_numpy() | waits


def _wait_claims(path: CriticalPath, is_host: Mask, exempt: Mask) -> _Waits:
    """Return what the waits of the host claim of the host time that follows each."""
    segments, edges, events = path.segments, path.edges, path.dag.events
    n = len(segments)
    begins = is_host & ~np.concatenate([[False], is_host[:-1]])
    stretch = np.cumsum(begins) - 1
    firsts = np.flatnonzero(begins)
    blocking = (
        edges[edges["kind"].isin(_HOST_BLOCKS) & events.is_host[edges["head_event"]]] if len(events) else edges[:0]
    )
    if not len(firsts) or not len(blocking):
        return _Waits(np.full(n, -1), np.zeros(n, np.int64))
    released, call = blocking["tail_ns"].to_numpy(), blocking["head_event"].to_numpy()
    since = segments["start_ns"].to_numpy()[firsts]
    at = np.minimum(np.searchsorted(released, since), len(released) - 1)
    found = released[at] == since
    caller = np.where(found, call[at], -1)
    blocked_ns = np.where(found, np.maximum(since - events.ts_ns[caller], 0), 0)
    dur = np.where(is_host & ~exempt, segments["dur_ns"].to_numpy(), 0)
    before = np.cumsum(dur) - dur
    offset = before - before[firsts[np.maximum(stretch, 0)]]
    claimed = np.clip(blocked_ns[np.maximum(stretch, 0)] - offset, 0, dur)
    return _Waits(np.where(is_host & (stretch >= 0), caller[np.maximum(stretch, 0)], -1), claimed)


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
    if not len(dag.events):
        return cause
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


def claims(path: CriticalPath) -> pd.DataFrame:
    """Return which cause claims which part of a critical path.

    Parameters
    ----------
    path : CriticalPath

    Returns
    -------
    DataFrame, schema `CLAIMS`
        In order of time; a segment that a wait claims in part has two rows. ``dur_ns`` adds up to the window.
    """
    dag, segments = path.dag, path.segments
    if not len(segments):
        return CLAIMS.empty()
    is_host = _is_host(dag, segments)
    cause = _own_causes(dag, segments, is_host)
    waits = _wait_claims(path, is_host, np.isin(cause, [Cause.DATA_LOADING, Cause.ALLOCATION, Cause.FIRST_USE]))
    own = segments.assign(cause=cause, dur_ns=segments["dur_ns"] - waits.claimed_ns)
    claimed = np.flatnonzero(waits.claimed_ns > 0)
    by_wait = segments.iloc[claimed].assign(dur_ns=waits.claimed_ns[claimed])
    if len(claimed):
        call = waits.call[claimed]
        copies = (call_meanings(dag.events)[call] == CallMeaning.COPY) & ~under_pattern(dag, call, _READS)
        by_wait = by_wait.assign(
            cause=np.where(copies, Cause.BLOCKING_COPY, Cause.HOST_WAIT).astype(object),
            name=dag.events.names(call),
            op=_ops(dag, call),
        )
        by_wait.loc[_named(dag, call, _ALLOCATION), "cause"] = Cause.ALLOCATION
        by_wait.loc[_met_full_queue(dag, call), "cause"] = Cause.FULL_QUEUE
    both = pd.concat([own[own["dur_ns"] > 0], by_wait]) if len(claimed) else own
    both = both.sort_values("start_ns", kind="stable")
    return CLAIMS.frame({name: both[name].to_numpy() for name in CLAIMS.columns})
