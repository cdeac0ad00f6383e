"""Tracks of a Perfetto trace: names and order.

::

    Findings               root track
      Critical path
    GPU 0                  root track of the device
      stream 7               its streams, each with its counters below it
        queue length
      memory bandwidth       counters of the whole device
    python 1234            a process, and its threads: viewers show the id after the name
      Spans: PyTorch ...     what is no process, such as spans of the profiler, in the first one

Viewers cut ids to 32 bits, merge negative ones, and take equal ids for one process. So an id that
no process can have becomes a track without one, and a process whose id is taken in another part of
the file gets a new one; the names then contain the original ids.
"""

from __future__ import annotations

import re
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np

from htagraph.model.arrays import I32, I64
from htagraph.model.events import EventTable
from htagraph.model.kinds import DEVICE_KINDS, EventKind, among
from htagraph.model.perfetto_fields import (
    DESCRIPTOR_PROCESS_ORDERING,
    EXPLICIT,
    PROCESS_ORDERING_EXPLICIT,
)
from htagraph.writers.slice_packets import utf8, varint

_UUIDS_PER_RANK = 1_000_000
"""Range of track ids of each rank."""

_MAX_ID = (1 << 31) - 1
"""Largest id of a process or thread in viewers."""

_ROOTS_PER_RANK = 1_000
"""Range of the order of root tracks of each rank."""

_NUMBER = re.compile(r"\b(thread )?(\d+)\b")
_ON_DEVICE = (*DEVICE_KINDS, EventKind.DEVICE_ANNOTATION, EventKind.SYNC)


class Process(NamedTuple):
    """The track of a process, its id in the file, and its name.

    The id is 0 if it is no process: in the track of another one, its threads have its name.
    """

    uuid: int
    pid: int
    name: str


class Tracks:
    """Descriptors of tracks under construction.

    `place`: from 1: the range of ids, and the packet sequence; by default the rank's. `moved_by`:
    by how much device times were shifted to fit the host clock, in words. `taken`: process ids of
    other parts of the file; gets those of this part.
    """

    def __init__(
        self,
        rank: int | None,
        *,
        place: int | None = None,
        moved_by: str = "",
        run: str = "",
        taken: set[int] | None = None,
    ) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2  # noqa: PLC0415

        self._trace = perfetto_trace_pb2.Trace()
        self.place = place if place is not None else 1 if rank is None else rank + 1
        of_rank = "" if rank is None else f"rank {rank}"
        self._of = tuple(filter(None, (of_rank, run)))
        self._uuid = self.place * _UUIDS_PER_RANK
        self._taken = set() if taken is None else taken
        self._first = 0
        self._n_roots = 0
        self.moved_by = moved_by
        everything = self.add().track_descriptor
        everything.uuid, everything.child_ordering = 0, EXPLICIT
        # As bytes: older versions of the schema lack it. Viewers without it put busy ones first.
        everything.MergeFromString(
            varint(DESCRIPTOR_PROCESS_ORDERING << 3) + varint(PROCESS_ORDERING_EXPLICIT)
        )

    def add(self) -> Any:  # noqa: ANN401  a message of a package without types
        """New packet of the descriptors."""
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = self.place
        return packet

    def _new(self, name: str, parent: int | None) -> Any:  # noqa: ANN401
        descriptor = self.add().track_descriptor
        self._uuid += 1
        descriptor.uuid = self._uuid
        if name:
            descriptor.name = utf8(name)
        if parent is not None:
            descriptor.parent_uuid = parent
        return descriptor

    def called(self, name: str) -> str:
        """A name with the rank and the run, unless it says them."""
        said = (of for of in self._of if not re.search(rf"\b{re.escape(of)}\b", name))
        return ", ".join([name, *said])

    def root(self, name: str, description: str = "") -> int:
        """New track above all processes, below earlier roots."""
        self._n_roots += 1
        order = self.place * _ROOTS_PER_RANK + self._n_roots
        return self.child(self.called(name), None, order, description)

    def child(self, name: str, parent: int | None, order: int = 0, description: str = "") -> int:
        """New track within a track; children with one name are drawn as one track with rows."""
        descriptor = self._new(name, parent)
        descriptor.sibling_order_rank = order
        descriptor.child_ordering = EXPLICIT
        if description:
            descriptor.description = utf8(description)
        return int(descriptor.uuid)

    def process(self, name: str, pid: int | str) -> Process:
        """New track of a process; what is none is drawn in the first process, if there is one."""
        if not _is_id(pid):
            called = _named(name, pid)
            return (
                Process(self._first, 0, called)
                if self._first
                else Process(self.root(called), 0, "")
            )
        new = next(number for number in chain([int(pid)], count(1)) if number not in self._taken)
        self._taken.add(new)
        descriptor = self._new("", None)
        descriptor.process.pid, descriptor.sibling_order_rank = new, self.place
        label = (name or "process") if new == pid else _named(name, pid)
        descriptor.process.process_name = utf8(self.called(label))
        self._first = self._first or int(descriptor.uuid)
        return Process(int(descriptor.uuid), new, name)

    def thread(self, label: str, tid: int | str, process: Process, n_rows: int = 1) -> list[int]:
        """New tracks of a thread in the track of its process, one for each row."""
        if not _is_id(tid) or not process.pid:
            name = f"thread {tid}" if isinstance(tid, int) and label == str(tid) else label
            name = name or "no thread"
            first = self.child(name, process.uuid, self._uuid % _UUIDS_PER_RANK)
        else:
            descriptor = self._new("", process.uuid)
            descriptor.thread.pid, descriptor.thread.tid = process.pid, int(tid)
            bare = _NUMBER.sub(lambda at: "" if at[2] == str(tid) else at[0], label).strip(" ()")
            name = "thread" if bare == process.name else bare or "thread"
            descriptor.thread.thread_name = utf8(name)
            first = int(descriptor.uuid)
        return [first, *(self.child(f"{name}, overlapping", first) for _ in range(n_rows - 1))]

    def counter(self, name: str, unit: str, parent: int | None) -> int:
        """New counter track, below the slices of its parent."""
        descriptor = self._new(name, parent)
        descriptor.sibling_order_rank = self._uuid % _UUIDS_PER_RANK
        descriptor.counter.unit_name = unit
        return int(descriptor.uuid)

    def serialize(self) -> bytes:
        """Descriptors as bytes."""
        return bytes(self._trace.SerializeToString())


