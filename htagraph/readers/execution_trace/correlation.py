"""Matches nodes of an execution trace with events, and finds tensors passed between threads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.matching import group_starts, last_before, match_keys
from htagraph.model.arrays import I64
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind, among
from htagraph.readers.execution_trace.nodes import ExecutionNodes

_RANGES = (EventKind.OP, EventKind.ANNOTATION)


class Correlation(NamedTuple):
    """Pairs of an event and a node with the same name.

    Parameters
    ----------
    event, node : ndarray of shape (n,), dtype=int64
        Rows of the event table, ascending, and of the nodes.
    n_misnamed : int
        Pairs of one id whose names differ, which are left out.
    found_by : str
        What paired them; empty if nothing did.
    """

    event: I64
    node: I64
    n_misnamed: int
    found_by: str


def correlate(events: EventTable, nodes: ExecutionNodes) -> Correlation:
    """The pairs of events and nodes.

    By the record function id, if the profiler recorded it; else by the external id, which older
    versions took from it; else by order: a thread that ran exactly the names of one other, in the
    same order, is that thread. Ids by which more names differ than agree are of another run.
    """
    ranges = np.flatnonzero(among(events.kind, _RANGES))
    name = np.fromiter(map(events.symbols.code, nodes.name), np.int64, len(nodes))
    for found_by, ids in (
        ("record function id", events.column("record_function")[ranges]),
        ("external id", events.external_id[ranges]),
    ):
        rows = ranges[ids > 0]
        node = match_keys(ids[ids > 0], nodes.record_function)
        rows, node = rows[node >= 0], node[node >= 0]
        agrees = events.name[rows] == name[node]
        n_misnamed = int((~agrees).sum())
        if agrees.sum() > n_misnamed:
            return Correlation(rows[agrees], node[agrees], n_misnamed, found_by)
    event, node = _in_order(events, ranges, nodes.thread, name)
    return Correlation(event, node, 0, "order of names (inferred)" if len(event) else "")


def _in_order(events: EventTable, ranges: I64, thread: I64, name: I64) -> tuple[I64, I64]:
    """Events and nodes of threads that ran the same names in the same order, as no other did."""
    order = ranges[np.lexsort((-events.dur_ns[ranges], events.ts_ns[ranges], events.lane[ranges]))]
    lanes = _by_names(order, events.lane[order], events.name[order])
    threads = _by_names(np.arange(len(thread)), thread, name)
    same = [
        (lanes[names][0], rows[0])
        for names, rows in threads.items()
        if len(rows) == 1 and len(lanes.get(names, ())) == 1
    ]
    none = np.empty(0, dtype=np.int64)
    event = np.concatenate([none, *(event for event, _ in same)])
    node = np.concatenate([none, *(node for _, node in same)])
    by_event = np.argsort(event)
    return event[by_event], node[by_event]


def _by_names(
    rows: I64, owner: npt.NDArray[np.integer], name: npt.NDArray[np.integer]
) -> dict[bytes, list[I64]]:
    """Rows of each owner, by the names they have in order."""
    found: dict[bytes, list[I64]] = {}
    for one in np.unique(owner).tolist():
        mine = np.flatnonzero(owner == one)
        found.setdefault(name[mine].astype(np.int64).tobytes(), []).append(rows[mine])
    return found


def tensor_dependencies(
    events: EventTable, nodes: ExecutionNodes, pairs: Correlation
) -> tuple[I64, I64]:
    """Events that wrote a tensor, and events on other threads that read it.

    A tensor is written by the operator that makes its storage, or that mutates it by its schema; a
    view writes nothing. A reader depends on the last write of the storage that ended before it
    began. Left out is what program order implies: on one thread, and earlier reads and writes of
    the two threads.

    Returns
    -------
    writer, reader : ndarray of shape (n,), dtype=int64
        Rows of the event table; readers in order of time.
    """
    event_of = np.full(len(nodes), -1, dtype=np.int64)
    event_of[pairs.node] = pairs.event
    event = event_of[nodes.accesses.node]
    known = event >= 0
    event, storage = event[known], nodes.accesses.storage[known]
    is_write = nodes.accesses.is_write[known]
    order = np.lexsort((event[is_write], events.end_ns[event[is_write]], storage[is_write]))
    by, of = event[is_write][order], storage[is_write][order]
    reader, read = event[~is_write], storage[~is_write]
    last = last_before(of, events.end_ns[by], read, events.ts_ns[reader] + 1)
    reader, writer = reader[last >= 0], by[last[last >= 0]]
    other = events.lane[writer] != events.lane[reader]
    return _new(events, writer[other], reader[other])


def _new(events: EventTable, writer: I64, reader: I64) -> tuple[I64, I64]:
    """The pairs that program order does not imply: first readers, and last writers."""
    first = np.lexsort((reader, events.ts_ns[reader], events.lane[reader], writer))
    rows = first[group_starts(writer[first], events.lane[reader[first]])]
    latest = rows[
        np.lexsort(
            (-writer[rows], -events.end_ns[writer[rows]], events.lane[writer[rows]], reader[rows])
        )
    ]
    rows = latest[group_starts(reader[latest], events.lane[writer[latest]])]
    rows = rows[np.lexsort((writer[rows], reader[rows], events.ts_ns[reader[rows]]))]
    return writer[rows], reader[rows]
