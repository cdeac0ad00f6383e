"""The true critical path: from the last instant back through the causes of each instant.

The simulator knows why everything happened when it did. It keeps a mark per instant; a mark knows
the mark that released it, and what bound the time between them. Walking back from the last mark
gives tiles that cover the window exactly. Nothing here looks at a trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.model.kinds import Bound
from htagraph.model.schema import Schema, duration, identifier, instant, label, name

TRUTH = Schema(
    "TRUTH",
    {
        "start_ns": instant("start of the tile; the end of the one before"),
        "dur_ns": duration("length of the tile"),
        "bound": label("what bound the time", unit="Bound", dtype="object"),
        "name": name("operator, call or device work, empty for a gap of a host thread"),
        "rank": identifier("rank that it happened on"),
        "event": identifier(
            "row of that rank's event table, -1 for a gap of a host thread", unit="event"
        ),
    },
)


class Release(StrEnum):
    """What an instant waited for."""

    OWN = "own work"  #: its own thread got there, or its own work had run
    LAUNCH = "launch"  #: the call that launched it
    STREAM = "stream"  #: the work before it on its stream
    STREAM_WAIT = "stream wait"  #: work of another stream, by an event
    GRAPH = "graph"  #: work of another stream, by an edge of a replayed graph
    DEVICE_FULL = "no free SMs"  #: room on the device
    BEFORE_CAPTURE = "before the capture"  #: device work that is not recorded
    SYNC = "sync"  #: a recorded call waited for device work
    POLL = "poll"  #: a thread polled device work
    ALLOCATOR = "allocator"  #: an allocator waited for device work before it freed
    QUEUE = "queue"  #: a launch met a full queue
    HANDOFF = (
        "wait for another thread"  #: another thread, which worked for it or for which it works
    )
    CALL = "call"  #: another thread, which gave it something to do
    REQUEST = "request"  #: something from outside of the program


class Mark:
    """An instant, and its cause."""

    __slots__ = (
        "bound",
        "cause",
        "event",
        "late_ns",
        "local_cause",
        "name",
        "rank",
        "release",
        "seen_ns",
        "ts_ns",
    )

    def __init__(
        self,
        ts_ns: int,
        cause: Mark | None,
        bound: Bound,
        name: str = "",
        *,
        rank: int = 0,
        event: int = -1,
        local_cause: Mark | None = None,
        release: Release = Release.OWN,
        late_ns: int = 0,
    ) -> None:
        self.ts_ns = self.seen_ns = ts_ns
        self.release = release
        self.late_ns = late_ns
        self.cause = cause
        self.bound = bound
        self.name = name
        self.rank = rank
        self.event = event
        self.local_cause = cause if local_cause is None else local_cause

    @property
    def source(self) -> int:
        """The event that released this instant, -1 for none."""
        if self.release is Release.DEVICE_FULL:
            return self.event
        return self.cause.event if self.cause is not None else -1


class Tile(NamedTuple):
    """A piece of the path."""

    start_ns: int
    end_ns: int
    bound: Bound
    name: str
    rank: int
    event: int


def _walk(last: Mark, start_ns: int, *, is_local: bool) -> Iterator[Tile]:
    """The tiles from a mark back to a time, latest first, in recorded times.

    What is recorded to end after that which waited for it has started is cut there.
    """
    mark, until_ns = last, last.seen_ns
    while until_ns > start_ns:
        cause = mark.local_cause if is_local else mark.cause
        if cause is None:
            yield Tile(start_ns, until_ns, Bound.UNKNOWN_WAITS, "", mark.rank, -1)
            return
        begin_ns = max(min(cause.seen_ns, until_ns), start_ns)
        if begin_ns < until_ns:
            yield Tile(begin_ns, until_ns, mark.bound, mark.name, mark.rank, mark.event)
        mark, until_ns = cause, begin_ns


def tiles(last: Mark, start_ns: int, *, is_local: bool = True) -> list[Tile]:
    """The tiles of the true path from `start_ns` to a mark, earliest first."""
    return list(_walk(last, start_ns, is_local=is_local))[::-1]


def truth_frame(path: list[Tile]) -> pd.DataFrame:
    """Tiles as a frame of schema `TRUTH`."""
    return TRUTH.frame(
        {
            "start_ns": np.array([tile.start_ns for tile in path], dtype=np.int64),
            "dur_ns": np.array([tile.end_ns - tile.start_ns for tile in path], dtype=np.int64),
            "bound": [tile.bound.label for tile in path],
            "name": [tile.name for tile in path],
            "rank": [tile.rank for tile in path],
            "event": [tile.event for tile in path],
        }
    )
