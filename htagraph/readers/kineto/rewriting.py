"""A broken file as a valid one: every event as it stands, but for what had to be mended."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from htagraph.readers.kineto.chunks import ByteStream
from htagraph.readers.kineto.loading import EVERYTHING, Asked, scanned
from htagraph.readers.kineto.reader import Progress
from htagraph.readers.kineto.repairs import Defect, Repair, RepairLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from htagraph.readers.kineto.parts import Part

__all__ = ["repair_kineto"]

_OF_TIMES = (
    Defect.NUMBER_AS_TEXT,
    Defect.NO_TIMESTAMP,
    Defect.NO_DURATION,
    Defect.IMPOSSIBLE_DURATION,
    Defect.NANOSECONDS,
)
_TIMED = frozenset("XBEiICstf")
_MAX_DURATION_US = Decimal(7 * 86_400 * 1_000_000)
_MAX_TIME_US = Decimal(1 << 62) / 1000
_encode = msgspec.json.Encoder(decimal_format="number").encode


def repair_kineto(
    source: str | Path | bytes, file: BinaryIO, *, progress: Progress | None = None
) -> tuple[Repair, ...]:
    """Write a valid trace with the events of a broken one; return what was repaired.

    Events are copied byte for byte where they are valid. Left as they are, for the reader to judge: begins and ends
    without their other half, events at time 0, ids beyond 64 bits.

    Parameters
    ----------
    source : str, Path or bytes
        The broken file, or what is in it.
    file : BinaryIO
        Where to write; a file that appears under its name only when it is whole is for the caller to make.
    progress : callable, optional
        Called with the bytes read so far and their total.

    Returns
    -------
    tuple of Repair

    Raises
    ------
    TraceFormatError
        If `source` is no trace.

    Examples
    --------
    >>> import io
    >>> out = io.BytesIO()
    >>> broken = b'[{"ph": "X", "name": "a "quoted" name", "pid": 1, "tid": 1, "ts": 1, "dur": inf},'
    >>> [repair.kind for repair in repair_kineto(broken, out)]
    ['raw quote', 'not a number', 'no end', 'no duration']
    >>> json.loads(out.getvalue())["traceEvents"][0]["name"]
    'a "quoted" name'
    """
    log = RepairLog()
    writer = _Writer(file, log)
    result = scanned(ByteStream(source, log, progress), Asked(stacks=True), EVERYTHING, log, writer.write_part)
    writer.finish(result.document.metadata)
    return log.repairs()


class _Writer:
    """Writes the parts of an event list as they come, and the header after them."""

    def __init__(self, file: BinaryIO, log: RepairLog) -> None:
        self._file = file
        self._log = log
        self._separator = b"\n"
        file.write(b'{"traceEvents": [')

    def write_part(self, part: Part) -> None:
        """Write the events of a part."""
        self._log.merge(part.repairs)
        events: list[bytes] = part.metas
        if part.repairs[list(_OF_TIMES), 0].any():
            events = [event for raw in events if (event := _with_times(raw)) is not None]
        if events:
            self._file.write(self._separator + b",\n".join(events))
            self._separator = b",\n"

    def finish(self, metadata: Mapping[str, Any]) -> None:
        """Close the list and write the header."""
        keys = "".join(f",\n{json.dumps(key)}: {json.dumps(value)}" for key, value in metadata.items())
        self._file.write(b"\n]" + keys.encode() + b"}\n")


def _with_times(raw: bytes) -> bytes | None:
    """Return an event with times that can be read and can be true, None where it has no start."""
    event = json.loads(raw, parse_float=Decimal, parse_int=Decimal)
    if event.get("ph") not in _TIMED:
        return raw
    start, dur = _time(event.get("ts")), _time(event.get("dur"))
    if start is None:
        return None
    if abs(start) >= _MAX_TIME_US:
        start, dur = start / 1000, None if dur is None else dur / 1000
    times = {"ts": start}
    if event["ph"] == "X":
        times["dur"] = dur if dur is not None and 0 <= dur <= _MAX_DURATION_US else Decimal(0)
    is_written_so = all(isinstance(event.get(key), Decimal) and event[key] == value for key, value in times.items())
    return raw if is_written_so else _encode(event | times)


def _time(value: object) -> Decimal | None:
    """Return a time as a number, None where it is none."""
    try:
        number = Decimal(value) if isinstance(value, (str, Decimal)) else None
    except InvalidOperation:
        return None
    return number if number is not None and number.is_finite() else None
