"""Tracks of a Perfetto trace: which there are, what they are called, and in which order they stand.

::

    Critical path          root track
    GPU 0                  root track of the device
      stream 7               its streams, each with its counters below it
        queue length
      memory bandwidth       counters of the whole device
    python (pid 1234)      a process, and its threads

Ids are small, positive and made up (viewers cut ids to 32 bits and merge negative ones); the
original ones stand in the names. All ids of a file are in a range of its rank, so that the files of
several ranks can be concatenated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.model.events import EventTable
from htagraph.model.kinds import DEVICE_KINDS, EventKind, codes
from htagraph.writers.wire import utf8

__all__ = ["LaneTracks", "Tracks", "device_of_lane", "lane_tracks"]

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

_UUIDS_PER_RANK = 1_000_000
_IDS_PER_RANK = 10_000
_ROOTS_PER_RANK = 1_000
_EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering
_ON_DEVICE = (*DEVICE_KINDS, EventKind.DEVICE_ANNOTATION, EventKind.SYNC)


class LaneTracks(NamedTuple):
    """The tracks of all lanes.

    Parameters
    ----------
    of_event : ndarray of shape (n_events,), dtype=int64
    of_device : dict of int to int
    of_stream : dict of (int, int) to int
        By device and stream.
    """

    of_event: I64
    of_device: dict[int, int]
    of_stream: dict[tuple[int, int], int]


class Tracks:
    """Descriptors of tracks, in the making.

    Parameters
    ----------
    rank : int or None
        Rank to name in the tracks, None for a trace that stands for itself.
    place : int, optional
        From 1 on; by default the rank's.
    moved_by : str, default=""
        By how much device times were moved to fit the clock of the host, in words.
    run : str, default=""
        Which of several runs it is, named in the tracks.

    Attributes
    ----------
    place : int
        From 1 on: the range of ids, and the packet sequence, of the rank.
    """

    def __init__(
        self, rank: int | None, *, place: int | None = None, moved_by: str = "", run: str = ""
    ) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2  # noqa: PLC0415

        self._trace = perfetto_trace_pb2.Trace()
        self.place = place if place is not None else 1 if rank is None else rank + 1
        of_rank = "" if rank is None else f"rank {rank}"
        self._suffix = "".join(f", {part}" for part in (of_rank, run) if part)
        self._uuid = self.place * _UUIDS_PER_RANK
        self._id = self.place * _IDS_PER_RANK
        self._n_roots = 0
        self._moved_by = moved_by
        everything = self.add().track_descriptor
        everything.uuid, everything.child_ordering = 0, _EXPLICIT

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

    def _new_id(self) -> int:
        self._id += 1
        return self._id

    def root(self, name: str, description: str = "") -> int:
        """New track that stands above all processes, after the roots made before."""
        descriptor = self._new(name + self._suffix, None)
        descriptor.sibling_order_rank = self.place * _ROOTS_PER_RANK + self._n_roots
        descriptor.child_ordering = _EXPLICIT
        if description:
            descriptor.description = utf8(description)
        self._n_roots += 1
        return int(descriptor.uuid)

    def device(self, device: int) -> int:
        """New root track for the streams of a device."""
        shift = (
            f"Shifted by {self._moved_by} to fit the clock of the host." if self._moved_by else ""
        )
        return self.root(f"GPU {device}", shift)

    def child(self, name: str, parent: int, order: int = 0) -> int:
        """New track within a track; children of one name are drawn as one track with rows."""
        descriptor = self._new(name, parent)
        descriptor.sibling_order_rank = order
        descriptor.child_ordering = _EXPLICIT
        return int(descriptor.uuid)

    def process(self, name: str) -> tuple[int, int]:
        """New process track and its made-up process id."""
        descriptor, pid = self._new("", None), self._new_id()
        descriptor.process.pid = pid
        descriptor.process.process_name = utf8(name + self._suffix)
        return int(descriptor.uuid), pid

    def thread(self, name: str, process: tuple[int, int]) -> int:
        """New thread track of a process."""
        descriptor = self._new("", process[0])
        descriptor.thread.pid, descriptor.thread.tid = process[1], self._new_id()
        descriptor.thread.thread_name = utf8(name)
        return int(descriptor.uuid)

    def counter(self, name: str, unit: str, parent: int | None) -> int:
        """New counter track, after the slices within its parent."""
        descriptor = self._new(name, parent)
        descriptor.sibling_order_rank = self._uuid % _UUIDS_PER_RANK
        descriptor.counter.unit_name = unit
        return int(descriptor.uuid)

    def serialize(self) -> bytes:
        """Descriptors as bytes."""
        return bytes(self._trace.SerializeToString())


def device_of_lane(events: EventTable) -> I32:
    """Device whose stream a lane is, -1 for a host thread."""
    on_device = np.isin(events.kind, codes(_ON_DEVICE))
    out = np.full(len(events.lanes), -1, dtype=np.int32)
    out[events.lane[on_device]] = 0
    by_pid = [pid if isinstance(pid, int) and 0 <= pid < 1 << 20 else 0 for pid in events.lanes.pid]
    out = np.where(out == 0, np.array(by_pid, dtype=np.int32), out)
    known = on_device & (events.device >= 0)
    out[events.lane[known]] = events.device[known]
    return out.astype(np.int32)


def _text_order(text: object) -> tuple[bool, object]:
    """Order numbers before text."""
    return isinstance(text, str), text


def _process_name(events: EventTable, lane: int) -> str:
    pid, name = events.lanes.pid[lane], events.lanes.process[lane]
    number = f"pid {pid}" if isinstance(pid, int) else pid
    return f"{name} ({number})" if name and name != pid else number or "no process"


def _thread_name(events: EventTable, lane: int) -> str:
    tid, label = events.lanes.tid[lane], events.lanes.label(lane)
    return f"thread {tid}" if isinstance(tid, int) and label == str(tid) else label or "no thread"


def _stream_name(events: EventTable, lane: int) -> str:
    tid, name = events.lanes.tid[lane], events.lanes.thread[lane].strip()
    if name and str(tid) in name.split():
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
    tracks : Tracks
        Gets the new tracks.
    events : EventTable
    row : ndarray of shape (n_events,), dtype=int32
        Row within the lane; rows after the first get tracks of their own.

    Returns
    -------
    LaneTracks
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
    processes: dict[int | str, tuple[int, int]] = {}
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
                processes[pid] = tracks.process(_process_name(events, lane))
            name = _thread_name(events, lane)
            thread = tracks.thread(name, processes[pid])
            uuids = [
                thread,
                *(tracks.child(f"{name} (overlapping)", thread) for _ in range(n_rows[lane] - 1)),
            ]
        table[lane, : len(uuids)] = uuids
    return LaneTracks(table[events.lane, row], groups, streams)
