"""A smaller trace: some events of a trace as a valid one, each as in the original."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import I64
from htagraph.model.events import EventTable, LaneTable
from htagraph.writers.chrome_json import microseconds
from htagraph.writers.output_file import output_file

_FLOW = "ac2g"


def _lane_events(lanes: LaneTable, used: Sequence[int]) -> list[str]:
    """The metadata events that name processes and threads."""
    named: dict[tuple[str, str], str] = {}
    for lane in used:
        pid, tid = json.dumps(lanes.pid[lane]), json.dumps(lanes.tid[lane])
        if lanes.process[lane]:
            name = json.dumps(lanes.process[lane])
            named[pid, ""] = (
                f'{{"ph":"M","name":"process_name","pid":{pid},"tid":0,"args":{{"name":{name}}}}}'
            )
        if lanes.thread[lane]:
            name = json.dumps(lanes.thread[lane])
            named[pid, tid] = (
                f'{{"ph":"M","name":"thread_name","pid":{pid},"tid":{tid},'
                f'"args":{{"name":{name}}}}}'
            )
    return list(named.values())


def _flows(
    events: EventTable,
    call: npt.NDArray[np.integer],
    work: npt.NDArray[np.integer],
    base_time_ns: int,
    clock_shift_ns: npt.ArrayLike,
) -> list[str]:
    """The arrows from launch calls to their device work."""
    lanes = [
        f'"pid":{json.dumps(pid)},"tid":{json.dumps(tid)}'
        for pid, tid in zip(events.lanes.pid, events.lanes.tid, strict=True)
    ]
    shift = np.broadcast_to(np.asarray(clock_shift_ns, dtype=np.int64), len(events))
    what = f'"cat":"{_FLOW}","name":"{_FLOW}"'
    out = []
    for phase, ends, shift_ns, more in (
        ("s", call, 0, ""),
        ("f", work, shift[work], ',"bp":"e"'),
    ):
        times = microseconds(events.ts_ns[ends] - base_time_ns - shift_ns)
        for number, (lane, ts) in enumerate(
            zip(events.lane[ends].tolist(), times, strict=True), start=1
        ):
            out.append(f'{{"ph":"{phase}","id":{number},{lanes[lane]},"ts":{ts},{what}{more}}}')
    return out


def write_subset(
    out: str | Path,
    raw: Sequence[bytes],
    events: EventTable,
    rows: I64,
    *,
    launch: npt.NDArray[np.integer],
    metadata: Mapping[str, Any],
    base_time_ns: int,
    clock_shift_ns: npt.ArrayLike = 0,
) -> Path:
    """Write some events of a trace as a trace of its own.

    Parameters
    ----------
    out : str or Path
        ``.json``, or ``.json.gz`` to compress.
    raw : sequence of bytes
        The events as in the original.
    rows : ndarray of shape (n,), dtype=int64
        Rows of the events.
    launch : ndarray of shape (n_events,)
        Runtime call of each device event, -1 for none; arrows are kept if both ends are.
    clock_shift_ns : array_like of int, unit=ns, default=0
        What was added to the times of device work since it was read; one, or one per event.
    """
    kept = np.zeros(len(events), dtype=bool)
    kept[rows] = True
    work = rows[(launch[rows] >= 0) & kept[np.maximum(launch[rows], 0)]]
    added = [
        *_lane_events(events.lanes, np.unique(events.lane[rows]).tolist()),
        *_flows(events, launch[work], work, base_time_ns, clock_shift_ns),
    ]
    header = json.dumps(
        {key: value for key, value in metadata.items() if key != "traceEvents"}, default=str
    )
    head = header[:-1] + (", " if len(header) > 2 else "") + '"traceEvents": [\n'
    with output_file(out) as file:
        file.write(head.encode())
        file.write(b",\n".join([*raw, *(text.encode() for text in added)]))
        file.write(b"\n]}\n")
    return Path(out)
