"""Candidates: the changes that are worth asking about, from what a path is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.lookup.naming import op_names
from htagraph.model.api_calls import ALLOCATION
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, Cause, EdgeKind, EventKind, KernelClass
from htagraph.model.rules import Rule
from htagraph.replay.changes import (
    Bandwidth,
    Change,
    Fuse,
    Graphed,
    NoWait,
    Overlap,
    Prefetch,
    Remove,
    Scale,
)
from htagraph.replay.draft import EventGroup
from htagraph.replay.repairs import is_data_loading, repairs, spared

__all__ = ["TWICE_AS_FAST", "Candidate", "candidates"]

TWICE_AS_FAST = 0.5
_SPEEDS = (0.9, 0.75, TWICE_AS_FAST, 0.0)
"""Shares of its time that a kernel is left with: 10, 25, 50 and 100% less."""

_N_NAMES = 10
_N_SITES = 8
_N_FUSIONS = 5
_MIN_SHARE = 0.001
"""Parts of a path below this share are not asked about."""
_ON_DEVICE = (Bound.COMPUTE, Bound.COMMUNICATION, Bound.MEMORY)


class Candidate(NamedTuple):
    """Changes made together, and what they are about.

    Parameters
    ----------
    kind : str
        Sort of change: ``repair`` of a cause, ``kernel``, ``operator``, ``wait`` …
    target : str
        What is changed, for people.
    changes : tuple of Change
    left : float
        Share of its time that the target is left with.
    cause : str
        Cause that is repaired; empty where the change is about something else.
    """

    kind: str
    target: str
    changes: tuple[Change, ...]
    left: float = 0.0
    cause: str = ""


def candidates(
    dag: Dag, segments: pd.DataFrame, attributed: pd.DataFrame, sequences: list[tuple[str, ...]]
) -> Iterator[Candidate]:
    """Yield what is worth asking about a path.

    Parameters
    ----------
    dag : Dag
    segments : DataFrame, schema `frames.SEGMENTS`
    attributed : DataFrame, schema `frames.ATTRIBUTED_TIME`
    sequences : list of tuple of str
        Names of kernels that recur one after the other.
    """
    yield from _of_causes(dag, segments, attributed)
    yield from _of_names(segments)
    yield from _of_host_code(segments, attributed)
    yield from _of_waits(dag, segments)
    yield from _of_the_whole(dag)
    for names in sequences[:_N_FUSIONS]:
        yield Candidate("fusion", " + ".join(names), (Fuse(names),))


def _of_causes(dag: Dag, segments: pd.DataFrame, attributed: pd.DataFrame) -> Iterator[Candidate]:
    """Yield the repair of each cause."""
    for cause, part in attributed.groupby("cause", sort=False):
        if cause == Cause.UNEXPLAINED:
            continue
        left = TWICE_AS_FAST if cause == Cause.COMPUTE else 0.0
        for changes in repairs(dag, segments, part):
            yield Candidate("repair", str(cause), changes, left, str(cause))


def _largest(segments: pd.DataFrame, by: str, n: int) -> list[str]:
    """Groups with most of the path, those with little of it left out."""
    times = segments.groupby(by, observed=True, sort=False)["dur_ns"].sum()
    total_ns = max(int(segments["dur_ns"].sum()), 1)
    times = times[(times >= _MIN_SHARE * total_ns) & (times.index != "")]
    return [str(name) for name in times.sort_values(ascending=False, kind="stable").index[:n]]


def _of_names(segments: pd.DataFrame) -> Iterator[Candidate]:
    """Yield kernels by name at several speeds, and operators."""
    on_device = segments["bound"].isin([bound.label for bound in _ON_DEVICE])
    for name in _largest(segments[on_device], "name", _N_NAMES):
        for left in _SPEEDS:
            yield Candidate("kernel", name, (Scale(name, left),), left)
    host = segments[(segments["bound"] == Bound.HOST.label) & (segments["event"] >= 0)]
    for name in _largest(host, "name", _N_NAMES):
        yield Candidate("operator", name, (Scale(name, TWICE_AS_FAST),), TWICE_AS_FAST)


def _of_host_code(segments: pd.DataFrame, attributed: pd.DataFrame) -> Iterator[Candidate]:
    """Yield host code by line, or by the operators around it."""
    code = attributed[attributed["cause"] == Cause.HOST_CODE]
    where = np.where(
        code["frame"] != "",
        code["frame"],
        np.where(code["place"] != "", code["place"], "in " + code["op"].astype(str)),
    )
    named = code.assign(where=where)
    for place in _largest(named, "where", _N_SITES):
        part = named[named["where"] == place]
        yield Candidate("host code", place, (spared(segments, part, f"code {place}"),))


def _of_waits(dag: Dag, segments: pd.DataFrame) -> Iterator[Candidate]:
    """Yield each site at which the host waits: a call within an operator."""
    edges, events = dag.edges, dag.events
    waits = np.isin(edges.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC))
    waits &= events.is_host[edges.head >> 1]
    waits &= dag.slack_ns == 0
    rows = np.flatnonzero(waits)
    if not len(rows) or not len(segments):
        return
    calls = (edges.head[rows] >> 1).astype(np.int64)
    copies = edges.rule[rows] == Rule.BLOCKING_COPY
    sites = pd.DataFrame(
        {
            "name": events.names(calls),
            "op": op_names(dag, calls),
            "is_copy": copies,
            "call": calls,
            "dur_ns": events.dur_ns[calls],
        }
    )
    by_site = sites.groupby(["name", "op", "is_copy"], sort=False)
    longest = by_site["dur_ns"].sum().sort_values(ascending=False, kind="stable").head(_N_SITES)
    for name, op, is_copy in longest.index:
        own = by_site.get_group((name, op, is_copy))
        said = f"{name} in {op}" if op not in ("", name) else str(name)
        group = EventGroup(np.unique(own["call"].to_numpy(np.int64)), repr(said))
        yield Candidate("blocking copy" if is_copy else "wait", said, (NoWait(group),))


def _of_the_whole(dag: Dag) -> Iterator[Candidate]:
    """Yield what is done about all of a kind of time."""
    classes = dag.classification.kernel_class
    meets = np.flatnonzero(
        (classes == KernelClass.COMMUNICATION) & (dag.events.kind == EventKind.KERNEL)
    )
    if len(meets):
        yield Candidate("communication", "twice the bandwidth", (Bandwidth(2.0),), 0.5)
        group = EventGroup(meets, "communication")
        yield Candidate("overlap", "all communication beside other work", (Overlap(group),))
    if is_data_loading(dag).any():
        yield Candidate("data loading", "one batch ahead, beside the step", (Prefetch(),))
    if (dag.launch >= 0).any():
        yield Candidate("launches", "each step replayed as a graph", (Graphed(),))
    allocates = dag.events.named(dag.events.symbols.searched(ALLOCATION))
    allocates &= dag.events.kind == EventKind.RUNTIME
    if allocates.any():
        group = EventGroup(np.flatnonzero(allocates), "memory allocation")
        yield Candidate("allocation", "no allocation in the run", (Remove(group),))
