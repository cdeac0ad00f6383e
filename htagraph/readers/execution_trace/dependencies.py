"""Tensor dependencies between threads: who wrote what an operator reads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.matching import group_starts, last_before
from htagraph.model.events import EventTable
from htagraph.readers.execution_trace.correlation import Correlation
from htagraph.readers.execution_trace.nodes import ExecutionNodes

__all__ = ["tensor_dependencies"]

I64 = npt.NDArray[np.int64]


def tensor_dependencies(
    events: EventTable, nodes: ExecutionNodes, pairs: Correlation
) -> tuple[I64, I64]:
    """Events that wrote a tensor, and events on other threads that read it.

    A tensor is written by the operator that makes its storage, or that changes it by its schema; a
    view writes nothing. A reader depends on the last write of the storage that ended before it
    began. What one thread wrote and read is in order anyway; so is what the reader's thread has
    read before, and what the writer's thread wrote before.

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
    """The pairs that program order does not follow from: first readers, and last writers."""
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
