"""What repairing a cause of a critical path would change.

Each cause has the change that its advice amounts to. Where there is none that names events, the
time that the path spends on the cause goes, and no other: what then binds is found by re-timing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.lookup.attribution import DATA_LOADING
from htagraph.model.dag import Dag
from htagraph.model.kinds import Cause, EdgeKind, KernelClass
from htagraph.model.rules import Rule
from htagraph.replay.changes import (
    Bandwidth,
    Change,
    Graphed,
    NoGaps,
    NoWait,
    Overlap,
    Remove,
    Scale,
    Spare,
)
from htagraph.replay.draft import EventGroup

__all__ = ["is_data_loading", "repairs", "spared"]

I64 = npt.NDArray[np.int64]

_OF_WORK: dict[Cause, tuple[KernelClass, tuple[Callable[[EventGroup], Change], ...]]] = {
    Cause.COMPUTE: (KernelClass.COMPUTE, (partial(Scale, by=0.5),)),
    Cause.COMMUNICATION: (KernelClass.COMMUNICATION, (Overlap, lambda _: Bandwidth(2.0))),
    Cause.COPIES: (KernelClass.MEMORY, (Overlap,)),
}
"""Causes that are device work, with its class: twice as fast, or beside other work."""
_OF_ALL: dict[Cause, Change] = {
    Cause.FULL_QUEUE: Remove(EdgeKind.QUEUE.label),
    Cause.DEVICE_FULL: Remove(EdgeKind.CONTENTION.label),
    Cause.DEVICE_GAPS: NoGaps(),
    Cause.HOST: Graphed(),
}
_OF_WAITS = (Cause.HOST_WAIT, Cause.UNRECORDED_WAIT, Cause.BLOCKING_COPY)


def repairs(dag: Dag, segments: pd.DataFrame, part: pd.DataFrame) -> list[tuple[Change, ...]]:
    """What could be tried about a cause: alternatives, each some changes made together.

    Parameters
    ----------
    dag : Dag
    segments : DataFrame, schema `frames.SEGMENTS`
        Of the path.
    part : DataFrame, schema `frames.ATTRIBUTED_TIME`
        What of the path is charged to one cause.

    Returns
    -------
    list of tuple of Change
    """
    cause = Cause(str(part["cause"].iloc[0]))
    if cause in _OF_WORK:
        member, changes = _OF_WORK[cause]
        rows = np.flatnonzero(dag.classification.kernel_class == member)
        if len(rows):
            return [(change(EventGroup(rows, str(cause))),) for change in changes]
    if cause is Cause.DATA_LOADING and (loads := is_data_loading(dag)).any():
        return [(Scale(EventGroup(np.flatnonzero(loads), str(cause)), 0.0),)]
    if cause in _OF_ALL:
        return [(_OF_ALL[cause],)]
    rest = spared(segments, part, str(cause))
    return [(*(_no_waits(dag, cause) if cause in _OF_WAITS else ()), rest)]


def spared(segments: pd.DataFrame, part: pd.DataFrame, name: str) -> Spare:
    """The change by which some attributed time goes."""
    edge = segments["edge"].to_numpy(np.int64)[part["segment"].to_numpy(np.int64)]
    dur_ns = part["dur_ns"].to_numpy(np.int64)
    known = edge >= 0
    return Spare(edge[known], dur_ns[known], name)


def is_data_loading(dag: Dag) -> npt.NDArray[np.bool_]:
    """Whether each event is a host range that says it loads data; shape (n_events,)."""
    events = dag.events
    loads: npt.NDArray[np.bool_] = events.named(events.symbols.searched(DATA_LOADING))
    return loads & events.is_host


def _no_waits(dag: Dag, cause: Cause) -> tuple[Change, ...]:
    """No waits of the host: of copies that block it, or of all other calls."""
    edges, events = dag.edges, dag.events
    waits = np.isin(edges.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC))
    waits &= events.is_host[edges.head >> 1]
    copies = edges.rule == Rule.BLOCKING_COPY
    waits &= copies if cause is Cause.BLOCKING_COPY else ~copies
    calls = np.unique(edges.head[waits] >> 1).astype(np.int64)
    if not len(calls):
        return ()
    name = "blocking copies" if cause is Cause.BLOCKING_COPY else "host waits"
    return (NoWait(EventGroup(calls, name)),)
