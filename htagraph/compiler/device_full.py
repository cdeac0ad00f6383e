"""CONTENTION: ready work waits for the device itself, until a kernel that fills it drains.

Nothing in the program makes it wait, but no multiprocessor is free. A kernel of many more blocks
than fit runs in waves; as its last blocks end, there is room, and the ready work starts a little
before the kernel ends.

::

    stream 7    [A: far more blocks than fit     ]
                |==========================>|
    stream 20        ready since here       [B  ]

One start near the end of another kernel may be chance. So starts are counted by the kernel that ran
meanwhile: where nearly all late starts fall into the last part of its runs, and that many would
hardly do so by chance, it fills the device. Where the launch geometry is recorded, a kernel of
fewer blocks than multiprocessors fills nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.chance import log_chance
from htagraph.algorithms.matching import group_starts
from htagraph.compiler.classes import classify
from htagraph.compiler.late_starts import LateStarts, late_starts, running_at
from htagraph.compiler.places import Places, work_label
from htagraph.compiler.structure import Structure, start_node
from htagraph.model.edges import EdgeTable
from htagraph.model.inference import Inferred, Support
from htagraph.model.kinds import EventKind, KernelClass
from htagraph.model.rules import Rule

__all__ = ["device_full"]

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_DRAINS = (0.01, 0.03, 0.1)
"""Last parts of a kernel's run in which its blocks may drain: the narrowest that fits is taken."""
_ALL_BUT = 0.9
_FALSE_KERNELS = 1e-4
"""Kernels that chance would take for ones that fill the device, as an expectation."""
_COVERS = 0.5
"""Part of the wait in which the kernel that fills the device runs, at least."""


class _Meetings(NamedTuple):
    """Late starts while a kernel of another stream runs that may fill the device.

    Parameters
    ----------
    late : ndarray of shape (n,), dtype=int64
        Position among the late starts.
    filler : ndarray of shape (n,), dtype=int64
        The kernel; of several, the one that ends first.
    left : ndarray of shape (n,), dtype=float64
        Part of the kernel's run that is left at the late start.
    """

    late: I64
    filler: I64
    left: npt.NDArray[np.float64]

    def take(self, rows: I64 | Bools) -> _Meetings:
        """Some of them, by positions or a mask."""
        return _Meetings(self.late[rows], self.filler[rows], self.left[rows])


def _may_fill(structure: Structure) -> Bools:
    """Whether each event is a kernel that computes and is not known to leave room."""
    events = structure.events
    computes: Bools = classify(structure).kernel_class == KernelClass.COMPUTE
    blocks = events.columns.get("blocks_per_sm")
    if blocks is not None:
        computes[blocks.event[(blocks.value < 1) & (blocks.value > 0)]] = False
    return computes


def _needs_room(structure: Structure) -> Bools:
    """Whether each event runs on multiprocessors, and not on a copy engine."""
    events = structure.events
    on_device = events.symbols.mask(lambda name: "DtoD" in name or "DeviceToDevice" in name)
    needs: Bools = (events.kind != EventKind.MEMCPY) | on_device[events.name]
    return needs


def _meetings(structure: Structure, late: LateStarts) -> _Meetings:
    """Late starts, each with the kernel that runs meanwhile and ends first.

    It runs for half of the wait at least, or was launched before the work that waits.
    """
    events, may_fill = structure.events, _may_fill(structure)
    start_ns, launched_ns = events.ts_ns[late.event], structure.launch_time_ns
    late_end_ns = structure.calibration.late_end_ns
    device = events.device[structure.queue[structure.queue_starts]]
    best = np.full(len(start_ns), -1, dtype=np.int64)
    ends = np.full(len(start_ns), np.iinfo(np.int64).max)
    for queue in range(len(device)):
        running = running_at(structure, queue, start_ns - late_end_ns)
        other = (running >= 0) & (structure.queue_id[late.event] != queue)
        other &= (events.device[late.event] == device[queue]) & may_fill[running]
        covers_ns = start_ns - np.maximum(events.ts_ns[running], late.ready_ns)
        fits = other & (covers_ns > 0) & (events.end_ns[running] < ends)
        fits &= (covers_ns >= _COVERS * late.wait_ns) | (
            launched_ns[running] <= launched_ns[late.event]
        )
        best[fits], ends[fits] = running[fits], events.end_ns[running[fits]]
    found = np.flatnonzero((best >= 0) & _needs_room(structure)[late.event])
    filler = best[found]
    left = np.maximum(events.end_ns[filler] - start_ns[found], 0)
    return _Meetings(found, filler, left / np.maximum(events.dur_ns[filler], 1))


def _fillers(
    structure: Structure, late: LateStarts, met: _Meetings, place: I64
) -> tuple[Bools, list[Support]]:
    """Which late starts waited for room, by how often they meet a kernel as it drains."""
    order = np.lexsort((met.left, place[met.filler]))
    starts = np.flatnonzero(group_starts(place[met.filler][order]))
    waited = np.zeros(len(met.late), dtype=bool)
    support = []
    for rows in np.split(order, starts[1:]):
        n_matched = np.array([(met.left[rows] <= part).sum() for part in _DRAINS])
        chances = log_chance(n_matched, len(rows), _DRAINS)
        chances[n_matched < _ALL_BUT * len(rows)] = 0
        best = int(np.argmin(chances))
        if chances[best] >= np.log(_FALSE_KERNELS / (len(starts) * len(_DRAINS))):
            continue
        inside = rows[met.left[rows] <= _DRAINS[best]]
        waited[inside] = True
        events = structure.events
        drain_ns = events.end_ns[met.filler[inside]] - events.ts_ns[late.event[met.late[inside]]]
        support.append(
            Support(
                Rule.DEVICE_FULL,
                work_label(structure, int(met.filler[inside[0]])),
                work_label(structure, int(late.event[met.late[inside[0]]])),
                len(inside),
                len(rows),
                -int(np.median(drain_ns)),
                int(np.ptp(drain_ns)),
                _DRAINS[best],
            )
        )
    return waited, support


def device_full(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges from the start of a kernel that fills the device to work that then has no room.

    Their lag is the time until the work starts, and the time is the kernel's.
    """
    late = late_starts(structure, known)
    if not len(late.event):
        return Inferred()
    met = _meetings(structure, late)
    parts, support, places = [EdgeTable()], [], Places(structure)
    for place in (places.name, places.stream):
        if not len(met.late):
            break
        waited, learnt = _fillers(structure, late, met, place)
        filler, work = met.filler[waited], late.event[met.late[waited]]
        parts.append(
            EdgeTable.of(
                Rule.DEVICE_FULL,
                start_node(filler),
                start_node(work),
                lag_ns=structure.events.ts_ns[work] - structure.events.ts_ns[filler],
                event=filler,
            )
        )
        support += learnt
        met = met.take(~waited)
    return Inferred(EdgeTable.concat(parts), tuple(support))
