"""Calls the compiled repairer: broken values in, valid JSON and the defects found out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np

from htagraph.model.arrays import U8
from htagraph.native.arguments import fixed
from htagraph.readers.kineto.compiled import repairer
from htagraph.readers.kineto.compiled.keys import Keys, key_table
from htagraph.readers.kineto.compiled.lexer import MAX_DEPTH, PADDING
from htagraph.readers.kineto.compiled.repaired_output import CUT, NO_ROOM, REPAIRED, TORN, Bench
from htagraph.readers.kineto.defects import Defect

__all__ = [
    "CUT",
    "MARGIN",
    "REPAIRED",
    "TORN",
    "RepairedValue",
    "Repairer",
    "before_own_key",
    "repaired_text",
]

MARGIN = 64
"""Bytes at the end of a piece in which the beginning of an event may be cut off."""

_OWN_KEY = (
    rb'"(?:traceEvents|traceName|displayTimeUnit|baseTimeNanoseconds|distributedInfo'
    rb'|deviceProperties|schemaVersion|trace_id)"\s*:'
)
_LIST_END = re.compile(rb'\]\s*(?:,\s*(?:%b|"(?:INFO|WARNING|ERROR)"\s*:)|\}\s*\Z)' % _OWN_KEY)
"""The end of the event list among invalid bytes."""

_BEFORE_OWN_KEY = re.compile(rb",\s*(?=%b)" % _OWN_KEY)
"""The comma before a top-level key that no header value contains."""

_BEFORE_KEY = re.compile(rb'%b|,[ \t\r]*\n\s*(?="[^"\n]{1,256}"\s*:)' % _BEFORE_OWN_KEY.pattern)
"""The comma before such a key, or before one on a line of its own, as profilers write them."""

_EVENT_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_OBJECT_END = re.compile(rb"\}\s*\Z")


@dataclass(frozen=True)
class RepairedValue:
    """A repaired value, or as much of it as was valid.

    Parameters
    ----------
    ended : int
        `REPAIRED`, `TORN` or `CUT`.
    stop : int
        Position after the value, or where it ended.
    out : ndarray, dtype=uint8
        The value as valid JSON, followed by zero bytes; overwritten by the next call.
    """

    ended: int
    stop: int
    out: U8
    n_bytes: int
    defects: tuple[Defect, ...]

    def text(self) -> bytes:
        """The value as valid JSON."""
        return self.out[: self.n_bytes].tobytes()


def before_own_key(text: bytes) -> int:
    """The position of the comma before a known top-level key, else the end."""
    found = _BEFORE_OWN_KEY.search(text)
    return found.start() if found else len(text)


def repaired_text(raw: bytes) -> bytes:
    """A broken event as valid JSON."""
    buf = np.frombuffer(raw + bytes(PADDING), dtype=np.uint8)
    return Repairer().repair(buf, 0, len(raw), is_event=True).text()


class Repairer:
    """Repairs values; owns the output buffer."""

    def __init__(self) -> None:
        self._out = np.zeros(1 << 16, dtype=np.uint8)
        self._n = np.zeros(2, dtype=np.int64)
        self._stack = np.zeros(MAX_DEPTH, dtype=np.uint8)

    def repair(self, buf: U8, i: int, end: int, *, is_event: bool) -> RepairedValue:
        """Repair the value at a position.

        Parameters
        ----------
        buf : ndarray, dtype=uint8
            Bytes, zero bytes after `end`.
        is_event : bool
            Whether it is an event, else a header value.
        """
        while True:
            stop, ended = repairer.repair(self._bench(buf, end, is_event=is_event), i)
            if ended != NO_ROOM:
                break
            self._out = np.zeros(2 * len(self._out) + 8 * (end - i), dtype=np.uint8)
        n_bytes = int(self._n[0])
        self._out[n_bytes : n_bytes + PADDING] = 0
        return RepairedValue(ended, stop, self._out, n_bytes, _defects_of(int(self._n[1])))

    def next_event(self, buf: U8, i: int, end: int, *, is_last: bool) -> int:
        """The position of the next event; else of the list's end, else the end."""
        found = int(
            repairer.next_event(self._bench(buf, end, is_event=True), i, 0 if is_last else MARGIN)
        )
        closed = _LIST_END.search(buf[i:found].tobytes() if found < end else buf[i:end].tobytes())
        return i + closed.start() if closed else found

    def before_key(self, buf: U8, end: int, *, is_last: bool) -> int:
        """The position of the ``,`` before the next header key, or of the header's ``}``, or -1."""
        text = buf[:end].tobytes()
        found = _BEFORE_KEY.search(text) or (_OBJECT_END.search(text) if is_last else None)
        if found is None:
            return -1
        is_before_events = _EVENT_LIST.search(text, found.start()) or (
            found.start() < self.next_event(buf, 1, end, is_last=True)
        )
        return found.start() if is_before_events else -1

    def _bench(self, buf: U8, end: int, *, is_event: bool) -> Bench:
        return Bench(buf, end, is_event, _keys(), self._out, self._n, self._stack)


@cache
def _keys() -> Keys:
    return fixed(key_table())


@cache
def _defects_of(bits: int) -> tuple[Defect, ...]:
    return tuple(defect for defect in Defect if bits >> defect & 1)
