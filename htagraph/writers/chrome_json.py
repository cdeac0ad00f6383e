"""The trace byte for byte, with the critical path added: for viewers of Chrome's JSON format.

The path is one piece of text, at the start of the list of events. Its slices are begin-end pairs:
viewers keep times as float64 microseconds, and rounding cannot make pairs overlap as it can slices
with a duration. Arrows start at the earlier and end at the later of the two slices they join, as
viewers drop those that run back in time. A smaller trace has some events, each as in the original.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.errors import TraceFormatError
from htagraph.model.arrays import I64
from htagraph.model.events import EventTable, LaneTable
from htagraph.model.names import CRITICAL_PATH
from htagraph.writers.output_file import output_file

_PIECE = 4 << 20
"""Bytes copied at once (chosen)."""

_GZIP = b"\x1f\x8b"
_FIRST_PID = 2_000_000_000
"""Larger than any real process id, and below what viewers cut off."""

_FIRST_FLOW = 1 << 40
"""Larger than any correlation id."""

_KEY = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
"""The start of the list of events; inside of a text, its quotes are escaped."""

_BARE_LIST = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
_OVERLAP = 64
"""Bytes that pieces overlap by when searched for the key."""


@contextmanager
def _opened(source: bytes | str | Path) -> Iterator[BinaryIO]:
    with io.BytesIO(source) if isinstance(source, bytes) else Path(source).open("rb") as raw:
        magic = raw.read(2)
        raw.seek(0)
        if magic == _GZIP:
            from isal import igzip  # noqa: PLC0415  deferred: only compressed input needs it

            yield cast("BinaryIO", igzip.GzipFile(fileobj=raw))
        else:
            yield raw


def _pieces(source: bytes | str | Path) -> Iterator[bytes]:
    path = None if isinstance(source, bytes) else source
    try:
        with _opened(source) as file:
            while piece := file.read(_PIECE):
                yield piece
    except (OSError, EOFError) as exc:
        hint = "check the path, or repair the file first."
        raise TraceFormatError(f"cannot be read to its end: {exc}.", path=path, hint=hint) from exc


def microseconds(ts_ns: I64) -> list[str]:
    """Times as exact decimal text."""
    whole, rest = np.divmod(ts_ns, 1000)
    return [
        f"{us}.{ns:03d}" if ns else str(us)
        for us, ns in zip(whole.tolist(), rest.tolist(), strict=True)
    ]


def _quoted(values: pd.Series[Any]) -> list[str]:
    """Texts as JSON, each distinct one encoded once."""
    codes, texts = pd.factorize(values.astype(object))
    encoded = np.array([*(json.dumps(str(text)) for text in texts), '""'], dtype=object)
    return cast("list[str]", encoded[codes].tolist())


def _wheres(lanes: LaneTable) -> list[str]:
    """Process and thread of each lane, as JSON."""
    ids = zip(lanes.pid, lanes.tid, strict=True)
    return [f'"pid":{json.dumps(pid)},"tid":{json.dumps(tid)}' for pid, tid in ids]


def _slices(segments: pd.DataFrame, pid: int, base_time_ns: int) -> list[str]:
    """Begin and end of each segment."""
    start = segments["start_ns"].to_numpy(np.int64) - base_time_ns
    starts, ends = microseconds(start), microseconds(start + segments["dur_ns"].to_numpy(np.int64))
    texts = (_quoted(segments[name]) for name in ("name", "bound", "kind", "op"))
    numbers = (segments[name].tolist() for name in ("lag_ns", "residual_ns", "event"))
    where = f'"cat":"{CRITICAL_PATH}","pid":{pid},"tid":1'
    return [
        f'{{"ph":"B","name":{name},{where},"ts":{begin},"args":{{"bound":{bound},"kind":{kind},'
        f'"op":{op},"lag_ns":{lag},"residual_ns":{residual},"event":{event}}}}},\n'
        f'{{"ph":"E",{where},"ts":{end}}}'
        for begin, end, name, bound, kind, op, lag, residual, event in zip(
            starts, ends, *texts, *numbers, strict=True
        )
    ]


def _arrows(
    segments: pd.DataFrame,
    events: EventTable,
    pid: int,
    base_time_ns: int,
    clock_shift_ns: npt.ArrayLike,
) -> list[str]:
    """An arrow between each segment and its event, in the direction of time."""
    at = np.flatnonzero(segments["event"].to_numpy() >= 0)
    event = segments["event"].to_numpy(np.int64)[at]
    shift = np.broadcast_to(np.asarray(clock_shift_ns, dtype=np.int64), len(events))
    path_ns = segments["start_ns"].to_numpy(np.int64)[at] - base_time_ns
    event_ns = (
        events.ts_ns[event] - np.where(events.is_device[event], shift[event], 0) - base_time_ns
    )
    lanes = _wheres(events.lanes)
    sides = zip(
        microseconds(path_ns),
        microseconds(event_ns),
        (event_ns < path_ns).tolist(),
        events.lane[event].tolist(),
        strict=True,
    )
    out = []
    for number, (path_us, event_us, is_event_first, lane) in enumerate(sides, start=_FIRST_FLOW):
        arrow = f'"name":"critical path","cat":"{CRITICAL_PATH}","id":{number}'
        here, there = f'"pid":{pid},"tid":1,"ts":{path_us}', f'{lanes[lane]},"ts":{event_us}'
        first, last = (there, here) if is_event_first else (here, there)
        out.append(f'{{"ph":"s",{arrow},{first}}},\n{{"ph":"f","bp":"e",{arrow},{last}}}')
    return out


def _added(
    segments: pd.DataFrame, events: EventTable, base_time_ns: int, clock_shift_ns: npt.ArrayLike
) -> Iterable[str]:
    pid = _FIRST_PID
    while pid in events.lanes.pid:
        pid += 1
    meta = f'"ph":"M","pid":{pid},"tid":1,"ts":0'
    yield f'{{"name":"process_name",{meta},"args":{{"name":"Critical path"}}}}'
    yield f'{{"name":"process_sort_index",{meta},"args":{{"sort_index":-1}}}}'
    yield f'{{"name":"thread_name",{meta},"args":{{"name":"critical path"}}}}'
    yield from _slices(segments, pid, base_time_ns)
    yield from _arrows(segments, events, pid, base_time_ns, clock_shift_ns)


def write_chrome_json(
    out: str | Path,
    source: bytes | str | Path,
    *,
    events: EventTable,
    segments: pd.DataFrame,
    base_time_ns: int,
    clock_shift_ns: npt.ArrayLike = 0,
) -> Path:
    """Write the original trace with the critical path added to it; every byte of it stays.

    Memory does not grow with the file. `out` may be the source. `clock_shift_ns`: what was added to
    the times of device work since it was read; one, or one per event.
    """
    path = None if isinstance(source, bytes) else source
    added = ",\n".join(_added(segments, events, base_time_ns, clock_shift_ns)).encode()
    with output_file(out) as file:
        try:
            for part in with_added(_pieces(source), added):
                file.write(part)
        except ValueError as exc:
            hint = "repair the file first."
            raise TraceFormatError(f"{exc}.", path=path, hint=hint) from exc
    return Path(out)


def with_added(pieces: Iterable[bytes], added: bytes) -> Iterator[bytes]:
    """Yield a trace with events added to it; all else stays."""
    held, is_first, is_added = b"", True, False
    for piece in pieces:
        held += piece
        if not is_added:
            found = (_BARE_LIST.match(held) if is_first else None) or _KEY.search(held)
            if found:
                is_added, at = True, found.end()
                is_empty = held[at:].lstrip().startswith(b"]")
                yield held[:at] + b"\n" + added + (b"\n" if is_empty else b",\n")
                held = held[at:]
        is_first = False
        yield held[:-_OVERLAP]
        held = held[-_OVERLAP:]
    yield held
    if not is_added or not held.rstrip().endswith((b"]", b"}")):
        raise ValueError("the list of events has no end")


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
    lanes = _wheres(events.lanes)
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


def _sampled(events: EventTable, row: int, base_time_ns: int) -> bytes:
    """A frame that was sampled as an event: the original has only its samples."""
    start, dur = microseconds(np.array([events.ts_ns[row] - base_time_ns, events.dur_ns[row]]))
    texts, lane = events.symbols.texts, events.lanes
    place = events.lane[row]
    name, category = (json.dumps(texts[code]) for code in (events.name[row], events.category[row]))
    where = f'"pid":{json.dumps(lane.pid[place])},"tid":{json.dumps(lane.tid[place])}'
    return f'{{"ph":"X","cat":{category},"name":{name},{where},"ts":{start},"dur":{dur}}}'.encode()


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
    """Write some events of a trace (`raw`, as in the original) as a trace of its own.

    `launch`: call of each event, -1 for none; arrows are kept if both ends are. `clock_shift_ns`:
    as of `write_chrome_json`.
    """
    kept = np.zeros(len(events), dtype=bool)
    kept[rows] = True
    work = rows[(launch[rows] >= 0) & kept[np.maximum(launch[rows], 0)]]
    added = [
        *_lane_events(events.lanes, np.unique(events.lane[rows]).tolist()),
        *_flows(events, launch[work], work, base_time_ns, clock_shift_ns),
    ]
    origin = [
        one or _sampled(events, row, base_time_ns) for one, row in zip(raw, rows, strict=True)
    ]
    header = json.dumps(
        {key: value for key, value in metadata.items() if key != "traceEvents"}, default=str
    )
    head = header[:-1] + (", " if len(header) > 2 else "") + '"traceEvents": [\n'
    with output_file(out) as file:
        file.write(head.encode())
        file.write(b",\n".join([*origin, *(text.encode() for text in added)]))
        file.write(b"\n]}\n")
    return Path(out)