def _is_id(number: int | str) -> bool:
    """Whether viewers accept a process or thread id."""
    return isinstance(number, int) and 0 < number <= _MAX_ID


def _named(process: str, pid: int | str) -> str:
    number = f"pid {pid}" if isinstance(pid, int) else pid
    return f"{process} ({number})" if process and number != process else number


def device_of_lane(events: EventTable) -> I32:
    """Device whose stream a lane is, -1 for a host thread."""
    on_device = among(events.kind, _ON_DEVICE)
    out = np.full(len(events.lanes), -1, dtype=np.int32)
    out[events.lane[on_device]] = 0
    by_pid = [pid if isinstance(pid, int) and 0 <= pid < 1 << 20 else 0 for pid in events.lanes.pid]
    out = np.where(out == 0, np.array(by_pid, dtype=np.int32), out)
    known = on_device & (events.device >= 0)
    out[events.lane[known]] = events.device[known]
    return out.astype(np.int32)


def _stream_name(events: EventTable, lane: int) -> str:
    tid, name = events.lanes.tid[lane], events.lanes.thread[lane].strip()
    if name and (str(tid) in name.split() or (isinstance(tid, int) and tid < 0)):
        return name
    if name:
        return f"{name} ({tid})"
    # Old profilers write the word themselves.
    return str(tid) if str(tid).startswith("stream") else f"stream {tid}"


def lane_tracks(
    tracks: Tracks, events: EventTable, row: I32
) -> tuple[I64, dict[int, int], dict[tuple[int, int], int]]:
    """Make the tracks of all lanes that have events: those of events, of devices and of streams.

    `row` of shape (n_events,): row within the lane; rows after the first get tracks of their own.
    """
    device, lanes = device_of_lane(events), events.lanes
    stream = np.full(len(lanes), -1, dtype=np.int64)
    known = events.stream >= 0
    stream[events.lane[known]] = events.stream[known]
    n_rows = np.zeros(len(lanes), dtype=np.int64)
    np.maximum.at(n_rows, events.lane, row.astype(np.int64) + 1)
    used = sorted(
        np.flatnonzero(n_rows).tolist(),
        key=lambda lane: (  # numbers before texts
            isinstance(lanes.pid[lane], str),
            lanes.pid[lane],
            lanes.thread_sort[lane],
            isinstance(lanes.tid[lane], str),
            lanes.tid[lane],
        ),
    )
    moved_by = tracks.moved_by
    shift = f"Shifted by {moved_by} to fit the host clock." if moved_by else ""
    found = sorted({int(device[lane]) for lane in used} - {-1})
    groups = {number: tracks.root(f"GPU {number}", shift) for number in found}
    streams: dict[tuple[int, int], int] = {}
    processes: dict[int | str, Process] = {}
    table = np.zeros((len(lanes), int(n_rows.max(initial=1))), dtype=np.int64)
    for order, lane in enumerate(used):
        if device[lane] >= 0:
            name = _stream_name(events, lane)
            uuids = [
                tracks.child(name, groups[int(device[lane])], order) for _ in range(n_rows[lane])
            ]
            streams.setdefault((int(device[lane]), int(stream[lane])), uuids[0])
        else:
            pid = lanes.pid[lane]
            if pid not in processes:
                processes[pid] = tracks.process(lanes.process[lane], pid)
            label = lanes.label(lane)
            if not processes[pid].pid:
                label = ": ".join(filter(None, (processes[pid].name, label)))
            uuids = tracks.thread(label, lanes.tid[lane], processes[pid], n_rows[lane])
        table[lane, : len(uuids)] = uuids
    return table[events.lane, row], groups, streams
