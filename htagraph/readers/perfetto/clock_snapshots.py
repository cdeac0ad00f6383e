"""Clock snapshots: times of all clocks as nanoseconds of one, and the time of day.

A snapshot holds what several clocks showed at one instant. A time is converted from clock to clock
by the last snapshot before it (or the first one, for earlier times)::

    snapshot      BOOTTIME 1,000   clock 64 = 0   REALTIME 1,712,195,495,000,000,000
    clock 64, 7   -> BOOTTIME 1,007

Ids from 64 to 127 are clocks of one sequence; such a clock may be incremental (count from its last
time), and have another unit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from htagraph.model.arrays import I64
from htagraph.model.perfetto_fields import BUILTIN_CLOCK_BOOTTIME, BUILTIN_CLOCK_REALTIME
from htagraph.readers.perfetto.defects import Defect
from htagraph.readers.perfetto.scan import HAS_TIME, Scan
from htagraph.readers.repair_log import RepairLog

Key = tuple[int, int]

_OF_SEQUENCE = range(64, 128)
"""Ids of clocks that belong to one sequence."""

_MAX_SEQUENCE = (1 << 32) - 1
_MAX_NS = (1 << 62) - 1
_MAX_UNIT_NS = 1_000_000_000
"""Coarsest unit of a clock, a second (chosen)."""

_MOST_STEPS = 8
"""Most conversions from clock to clock on the way to the trace clock (chosen)."""


def _key(clock: int, sequence: int) -> Key:
    """A clock, and its sequence, 0 for a global clock."""
    return clock, sequence if clock in _OF_SEQUENCE else 0


class Clocks:
    """The clock snapshots of a trace."""

    def __init__(self, specials: list[tuple[int, Any]], scan: Scan) -> None:
        self._snapshots: list[tuple[int, dict[Key, int]]] = []
        self._showing: dict[Key, list[int]] = {}
        self._steps: dict[tuple[Key, Key], tuple[I64, I64]] = {}
        self._unit: dict[Key, int] = {}
        self._incremental: set[Key] = set()
        self._primary = BUILTIN_CLOCK_BOOTTIME
        for row, packet in specials:
            if packet.HasField("clock_snapshot"):
                self._add(row, packet.clock_snapshot, int(scan.sequence[row]))

    def _add(self, row: int, snapshot: Any, sequence: int) -> None:  # noqa: ANN401
        shown = {}
        self._primary = snapshot.primary_trace_clock or self._primary
        for clock in snapshot.clocks:
            key = _key(clock.clock_id, sequence)
            self._unit[key] = min(max(clock.unit_multiplier_ns, 1), _MAX_UNIT_NS)
            if clock.is_incremental:
                self._incremental.add(key)
            shown[key] = min(clock.timestamp * self._unit[key], _MAX_NS)
        for key in shown:
            self._showing.setdefault(key, []).append(len(self._snapshots))
        self._snapshots.append((row, shown))

    def times(self, scan: Scan, clock: I64, log: RepairLog) -> I64:
        """The time of each packet by the trace clock (0); -1 for none, and beyond 146 years."""
        out = np.full(len(scan.ts), -1, dtype=np.int64)
        timed = np.flatnonzero(scan.what & HAS_TIME)
        clock = np.where(clock[timed] == 0, self._primary, clock[timed])
        is_local = np.isin(clock, _OF_SEQUENCE)
        local = np.where(is_local, scan.sequence[timed], 0)
        of, keys = pd.factorize((clock << 32) | (local & _MAX_SEQUENCE))
        target = (self._primary, 0)
        ways = self._ways(target)
        of_key = np.split(np.argsort(of, kind="stable"), np.cumsum(np.bincount(of))[:-1])
        for packed, positions in zip(keys.tolist(), of_key, strict=False):
            key = (packed >> 32, packed & _MAX_SEQUENCE)
            rows = timed[positions]
            shown = self._absolute(key, rows, scan.ts[rows])
            carried = self._carried(key, ways, shown)
            if carried is None:
                log.add(Defect.NO_CLOCK, n=len(rows))
            out[rows] = shown if carried is None else carried
        out[(out < 0) | (out > _MAX_NS - self.day_ns())] = -1
        return out

    def day_ns(self) -> int:
        """What to add to the trace clock to get the time since 1970; 0 if unknown."""
        shown = np.zeros(1, dtype=np.int64)
        now = self._carried((self._primary, 0), self._ways((BUILTIN_CLOCK_REALTIME, 0)), shown)
        return 0 if now is None else int(now[0])

    def _absolute(self, key: Key, rows: I64, ts: I64) -> I64:
        """Times of one clock in nanoseconds."""
        unit = self._unit.get(key, 1)
        ts = np.where((ts < 0) | (ts > _MAX_NS // unit), _MAX_NS, ts * np.int64(unit))
        if key not in self._incremental:
            return ts
        found = [self._snapshots[number] for number in self._showing[key]]
        known = [(row, shown[key]) for row, shown in found]
        since = np.searchsorted([row for row, _ in known], rows) - 1
        base = np.array([shown for _, shown in known], dtype=np.int64)[np.maximum(since, 0)]
        run = np.cumsum(ts)
        first = np.flatnonzero(np.diff(since, prepend=since[0] - 1))
        before = np.repeat(run[first] - ts[first], np.diff(np.append(first, len(rows))))
        shown: I64 = np.clip(base + (run - before), -1, _MAX_NS)
        return shown

    def _ways(self, target: Key) -> dict[Key, Key | None]:
        """The next clock on the way to `target`, for each clock within a few snapshots of it."""
        ways: dict[Key, Key | None] = {target: None}
        seen: set[int] = set()
        reached = [target]
        for _ in range(_MOST_STEPS):
            fresh = []
            for there in reached:
                for number in self._showing.get(there, ()):
                    if number not in seen:
                        seen.add(number)
                        fresh += [(key, there) for key in sorted(self._snapshots[number][1])]
            reached = []
            for here, there in fresh:
                if here not in ways:
                    ways[here] = there
                    reached.append(here)
        return ways

    def _carried(self, clock: Key, ways: dict[Key, Key | None], ts: I64) -> I64 | None:
        """Times of one clock converted along `ways`; None if there is no way."""
        if clock not in ways:
            return None
        while (there := ways[clock]) is not None:
            ts = self._step(clock, there, ts)
            clock = there
        return ts

    def _step(self, here: Key, there: Key, ts: I64) -> I64:
        """Times of a clock as times of another one in the same snapshots."""
        if (here, there) not in self._steps:
            found = (self._snapshots[number][1] for number in self._showing[here])
            both = sorted((shown[here], shown[there]) for shown in found if there in shown)
            at, other = np.array(both, dtype=np.int64).T
            self._steps[here, there] = at, other - at
        at, ahead = self._steps[here, there]
        last = np.maximum(np.searchsorted(at, ts, side="right") - 1, 0)
        carried: I64 = ts + ahead[last]
        return carried
