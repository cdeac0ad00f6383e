"""Lanes of a trace of another tool: threads, streams, and other tracks.

A track with a thread descriptor is a thread. AMD's rocprofv3 describes only one thread, and encodes
the others in track names::

    THREAD 1 (4711)                    a thread
    COMPUTE AGENT [4] STREAM [1] (GPU) kernels of a stream of a device
    COPY to AGENT [4] STREAM [1] (GPU) copies to it
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from htagraph.model.arrays import I64, Bools
from htagraph.model.events import LaneTable
from htagraph.readers.perfetto.trace_content import TraceContent

_THREAD = re.compile(r"THREAD \d+ \((\d{1,18})\)")
_DEVICE = re.compile(
    r"(COMPUTE|COPY to) [\w-]+ \[(\d{1,9})\] (STREAM|QUEUE|THREAD) \[(\d{1,18})\] *\(?(\w*)\)?"
)
_UUIDS = 1 << 64


@dataclass(frozen=True)
class Lanes:
    """The lanes of a trace.

    Parameters
    ----------
    tracks : ndarray of shape (n,), dtype=int64
        Bits of uuids, ascending; each track is a lane.
    is_thread : ndarray of shape (n,), dtype=bool
    device, stream : ndarray of shape (n,), dtype=int64
        Of a lane that is a stream, -1 elsewhere.
    is_gpu : ndarray of shape (n,), dtype=bool
        Whether that device is not called a CPU.
    """

    table: LaneTable
    tracks: I64
    is_thread: Bools
    device: I64
    stream: I64
    is_gpu: Bools


@dataclass(frozen=True)
class _Lane:
    pid: int | str
    tid: int | str
    process: str = ""
    thread: str = ""
    is_thread: bool = False
    device: int = -1
    stream: int = -1
    is_gpu: bool = True


def find_lanes(found: TraceContent) -> Lanes:
    """The lanes of all tracks that have slices."""
    tracks, first = np.unique(found.slices.track, return_index=True)
    packets = found.slices.packet[first].tolist()
    lanes = [
        _lane(found, uuid % _UUIDS, found.sequences.thread_of(packet))
        for uuid, packet in zip(tracks.tolist(), packets, strict=True)
    ]
    seen: Counter[tuple[int | str, int | str]] = Counter()
    tids: list[int | str] = []
    for lane in lanes:
        seen[lane.pid, lane.tid] += 1
        n = seen[lane.pid, lane.tid]
        tids.append(lane.tid if n == 1 else f"{lane.tid} ({n})")
    n = len(lanes)
    table = LaneTable(
        pid=tuple(lane.pid for lane in lanes),
        tid=tuple(tids),
        process=tuple(lane.process for lane in lanes),
        thread=tuple(lane.thread for lane in lanes),
        process_sort=(0,) * n,
        thread_sort=(0,) * n,
        process_labels=("",) * n,
    )
    return Lanes(
        table,
        tracks,
        np.array([lane.is_thread for lane in lanes], dtype=bool),
        np.array([lane.device for lane in lanes], dtype=np.int64),
        np.array([lane.stream for lane in lanes], dtype=np.int64),
        np.array([lane.is_gpu for lane in lanes], dtype=bool),
    )


def _lane(found: TraceContent, uuid: int, writer: tuple[int, int] | None) -> _Lane:
    tracks = found.tracks
    line = tracks.ancestors(uuid)
    thread = line[0].thread if line else writer if uuid == 0 else None
    process = tracks.process_of(uuid)
    process_name = tracks.processes.get(process, "") if process is not None else ""
    if thread is not None:
        name = (line[0].name if line else "") or tracks.threads.get(thread, "")
        return _Lane(*thread, tracks.processes.get(thread[0], ""), name, is_thread=True)
    name = line[0].name if line else ""
    pid: int | str = "" if process is None else process
    if amd := _THREAD.fullmatch(name):
        return _Lane(pid, int(amd[1]), process_name, name, is_thread=True)
    if amd := _DEVICE.match(name):
        stream = -1 if amd[3] == "THREAD" else int(amd[4])
        return _Lane(
            int(amd[2]),
            name.strip(),
            process_name,
            name.strip(),
            False,
            int(amd[2]),
            stream,
            amd[5] != "CPU",
        )
    parents = [track.name for track in line[1:] if track.name]
    tid: int | str = name or (f"track {uuid}" if uuid else "no track")
    return _Lane(pid, tid, process_name or ": ".join(reversed(parents)), "")
