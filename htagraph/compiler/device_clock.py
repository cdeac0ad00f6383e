"""The device clock against the host clock: what launches and waits allow.

Profilers convert device times to the host's clock with errors of microseconds. Two facts hold on
one clock: work starts after its launch call has begun, and a wait ends after what it waited for.
The first bounds from below what has to be added to device times, the second from above::

    thread 1   [launch]     [cudaStreamSynchronize]
               |-- low         high --|
    stream 7         [kernel            ]

The shift is the one of that interval nearest to zero. Where errors vary and the interval is empty,
launches hold, and waits overlap with what they waited for by up to a known time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from htagraph.compiler.structure import Structure, examine
from htagraph.compiler.syncs import certain_waits
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind

__all__ = ["on_host_clock"]

I64 = npt.NDArray[np.int64]

_LARGEST_SHIFT_NS = 1_000_000
"""Device work that precedes its launch by more is no clock error."""

_LARGEST_OVERLAP_NS = 100_000
"""A call that returned longer before the end of device work did not wait for it."""

_BY_DEVICE = np.array(
    [EventKind.SYNC, EventKind.DEVICE_ANNOTATION, EventKind.COUNTER_RANGE], dtype=np.int8
)


def _least_shifts(structure: Structure) -> I64:
    """What has to be added to device times at least, by each launch."""
    events, launch = structure.events, structure.launch
    linked = np.flatnonzero(launch >= 0)
    early: I64 = events.ts_ns[launch[linked]] - events.ts_ns[linked]
    return early[early <= _LARGEST_SHIFT_NS]


def _largest_shifts(structure: Structure) -> I64:
    """What may be added to device times at most, by each wait."""
    events = structure.events
    work, call = certain_waits(structure)
    left: I64 = events.end_ns[call] - events.end_ns[work]
    return left[left >= -_LARGEST_OVERLAP_NS]


def _shift_device(events: EventTable, shift_ns: int) -> EventTable:
    """Events with everything recorded by the device clock moved."""
    by_device = events.is_device | np.isin(events.kind, _BY_DEVICE)
    return replace(events, ts_ns=events.ts_ns + np.where(by_device, shift_ns, 0))


def on_host_clock(structure: Structure) -> Structure:
    """Structure with device times moved to the host clock.

    Parameters
    ----------
    structure : Structure
        With device times as recorded.

    Returns
    -------
    Structure
        Its calibration says by how much they were moved, and by how much waits still overlap.

    Examples
    --------
    >>> from htagraph.synth import timeline
    >>> events = timeline('''
    ...     cpu 1    |     [launch >a]
    ...     stream 7 |  [k1 <a ]
    ... ''')
    >>> on_host_clock(examine(events)).calibration.clock_shift_ns
    3000
    """
    at_least, at_most = _least_shifts(structure), _largest_shifts(structure)
    shift_ns = min(0, int(at_most.min(initial=0)))
    shift_ns = max(shift_ns, int(at_least.max(initial=-_LARGEST_SHIFT_NS)))
    overlap_ns = max(shift_ns - int(at_most.min(initial=shift_ns)), 0)
    moved = examine(_shift_device(structure.events, shift_ns)) if shift_ns else structure
    if not shift_ns and not overlap_ns:
        return structure
    calibration = replace(moved.calibration, clock_shift_ns=shift_ns, clock_overlap_ns=overlap_ns)
    return replace(moved, calibration=calibration)
