"""The head of a trace file: which process wrote it, and when, without reading all of it."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from htagraph.errors import TraceError
from htagraph.readers.byte_stream import ByteStream, first_bytes
from htagraph.readers.formats import WORKER_TIMELINE, other_format
from htagraph.readers.kineto.header import rank_of, world_size_of
from htagraph.readers.storage import SQLITE, file_of, open_file, rank_in_name

EXECUTION_TRACE = "execution trace"
"""`TraceHead.foreign` of an execution trace."""

_BLOCK = 1 << 18
"""Bytes read at once (chosen)."""

_MAX_HEADER = 1 << 24
"""Bytes in which the event list must begin; headers of thousands of ranks have a megabyte."""

_TAIL = 1 << 16
"""Bytes at the end of a file in which to look for its last times (chosen)."""

_SMALL = 1 << 17
"""Bytes of the largest gzip file that is always decompressed to its end (chosen)."""

_OVERLAP = 64
"""Bytes that blocks overlap by when searched: longer than any key."""

_N_THREADS = 8
"""Files that are read at once (chosen): on network disks most of the time is latency."""

_ABSOLUTE_NS = 10**17
"""Later times (after 1973) count from 1970, earlier ones from a base time."""

_LONGEST_EXPORT_NS = 3_600_000_000_000
"""Longest time between the end of a capture and the time in its file's name (chosen)."""

