"""Tracks of a Perfetto trace: names and order.

::

    Critical path          root track
    GPU 0                  root track of the device
      stream 7               its streams, each with its counters below it
        queue length
      memory bandwidth       counters of the whole device
    python 1234            a process, and its threads: viewers show the id after the name
    no process             root track for everything else, such as spans of the profiler

Viewers cut ids to 32 bits, merge negative ones, and take equal ids for one process. So an id that
no process can have becomes a track without one, and a process whose id is taken in another part of
the file gets a new one; the names then contain the original ids.
"""

from __future__ import annotations

import re
from itertools import chain, count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.model import perfetto_fields as proto
from htagraph.model.events import EventTable
from htagraph.model.kinds import DEVICE_KINDS, EventKind, among
from htagraph.writers.wire import Message, encoded

__all__ = ["LaneTracks", "Tracks", "device_of_lane", "lane_tracks"]

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

_UUIDS_PER_RANK = 1_000_000
"""Range of track ids of each rank."""

_MAX_ID = (1 << 31) - 1
"""Largest id of a process or thread in viewers."""

_ROOTS_PER_RANK = 1_000
"""Range of the order of root tracks of each rank."""

_ON_DEVICE = (*DEVICE_KINDS, EventKind.DEVICE_ANNOTATION, EventKind.SYNC)


class LaneTracks(NamedTuple):
    """The tracks of all lanes.

    Parameters
    ----------
    of_event : ndarray of shape (n_events,), dtype=int64
    of_stream : dict of (int, int) to int
        By device and stream.
    """

    of_event: I64
    of_device: dict[int, int]
    of_stream: dict[tuple[int, int], int]


class Process(NamedTuple):
    """The track of a process, its id in the file (0 if it cannot have one), and its name."""

    uuid: int
    pid: int
    name: str


