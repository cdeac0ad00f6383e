"""A broken file as a valid one: every event as it is, except for repairs."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from htagraph.model.recording import Repair
from htagraph.readers.byte_stream import ByteStream
from htagraph.readers.defects import Defect
from htagraph.readers.event_filter import EventFilter
from htagraph.readers.kineto.reader import EVERYTHING, scanned
from htagraph.readers.repair_log import RepairLog

if TYPE_CHECKING:
    from htagraph.readers.kineto.worker import Part

_OF_TIMES = (
    Defect.NUMBER_AS_TEXT,
    Defect.NO_TIMESTAMP,
    Defect.NO_DURATION,
    Defect.IMPOSSIBLE_DURATION,
    Defect.NANOSECONDS,
)
_TIMED = frozenset(phase.encode() for phase in "XBEiICstfbneSTpF")
_MAX_DURATION_US = Decimal(7 * 86_400 * 1_000_000)
_MAX_TIME_US = Decimal(1 << 62) / 1000
_MAX_POWER = 40
"""Powers of ten beyond it are no times, and slow to write out."""

_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,6})?")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def repair_kineto(source: str | Path | bytes, file: BinaryIO) -> tuple[Repair, ...]:
    """Write a valid trace with the events of a broken one; return what was repaired.

    Valid events are copied byte for byte. Left for the reader to handle: begins and ends without
    their other half, events at time 0 or out of range, ids beyond 64 bits, header numbers.
    """
    log, separator = RepairLog(Defect), b"\n"
    file.write(b'{"traceEvents": [')

    def write(part: Part) -> None:
        nonlocal separator
        log.merge(part.repairs)
        events: list[bytes] = part.metas
        if part.repairs[list(_OF_TIMES), 0].any():
            events = [event for raw in events if (event := _with_times(raw)) is not None]
        if events:
            file.write(separator + b",\n".join(events))
            separator = b",\n"

    stream = ByteStream(source, log, reports=True)
    wanted = EventFilter(stacks=True)
    metadata = scanned(stream, wanted, EVERYTHING, log, write, notes_all=True)
    keys = "".join(f",\n{json.dumps(key)}: {json.dumps(value)}" for key, value in metadata.items())
    file.write(b"\n]" + keys.encode() + b"}\n")
    return log.repairs()


def _with_times(raw: bytes) -> bytes | None:
    """An event with plausible times, None if it has no start."""
    event = {key: bytes(value) for key, value in _decode(raw).items()}
    phase = event.get("ph", b"")
    if phase.strip(b'"') not in _TIMED:
        return raw
    start, dur = _time(event.get("ts")), _time(event.get("dur"))
    if start is not None and abs(start) >= _MAX_TIME_US:
        start, dur = start / 1000, None if dur is None else dur / 1000
    if start is None or abs(start) >= _MAX_TIME_US:
        return None
    times = {"ts": start}
    if phase == b'"X"':
        times["dur"] = dur if dur is not None and 0 <= dur <= _MAX_DURATION_US else Decimal(0)
    changed = {
        key: str(value).encode()
        for key, value in times.items()
        if event.get(key, b'"').startswith(b'"') or _time(event[key]) != value
    }
    if not changed:
        return raw
    return (
        b"{"
        + b", ".join(_encode(key) + b": " + value for key, value in (event | changed).items())
        + b"}"
    )


def _time(value: bytes | None) -> Decimal | None:
    """A time as a number, None if it is not one."""
    text = (value or b"").strip(b'"')
    number = Decimal(text.decode()) if _NUMBER.fullmatch(text) else None
    return number if number is not None and number.adjusted() <= _MAX_POWER else None
