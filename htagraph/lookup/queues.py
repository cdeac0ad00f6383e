"""Devices or streams with work, numbered, and which work comes next in each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import last_before
from htagraph.errors import QueryError
from htagraph.lookup.naming import spelling
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag


@dataclass(frozen=True)
class Queues:
    """The devices, or the streams, that have work.

    Parameters
    ----------
    device, stream : ndarray of shape (n_queues,), dtype=int64
        Ascending; `stream` is -1 where a queue is a whole device.
    of_event : ndarray of shape (n_events,), dtype=int64
        Queue of each piece of device work, -1 elsewhere.
    """

    device: I64
    stream: I64
    of_event: I64

    def __len__(self) -> int:
        """Number of queues."""
        return len(self.device)

    def next_work(self, dag: Dag, queue: I64, since_ns: I64) -> I64:
        """First work of some length in each queue that starts at or after a time, -1 for none.

        Ties go to the work launched first, then the longest, then by name.
        """
        events = dag.events
        rows = np.flatnonzero(events.is_device & (events.dur_ns > 0))
        launched = gather(events.ts_ns, dag.launch[rows], np.iinfo(np.int64).max)
        keys = (
            spelling(dag)[events.name[rows]],
            -events.dur_ns[rows],
            launched,
            events.ts_ns[rows],
            self.of_event[rows],
        )
        rows = rows[np.lexsort(keys)]
        position = last_before(self.of_event[rows], events.ts_ns[rows], queue, since_ns) + 1
        # Where nothing precedes in the queue, its first work is the candidate.
        first = np.searchsorted(self.of_event[rows], queue)
        position = np.maximum(position, first)
        found = gather(rows, np.where(position < len(rows), position, -1))
        return np.where(gather(self.of_event, found) == queue, found, -1)


def queues(dag: Dag, per: str = "device") -> Queues:
    """The devices, or the streams, that have work."""
    if per not in ("device", "stream"):
        raise QueryError(f"there are no queues per {per!r}.", hint="use 'device' or 'stream'.")
    rows = np.flatnonzero(dag.events.is_device)
    device = dag.events.device[rows].astype(np.int64)
    stream = dag.events.stream[rows] if per == "stream" else np.full(len(rows), -1, dtype=np.int64)
    streams, stream_code = np.unique(stream, return_inverse=True)
    packed, number = np.unique(
        (device + 1) * max(len(streams), 1) + stream_code, return_inverse=True
    )
    of_event = np.full(len(dag.events), -1, dtype=np.int64)
    of_event[rows] = number
    found_device, found_stream = np.divmod(packed, max(len(streams), 1))
    return Queues(found_device - 1, streams[found_stream] if len(streams) else packed, of_event)
