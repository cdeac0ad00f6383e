"""The device clock against the host clock: what launches and waits allow.

Profilers convert device times to the host's clock with errors of microseconds. Two facts hold on
one clock: work starts after its launch call has begun, and a wait ends after what it waited for.
The first bounds from below what has to be added to device times, the second from above::

    thread 1   [launch]     [cudaStreamSynchronize]
               |-- low         high --|
    stream 7         [kernel            ]

The shift is the one of that interval nearest to zero. Where clocks drift and the interval is empty,
it changes over time, but only where no device works, so that durations and order stay as recorded.
Where even that does not fit, launches hold, and waits overlap with what they waited for by up to a
known time. Several that still end long before are no waits, or a clock was set: they bound nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from htagraph.arrays.clocks import follow
from htagraph.arrays.intervals import union
from htagraph.compiler.structure import Learnt, Structure, examine
from htagraph.compiler.syncs import certain_waits
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Calibration
from htagraph.model.kinds import DEVICE_CLOCK_KINDS, among

_LARGEST_SHIFT_NS = 1_000_000
"""Device work that precedes its launch by more is no clock error (chosen;
``tests/compiler/test_device_clock.py``). Real clocks were off by up to 25 us."""

_LARGEST_OVERLAP_NS = 100_000
"""A call that returned longer before the end of device work did not wait for it (chosen; the same
test). On MI300, calls returned up to 9 us before."""

_FEWEST_FAR = 3
"""Fewer waits that return longer before are of something else; more show by how much a device clock
is ahead. None of 3,000 certain waits in 50 real traces does. Pinned by
`test_device_clock.py::test_three_waits_show_that_the_device_clock_is_ahead`."""

_LONG_AGO = -(1 << 62)
"""A time before all others."""


class _Shifts(NamedTuple):
    """Shifts, and the recorded device times since which each holds; the first holds before, too."""

    since_ns: I64
    shift_ns: I64

    def at(self, ts_ns: I64) -> I64:
        """Shift at recorded device times."""
        position = np.searchsorted(self.since_ns, ts_ns, side="right") - 1
        return self.shift_ns[np.maximum(position, 0)]

    @classmethod
    def of(cls, found: Calibration) -> _Shifts:
        """Those that a calibration found."""
        since = [at - by for at, by in found.clock_steps]
        shifts = [found.clock_shift_ns, *(by for _, by in found.clock_steps)]
        return cls(np.array([_LONG_AGO, *since], np.int64), np.array(shifts, np.int64))


class _Bounds(NamedTuple):
    """What has to be added to device times and a shift that is known: at least, at most."""

    launched: I64
    at_least: I64
    awaited: I64
    at_most: I64

    def of_waits(self, rows: Bools) -> _Bounds:
        """The same by some of the waits."""
        return self._replace(awaited=self.awaited[rows], at_most=self.at_most[rows])


def _bounds(structure: Structure, known: _Shifts, overlap_ns: int) -> _Bounds:
    """Bounds by each linked device event, and by each wait."""
    events, launch = structure.events, structure.launch
    linked = np.flatnonzero(launch >= 0)
    early = events.ts_ns[launch[linked]] - events.ts_ns[linked]
    near = early <= _LARGEST_SHIFT_NS
    work, call = certain_waits(structure)
    linked = linked[near]
    at_least = early[near] - known.at(events.ts_ns[linked])
    at_most = events.end_ns[call] - events.end_ns[work] - known.at(events.ts_ns[work])
    return _Bounds(linked, at_least, work, at_most + overlap_ns)


def _one_shift(bounds: _Bounds) -> int:
    """Shift nearest to zero that fits all waits, as far as launches allow it."""
    most = min(0, int(bounds.at_most.min(initial=0)))
    return int(bounds.at_least.max(initial=most))


def _fitting(structure: Structure, bounds: _Bounds, known: _Shifts) -> _Shifts:
    """Shifts that fit all bounds, or all launches and most waits."""
    shift_ns = _one_shift(bounds)
    if shift_ns > bounds.at_most.min(initial=_LARGEST_SHIFT_NS):
        return _followed(structure, bounds, known)
    return known._replace(shift_ns=known.shift_ns + shift_ns)


def _overlap(structure: Structure, bounds: _Bounds, known: _Shifts, shifts: _Shifts) -> I64:
    """By how much each wait ends before its work once that is moved; negative if after."""
    ts_ns = structure.events.ts_ns[bounds.awaited]
    return shifts.at(ts_ns) - known.at(ts_ns) - bounds.at_most


def _followed(structure: Structure, bounds: _Bounds, known: _Shifts) -> _Shifts:
    """Shifts that change where no device works."""
    events, device = structure.events, structure.queue
    busy = union(np.zeros(len(device), np.int64), events.ts_ns[device], events.end_ns[device])
    n_busy = len(busy.start)
    if not n_busy:
        return _Shifts(np.zeros(1, np.int64), np.full(1, _one_shift(bounds)))

    def place(work: I64) -> I64:
        return np.maximum(np.searchsorted(busy.start, events.ts_ns[work], side="right") - 1, 0)

    low = np.full(n_busy, min(-_LARGEST_SHIFT_NS, int(bounds.at_most.min(initial=0))))
    high = np.full(n_busy, _LARGEST_SHIFT_NS)
    np.maximum.at(low, place(bounds.launched), bounds.at_least)
    np.minimum.at(high, place(bounds.awaited), bounds.at_most)
    gap = np.concatenate([[0], busy.start[1:] - busy.end[:-1]])
    shift = follow(low, high, gap) + known.at(busy.start)
    changes = np.flatnonzero(np.diff(shift, prepend=shift[0] - 1))
    return _Shifts(busy.start[changes], shift[changes])


def on_host_clock(structure: Structure, learnt: Learnt | None = None) -> Structure:
    """Structure with device times moved to the host clock.

    Its calibration says by how much, and by how much waits still overlap. With `learnt`, the clock
    is moved as it says, and from there only if these events demand it.
    """
    calibration = learnt.calibration if learnt else structure.calibration
    known = _Shifts.of(calibration)
    bounds = _bounds(structure, known, calibration.clock_overlap_ns)
    is_far = bounds.at_most < -_LARGEST_OVERLAP_NS
    if is_far.sum() >= _FEWEST_FAR:
        far_overlap = _overlap(structure, bounds, known, _fitting(structure, bounds, known))
        is_far &= far_overlap > _LARGEST_OVERLAP_NS
    far, bounds = bounds.of_waits(is_far), bounds.of_waits(~is_far)
    shifts = _fitting(structure, bounds, known)
    overlap = _overlap(structure, bounds, known, shifts)
    apart = _overlap(structure, far, known, shifts)
    apart_ns = int(apart.max()) if len(apart) >= _FEWEST_FAR else 0
    moved = structure
    if shifts.shift_ns.any():
        events = structure.events
        by_device = among(events.kind, DEVICE_CLOCK_KINDS)
        shift_ns = np.where(by_device, shifts.at(events.ts_ns), 0)
        moved = examine(replace(events, ts_ns=events.ts_ns + shift_ns))
    calibration = replace(
        learnt.calibration if learnt else moved.calibration,
        clock_shift_ns=int(shifts.shift_ns[0]),
        clock_steps=tuple(
            zip((shifts.since_ns + shifts.shift_ns).tolist(), shifts.shift_ns.tolist(), strict=True)
        )[1:],
        clock_overlap_ns=calibration.clock_overlap_ns + int(overlap.max(initial=0)),
        clock_apart_ns=max(calibration.clock_apart_ns, apart_ns),
    )
    return moved.calibrated(calibration, learnt)