class Tracks:
    """Descriptors of tracks under construction.

    Parameters
    ----------
    rank : int or None
        Rank to name in the tracks, None for a trace of its own.
    place : int, optional
        From 1; by default the rank's.
    moved_by : str, default=""
        By how much device times were shifted to fit the host clock, in words.
    run : str, default=""
        Name of one of several runs, for the tracks.
    taken : set of int, optional
        Process ids of other parts of the file; gets those of this part.

    Attributes
    ----------
    place : int
        From 1: the range of ids, and the packet sequence.
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
        self._packets: list[Message] = []
        self.place = place if place is not None else 1 if rank is None else rank + 1
        of_rank = "" if rank is None else f"rank {rank}"
        self._of = tuple(filter(None, (of_rank, run)))
        self._uuid = self.place * _UUIDS_PER_RANK
        self._taken = set() if taken is None else taken
        self._no_process = 0
        self._n_roots = 0
        self._moved_by = moved_by
        everything = {
            proto.DESCRIPTOR_UUID: 0,
            proto.DESCRIPTOR_CHILD_ORDERING: proto.EXPLICIT,
            # Viewers without it put busy ones first.
            proto.DESCRIPTOR_PROCESS_ORDERING: proto.PROCESS_ORDERING_EXPLICIT,
        }
        self.add({proto.PACKET_TRACK_DESCRIPTOR: everything})

    def add(self, packet: Message) -> None:
        """Add a packet to the descriptors."""
        self._packets.append({proto.PACKET_TRUSTED_PACKET_SEQUENCE_ID: self.place} | packet)

    def _new(self, name: str, parent: int | None, more: Message) -> int:
        self._uuid += 1
        descriptor: Message = {proto.DESCRIPTOR_UUID: self._uuid} | more
        if name:
            descriptor[proto.DESCRIPTOR_NAME] = name
        if parent is not None:
            descriptor[proto.DESCRIPTOR_PARENT_UUID] = parent
        self.add({proto.PACKET_TRACK_DESCRIPTOR: descriptor})
        return self._uuid

    def _called(self, name: str) -> str:
        """A name with the rank and the run, unless it says them."""
        said = (of for of in self._of if not re.search(rf"\b{re.escape(of)}\b", name))
        return ", ".join([name, *said])

    def root(self, name: str, description: str = "") -> int:
        """New track above all processes, below earlier roots."""
        order = self.place * _ROOTS_PER_RANK + self._n_roots
        said = {proto.DESCRIPTOR_DESCRIPTION: description} if description else {}
        self._n_roots += 1
        return self._new(self._called(name), None, _ordered(order) | said)

    def device(self, device: int) -> int:
        """New root track for the streams of a device."""
        shift = f"Shifted by {self._moved_by} to fit the host clock." if self._moved_by else ""
        return self.root(f"GPU {device}", shift)

    def child(self, name: str, parent: int, order: int = 0) -> int:
        """New track within a track; children with one name are drawn as one track with rows."""
        return self._new(name, parent, _ordered(order))

    def process(self, name: str, pid: int | str) -> Process:
        """New track of a process."""
        if not _is_id(pid):
            self._no_process = self._no_process or self.root("no process")
            return Process(self._no_process, 0, name)
        new = next(number for number in chain([int(pid)], count(1)) if number not in self._taken)
        self._taken.add(new)
        label = (name or "process") if new == pid else _named(name, pid)
        process = {proto.PROCESS_PID: new, proto.PROCESS_PROCESS_NAME: self._called(label)}
        more = {
            proto.DESCRIPTOR_PROCESS: process,
            proto.DESCRIPTOR_SIBLING_ORDER_RANK: self.place,
        }
        return Process(self._new("", None, more), new, name)

    def thread(self, label: str, tid: int | str, process: Process, n_rows: int = 1) -> list[int]:
        """New tracks of a thread in the track of its process, one for each row."""
        if not _is_id(tid) or not process.pid:
            name = f"thread {tid}" if isinstance(tid, int) and label == str(tid) else label
            name = name or "no thread"
            first = self.child(name, process.uuid, self._uuid % _UUIDS_PER_RANK)
        else:
            bare = re.sub(rf"\b(thread )?{tid}\b", "", label).strip(" ()")
            name = "thread" if bare == process.name else bare or "thread"
            thread = {
                proto.THREAD_PID: process.pid,
                proto.THREAD_TID: int(tid),
                proto.THREAD_THREAD_NAME: name,
            }
            first = self._new("", process.uuid, {proto.DESCRIPTOR_THREAD: thread})
        return [first, *(self.child(f"{name}, overlapping", first) for _ in range(n_rows - 1))]

    def counter(self, name: str, unit: str, parent: int | None) -> int:
        """New counter track, below the slices of its parent."""
        more = {
            proto.DESCRIPTOR_SIBLING_ORDER_RANK: (self._uuid + 1) % _UUIDS_PER_RANK,
            proto.DESCRIPTOR_COUNTER: {proto.COUNTER_UNIT_NAME: unit},
        }
        return self._new(name, parent, more)

    def serialize(self) -> bytes:
        """Descriptors as bytes."""
        return encoded({proto.TRACE_PACKET: self._packets})


def _ordered(order: int) -> Message:
    """Fields of a track that is placed among its siblings, as are its children."""
    return {
        proto.DESCRIPTOR_SIBLING_ORDER_RANK: order,
        proto.DESCRIPTOR_CHILD_ORDERING: proto.EXPLICIT,
    }


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


def _text_order(text: object) -> tuple[bool, object]:
    return isinstance(text, str), text


def _stream_name(events: EventTable, lane: int) -> str:
    tid, name = events.lanes.tid[lane], events.lanes.thread[lane].strip()
    if name and (str(tid) in name.split() or (isinstance(tid, int) and tid < 0)):
        return name
    if name:
        return f"{name} ({tid})"
    # Old profilers write the word themselves.
    return str(tid) if str(tid).startswith("stream") else f"stream {tid}"


def _stream_of_lane(events: EventTable) -> I64:
    """Stream that each lane is, -1 for none."""
    out = np.full(len(events.lanes), -1, dtype=np.int64)
    known = events.stream >= 0
    out[events.lane[known]] = events.stream[known]
    return out


def lane_tracks(tracks: Tracks, events: EventTable, row: I32) -> LaneTracks:
    """Make the tracks of all lanes that have events.

    Parameters
    ----------
    row : ndarray of shape (n_events,), dtype=int32
        Row within the lane; rows after the first get tracks of their own.
    """
    device, stream, lanes = device_of_lane(events), _stream_of_lane(events), events.lanes
    n_rows = np.zeros(len(lanes), dtype=np.int64)
    np.maximum.at(n_rows, events.lane, row.astype(np.int64) + 1)
    used = sorted(
        np.flatnonzero(n_rows).tolist(),
        key=lambda lane: (
            _text_order(lanes.pid[lane]),
            lanes.thread_sort[lane],
            _text_order(lanes.tid[lane]),
        ),
    )
    groups = {d: tracks.device(d) for d in sorted({int(device[lane]) for lane in used} - {-1})}
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
                label = ": ".join(filter(None, (_named(lanes.process[lane], pid), label)))
            uuids = tracks.thread(label, lanes.tid[lane], processes[pid], n_rows[lane])
        table[lane, : len(uuids)] = uuids
    return LaneTracks(table[events.lane, row], groups, streams)