_EVENT_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_TRACE_KEYS = re.compile(rb'"(?:ph|schemaVersion|deviceProperties|traceName)"\s*:')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,18}\d?)\b')
_DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:\s*(?=\{)')
_HOST = re.compile(rb'"host_name"\s*:\s*"([^"\\]{1,255})"')
_TIME = re.compile(
    rb'"ts"\s*:\s*"?(\d{1,18})(?:\.(\d{1,3})\d*)?"?(?=[\s,}])'
    rb'(?:\s*,\s*"dur"\s*:\s*"?(\d{1,15})(?:\.(\d{1,3})\d*)?"?(?=[\s,}]))?'
)
_HOST_PROCESS = re.compile(rb'"pid"\s*:\s*"?(\d{1,18})"?\s*,[^{}]{0,200}\{\s*"labels"\s*:\s*"CPU"')
_PID = re.compile(rb'"pid"\s*:\s*"?(\d{1,18})"?\s*[,}]')
_STEP = re.compile(rb"ProfilerStep\s?#(\d{1,15})(?=\D)")
_NAMED = re.compile(
    r"(?P<worker>.{1,255})\.(?P<time>\d{19}|\d{16}|\d{13})(?:\.pt)?\.trace\.json(?:\.gz)?"
)
"""Names by `tensorboard_trace_handler`: host, or worker, with process id, and time."""

_MAX_DEVICE = 15
"""Largest pid that may be a device number: Kineto's device rows use it as pid."""

_MAX_NS = 1 << 62
"""Later times are not plausible, and sums of two such times fit in int64."""


@dataclass(frozen=True)
class TraceHead:
    """What the first and last bytes of a file tell."""

    path: Path
    n_bytes: int = 0  # Size of the file
    foreign: str = ""  # What the file is if it is no trace, else empty
    rank: int | None = None
    world_size: int | None = None
    host: str = ""
    pid: int = -1  # -1 if unknown, as `host` is empty
    # start_ns, end_ns: since 1970, None if unknown without reading on
    start_ns: int | None = None
    end_ns: int | None = None
    written_ns: int | None = None  # When the file was written, by its name
    steps: tuple[int, ...] = ()  # Numbers of the steps seen, ascending
    is_whole: bool = False  # Whether the whole file was read: there are no other steps

    @property
    def process(self) -> tuple[str, int] | None:
        """Host and process id, None if unknown."""
        return (self.host, self.pid) if self.pid >= 0 else None

    @property
    def steps_in_words(self) -> str:
        """The steps, open-ended if the unread rest may hold more."""
        if not self.steps:
            return ""
        if not self.is_whole:
            return f"{self.steps[0]} …"
        return " to ".join(map(str, dict.fromkeys((self.steps[0], self.steps[-1]))))


@dataclass
class _Seen:
    """The bytes of a file that were read."""

    head: bytes = b""
    tail: bytes = b""
    steps: set[int] = field(default_factory=set)
    events_at: int = -1
    is_whole: bool = False

    def note_steps(self, block: bytes) -> None:
        self.steps.update(int(number) for number in _STEP.findall(block))

    def first(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """The first match in the header before the events, else after them."""
        return pattern.search(self.head) or pattern.search(self.tail)


def read_heads(paths: Iterable[Path], *, whole: bool = False) -> list[TraceHead]:
    """The heads of files, in order; an empty one for a file that loading cannot read either.

    `whole`: decompress gzip files to their ends, which tell when a capture ended.
    """
    with ThreadPoolExecutor(_N_THREADS, "htagraph-heads") as pool:
        return list(pool.map(lambda path: _read_head(path, whole=whole), paths))


def _read_head(path: Path, *, whole: bool) -> TraceHead:
    file = file_of(path)
    if file != path:
        is_export = first_bytes(file, len(SQLITE)) == SQLITE
        return _head_in_export(path) if is_export else TraceHead(path, rank=rank_in_name(path))
    try:
        n_bytes, seen = _looked_at(path, whole=whole)
    except (TraceError, OSError):
        return TraceHead(path, rank=rank_in_name(path))
    if seen.head.startswith(SQLITE):
        return _head_in_export(path)
    if foreign := _foreign(seen):
        wrote = _PID.search(seen.head) if foreign == EXECUTION_TRACE else None
        return TraceHead(path, n_bytes, foreign, pid=int(wrote[1]) if wrote else -1)
    named = _NAMED.fullmatch(path.name)
    info = _distributed_info(seen)
    pid = _pid(seen)
    host = seen.first(_HOST)
    worker = named["worker"].removesuffix(f"_{pid}") if named else ""  # named: worker_pid.time
    rank, rank_source = rank_of(info, path)
    start_ns, end_ns = _capture_time(seen, named)
    return TraceHead(
        path,
        n_bytes,
        rank=None if rank_source == "default" else rank,
        world_size=world_size_of(info),
        host=host[1].decode("utf-8", "replace") if host else worker,
        pid=pid,
        start_ns=start_ns,
        end_ns=end_ns,
        written_ns=_written_ns(named),
        steps=tuple(sorted(seen.steps)),
        is_whole=seen.is_whole,
    )


def _head_in_export(path: Path) -> TraceHead:
    from htagraph.readers.nsys.ranks import nsys_ranks  # noqa: PLC0415 - imports sqlite3

    file = file_of(path)
    n_bytes = file.stat().st_size
    try:
        ranks = nsys_ranks(file)
    except TraceError as exc:
        return TraceHead(path, n_bytes, foreign=exc.message)
    number = rank_in_name(path) if file != path else None
    found = next((one for one in ranks if number in (None, one.rank)), None)
    if found is None:
        return TraceHead(path, n_bytes, foreign="SQLite without work of a process")
    return TraceHead(
        path,
        n_bytes // len(ranks),
        rank=found.rank,
        world_size=found.world_size,
        host=found.host,
        pid=found.pid,
        start_ns=found.start_ns,
        end_ns=found.end_ns,
    )


def _looked_at(path: Path, *, whole: bool) -> tuple[int, _Seen]:
    """Size of a file; its header, first events and, if cheap or requested, last ones."""
    stream, seen = ByteStream(path), _Seen()
    try:
        while seen.events_at < 0 and len(seen.head) < _MAX_HEADER and not seen.is_whole:
            _read_on(stream, seen)
        if not seen.is_whole and len(seen.head) - seen.events_at < _BLOCK:
            _read_on(stream, seen)
        seen.note_steps(seen.head)
        if seen.is_whole:
            seen.tail = seen.head
        elif not stream.is_gzip:
            with open_file(path) as file:
                file.seek(-min(_TAIL, stream.n_compressed), io.SEEK_END)
                seen.tail = file.read()
            seen.note_steps(seen.tail)
        elif (whole or stream.n_compressed <= _SMALL) and seen.events_at >= 0:
            _read_to_the_end(stream, seen)
    finally:
        stream.close()
    return stream.n_compressed, seen


def _read_on(stream: ByteStream, seen: _Seen) -> None:
    block = stream.read(_BLOCK)
    start = max(len(seen.head) - _OVERLAP, 0)
    seen.head += block
    seen.is_whole = not block
    if seen.events_at < 0 and (found := _EVENT_LIST.search(seen.head, start)):
        seen.events_at = found.end()


def _read_to_the_end(stream: ByteStream, seen: _Seen) -> None:
    """Decompress the rest; keep its last bytes, and the steps in it."""
    last = seen.head[-_TAIL:]
    while block := stream.read(_BLOCK):
        seen.note_steps(last[-_OVERLAP:] + block)
        last = (last + block)[-_TAIL:]
    seen.tail, seen.is_whole = last, True


def _foreign(seen: _Seen) -> str:
    """What a file is that is no trace; empty for a trace, even a damaged one."""
    other = other_format(seen.head)
    is_events = seen.events_at >= 0 or _TRACE_KEYS.search(seen.head) is not None
    if is_events and (other is None or other.name != WORKER_TIMELINE):
        return ""
    if other is not None:
        return other.name.partition(" ")[2]
    text = seen.head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith(b"{"):
        is_execution_trace = b'"nodes"' in text and b'"schema"' in text[:_OVERLAP]
        return EXECUTION_TRACE if is_execution_trace else "JSON without events"
    if text.startswith(b"["):
        is_timeline = re.match(rb"\[\s*\[", text) is not None
        return "memory timeline" if is_timeline else "JSON without events"
    return ""


def _distributed_info(seen: _Seen) -> dict[str, Any]:
    """The ``distributedInfo`` of the header, even where the rest is broken."""
    found = seen.first(_DISTRIBUTED)
    if found is None:
        return {}
    text = found.string[found.end() : found.end() + _MAX_HEADER].decode("utf-8", "replace")
    try:
        return {"distributedInfo": json.JSONDecoder().raw_decode(text)[0]}
    except (ValueError, RecursionError):
        return {}


def _pid(seen: _Seen) -> int:
    """The process whose host events a file holds, -1 for none."""
    labelled = seen.first(_HOST_PROCESS)
    if labelled:
        return int(labelled[1])
    pids = [int(pid) for pid in _PID.findall(seen.head, max(seen.events_at, 0))]
    hosts = Counter([pid for pid in pids if pid > _MAX_DEVICE] or pids)
    return max(hosts, key=hosts.__getitem__, default=-1)


def _written_ns(named: re.Match[str] | None) -> int | None:
    """The time in a name; older PyTorch wrote milliseconds."""
    written_ns = int(named["time"]) * 10 ** (19 - len(named["time"])) if named else _MAX_NS
    return written_ns if written_ns < _MAX_NS else None


def _capture_time(seen: _Seen, named: re.Match[str] | None) -> tuple[int | None, int | None]:
    """First and last time of a capture, None if unknown without reading on.

    The time in a name is when the file was written, right after the capture. It counts if the
    content has no time, or a different one.
    """
    base = seen.first(_BASE)
    base_ns = int(base[1]) if base else 0
    first, last = _of_one_clock(_times(seen.head[max(seen.events_at, 0) :]), _times(seen.tail))
    start_ns = min((start for start, _ in first), default=None)
    end_ns = max((end for _, end in (*last, *first)), default=None) if last else None
    is_relative = base is None and start_ns is not None and start_ns < _ABSOLUTE_NS
    if is_relative and not seen.is_whole and not last:
        start_ns = None
    start_ns = None if start_ns is None else min(start_ns + base_ns, _MAX_NS)
    end_ns = None if end_ns is None else min(end_ns + base_ns, _MAX_NS)
    written_ns = _written_ns(named)
    if written_ns is None:
        return start_ns, end_ns
    if start_ns is None:
        return written_ns, written_ns
    ended_ns = start_ns if end_ns is None else end_ns
    if 0 <= written_ns - ended_ns <= _LONGEST_EXPORT_NS:
        return start_ns, written_ns if end_ns is None else end_ns
    return written_ns - (ended_ns - start_ns), written_ns


def _of_one_clock(*lists: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Times without strays: next to times since 1970, earlier ones are of no clock at all."""
    is_absolute = any(start >= _ABSOLUTE_NS for times in lists for start, _ in times)
    return [[time for time in times if time[0] >= _ABSOLUTE_NS * is_absolute] for times in lists]


def _times(text: bytes) -> list[tuple[int, int]]:
    """Starts and ends of the events in some bytes, in ns; time 0 does not count."""
    return [
        (start_ns, min(start_ns + (_ns(dur, dur_digits) if dur else 0), _MAX_NS))
        for us, digits, dur, dur_digits in _TIME.findall(text)
        if 0 < (start_ns := _ns(us, digits)) < _MAX_NS
    ]


def _ns(us: bytes, digits: bytes) -> int:
    return int(us) * 1000 + int(digits.ljust(3, b"0"))
