"""The devices or streams with work: what comes next, what runs at once, and who waits for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import Cover, States, check_tiling, states
from htagraph.arrays.matching import group_starts, last_before, running_latest
from htagraph.errors import QueryError
from htagraph.lookup.attribution import spelling
from htagraph.lookup.windowed import Clipped, device_work
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, KernelClass, among
from htagraph.model.window import Window

NEVER = np.iinfo(np.int64).min // 2
"""Before all times, and differences from it fit into 64 bits."""


@dataclass(frozen=True)
class Queues:
    """The devices, or the streams, that have work."""

    # device, stream: of shape (n_queues,). Ascending; `stream` is -1 where a queue is a whole
    # device.
    device: I64
    stream: I64
    of_event: I64  # Of shape (n_events,). Queue of each piece of device work, -1 elsewhere.

    def __len__(self) -> int:
        return len(self.device)

    def in_order(self, work: Clipped) -> tuple[Clipped, I64, I64]:
        """Work by queue and time, the queue of each, and the last end of earlier work there.

        Before the first work of a queue, that is `NEVER`.
        """
        work = work.take(np.lexsort((work.end_ns, work.start_ns, self.of_event[work.event])))
        queue = self.of_event[work.event]
        starts = group_starts(queue)
        latest = work.end_ns[running_latest(work.end_ns, starts)]
        return work, queue, np.where(starts, NEVER, np.roll(latest, 1))

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


CLASSES = (KernelClass.COMPUTE, KernelClass.COMMUNICATION, KernelClass.MEMORY)
"""Classes of device work: bit ``c`` of a mask says that class ``c`` runs, bit 0 is always set."""


def devices_of(dag: Dag) -> I64:
    """Devices of a trace that have work, ascending."""
    return np.unique(dag.events.device[dag.events.is_device]).astype(np.int64)


def device_states(dag: Dag, window: Window) -> States:
    """Classes that run at once on each device; the stretches tile the window.

    ::

        stream 7   |   [compute     ]
        stream 9   |         [nccl      ]
        class      |   [  1  ][ 1+2 ][2 ]      0 (idle) elsewhere

    ``group`` is the device; bit `KernelClass` of ``mask`` is set where that class runs, bit 0
    always.
    """
    work, devices = device_work(dag, window), devices_of(dag)
    n = len(devices)
    found = states(
        np.concatenate([dag.events.device[work.event].astype(np.int64), devices]),
        np.concatenate([work.start_ns, np.full(n, window.start_ns)]),
        np.concatenate([work.end_ns, np.full(n, window.end_ns)]),
        np.concatenate([dag.classification.kernel_class[work.event], np.zeros(n, dtype=np.int8)]),
        n_bits=len(KernelClass),
    )
    check_tiling(
        "what runs on a device",
        found.start,
        found.end,
        (np.full(n, window.start_ns), np.full(n, window.end_ns)),
        np.searchsorted(devices, found.group),
    )
    return found


def runs(found: States, kernel_class: KernelClass) -> Bools:
    """Whether a class runs, on each stretch."""
    return np.asarray((found.mask >> int(kernel_class)) & 1 == 1)


def time_by_class(found: States, device: int, start_ns: I64, end_ns: I64) -> dict[str, I64]:
    """Time of a device in each range by ``idle`` and `CLASSES`, which add up to the range.

    A class counts while none before it runs: communication that no compute hides. `found` covers
    all ranges.
    """
    mine = found.group == device
    part = np.select(
        [runs(found, member) for member in CLASSES], list(CLASSES), default=KernelClass.NONE
    )
    names = {KernelClass.NONE: "idle"} | {member: member.label for member in CLASSES}
    return {
        name: Cover(found.start[rows], found.end[rows]).within(start_ns, end_ns)
        for member, name in names.items()
        for rows in [mine & (part == member)]
    }


READS = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|nonzero|masked_select|equal)$")
"""Operators that read a value back from the device. On CPU tensors they contain no waiting call."""

_SYNCS = (CallMeaning.DEVICE_SYNC, CallMeaning.STREAM_SYNC, CallMeaning.EVENT_SYNC)
_LONG_FACTOR = 2
"""A synchronization that returns at once takes about as long as a launch; more than twice that is a
wait. Chosen: test_phases draws one on each side."""


def long_waits(dag: Dag) -> Bools:
    """Whether each event is a synchronization that took too long to have returned at once."""
    is_long = dag.events.dur_ns > _LONG_FACTOR * dag.calibration.launch_usual_ns
    waits: Bools = among(call_meanings(dag.events), _SYNCS) & is_long
    return waits


def is_matched(dag: Dag) -> Bools:
    """Whether each event is known to have waited for device work."""
    matched = np.zeros(len(dag.events), dtype=bool)
    matched[dag.edges.head[dag.edges.kind == EdgeKind.SYNC] >> 1] = True
    return matched
