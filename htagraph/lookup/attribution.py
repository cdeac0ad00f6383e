"""To which operator, annotation and lane an event belongs."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.ancestors import nearest
from htagraph.algorithms.gather import gather
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind, among

__all__ = [
    "DATA_LOADING",
    "around",
    "host_of",
    "innermost",
    "track_labels",
    "under",
    "under_pattern",
]

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

DATA_LOADING = re.compile(
    r"(?i)data[ _-]?load(er|ing)|data_?pipe|_next_data\b|fetch_next_batch"
    r"|\b(load|fetch|read)(ing)?[ _-](the[ _-])?(next[ _-])?(data|batch)(es)?\b"
)
"""Names of host ranges that load data."""


def host_of(dag: Dag, events: I64) -> I64:
    """Host event of each event: itself, or the call that launched it; -1 for none."""
    is_device = gather(dag.events.is_device, events, default=False)
    return np.where(is_device, gather(dag.launch, events), events)


def innermost(dag: Dag, events: I64, kinds: tuple[EventKind, ...]) -> I64:
    """Innermost host event of some kinds around each event, itself included; -1 for none.

    Device events belong to where they were launched.

    Parameters
    ----------
    dag : Dag
    events : ndarray of shape (n,), dtype=int64
        -1 gives -1.
    kinds : tuple of EventKind

    Returns
    -------
    ndarray of shape (n,), dtype=int64
    """
    return nearest(dag.parent, host_of(dag, events), among(dag.events.kind, kinds))


def around(dag: Dag, events: I64) -> Mask:
    """Whether each event of the trace encloses one of some host events."""
    out = np.zeros(len(dag.events), dtype=bool)
    current = events
    while len(current):
        current = dag.parent[current].astype(np.int64)
        current = np.unique(current[current >= 0])
        current = current[~out[current]]
        out[current] = True
    return out


def under(dag: Dag, events: I64, mask: Mask) -> Mask:
    """Whether an event, or a host event around it, is in a mask over host events."""
    return nearest(dag.parent, host_of(dag, events), mask) >= 0


def under_pattern(dag: Dag, events: I64, pattern: re.Pattern[str]) -> Mask:
    """Whether the name of an event, or of a host event around it, matches."""
    matches = dag.events.named(dag.events.symbols.searched(pattern))
    return under(dag, events, matches & dag.events.is_host)


def track_labels(dag: Dag, events: I64) -> npt.NDArray[np.object_]:
    """Label of the track of each event: ``stream 7``, or the thread id of host events.

    Streams are named with their device where there are several.
    """
    table = dag.events
    several = len(np.unique(table.device[table.is_device])) > 1
    labels = np.empty(len(events), dtype=object)
    labels[:] = ""
    known = np.flatnonzero(events >= 0)
    on_device = known[table.is_device[events[known]]]
    pairs = np.stack(
        [table.device[events[on_device]].astype(np.int64), table.stream[events[on_device]]]
    )
    streams, which = np.unique(pairs, axis=1, return_inverse=True)
    names = [
        f"{f'gpu {device} ' if several else ''}stream {stream}"
        for device, stream in streams.T.tolist()
    ]
    labels[on_device] = np.array([*names, ""], dtype=object)[which]
    host = known[~table.is_device[events[known]]]
    threads = np.array([str(tid) for tid in table.lanes.tid] + [""], dtype=object)
    labels[host] = threads[table.lane[events[host]]]
    return labels
