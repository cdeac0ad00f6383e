"""CONTENTION: ready work waits for the device itself, until a kernel that fills it drains.

Nothing in the program makes it wait, but no multiprocessor is free. A kernel of many more blocks
than fit runs in waves; as its last blocks end, there is room, and the ready work starts a little
before the kernel ends.

::

    stream 7    [A: far more blocks than fit     ]
                |==========================>|
    stream 20        ready since here       [B  ]

One start near the end of another kernel may be chance. So late starts are counted by the kernel
that ran meanwhile: if nearly all of them fall into the last part of its runs, far more than by
chance, it fills the device. Where the launch geometry is recorded, a kernel of fewer blocks than
multiprocessors fills nothing, and one of more threads than the device runs at once needs fewer such
starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.arrays.codes import gather
from htagraph.arrays.matching import group_starts
from htagraph.compiler.classes import classify
from htagraph.compiler.late_starts import (
    LateStarts,
    late_starts,
    most_used_streams,
    running_at,
    stream_label,
    work_label,
    work_places,
)
from htagraph.compiler.recurrences import log_chance
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.arrays import I64, Bools
from htagraph.model.devices import MOST_THREADS_PER_SM
from htagraph.model.edges import EdgeTable, Inferred, Support
from htagraph.model.kinds import EventKind, KernelClass, among
from htagraph.model.rules import Rule

_DRAIN = 0.03
"""Last part of a kernel's run in which its blocks may drain (chosen, as are the next three;
``tests/compiler/test_device_order.py``)."""
_DRAIN_OF_LARGE = 0.1
"""The same of a kernel that is known to be larger than the device."""
_ALL_BUT = 0.9
"""Share of the late starts during a kernel that must fall into its drain."""
_FALSE_KERNELS = 5e-3
"""Kernels that chance would take for ones that fill the device, as an expectation."""
_Look = tuple[int, Callable[[Structure, int], str]]
_BY_TIME = (Rule.ENDED_RIGHT_BEFORE, Rule.RECURRING_IN_REPLAYS)


class _Meetings(NamedTuple):
    """Late starts while a kernel of another stream runs that may fill the device."""

    work: I64  # What starts late
    filler: I64  # The kernel; of several, the one that ends first
    left_ns: I64  # What is left of the kernel's run at the late start

    def take(self, rows: I64 | Bools) -> _Meetings:
        """Some of them, by positions or a mask."""
        return _Meetings(self.work[rows], self.filler[rows], self.left_ns[rows])


class _Traits(NamedTuple):
    """What each event is where room on the device is concerned; shape (n_events,), dtype=bool."""

    may_fill: Bools
    fills: Bools
    needs_room: Bools

    @classmethod
    def of(cls, structure: Structure) -> _Traits:
        """Traits of the events of a trace."""
        return cls(_may_fill(structure), _fills(structure), _needs_room(structure))


def _may_fill(structure: Structure) -> Bools:
    """Whether each event is a kernel that computes and is not known to leave room."""
    events = structure.events
    computes: Bools = classify(structure).kernel_class == KernelClass.COMPUTE
    blocks = events.columns.get("blocks_per_sm")
    if blocks is not None:
        computes[blocks.event[(blocks.value < 1) & (blocks.value > 0)]] = False
    return computes


def _fills(structure: Structure) -> Bools:
    """Whether each event is a kernel of more threads than the device runs at once, as recorded."""
    columns = structure.events.columns
    out = np.zeros(len(structure.events), dtype=bool)
    if "blocks_per_sm" not in columns or "block_x" not in columns:
        return out
    threads = np.ones(len(out))
    for axis in ("block_x", "block_y", "block_z"):
        if axis in columns:
            threads[columns[axis].event] *= np.maximum(columns[axis].value, 1)
    blocks = columns["blocks_per_sm"]
    out[blocks.event] = blocks.value * threads[blocks.event] > MOST_THREADS_PER_SM
    return out


def _needs_room(structure: Structure) -> Bools:
    """Whether each event runs on multiprocessors, and not on a copy engine."""
    events = structure.events
    on_device = events.symbols.searched(r"DtoD|DeviceToDevice")
    needs: Bools = (events.kind != EventKind.MEMCPY) | on_device[events.name]
    return needs


def _meetings(structure: Structure, late: LateStarts, traits: _Traits) -> _Meetings:
    """Late starts, each with the kernel that runs meanwhile and ends first."""
    events = structure.events
    start_ns = events.ts_ns[late.event]
    device = events.device[structure.queue[structure.queue_starts]]
    best = np.full(len(start_ns), -1, dtype=np.int64)
    ends = np.full(len(start_ns), np.iinfo(np.int64).max)
    for queue in most_used_streams(structure).tolist():
        running, end_ns = running_at(structure, queue, start_ns - structure.resolution_ns + 1)
        rows = np.flatnonzero(end_ns < ends)
        running, end_ns, work = running[rows], end_ns[rows], late.event[rows]
        fits = (structure.queue_id[work] != queue) & (events.device[work] == device[queue])
        fits &= traits.may_fill[running] & (events.ts_ns[running] < start_ns[rows])
        best[rows[fits]], ends[rows[fits]] = running[fits], end_ns[fits]
    found = np.flatnonzero((best >= 0) & traits.needs_room[late.event])
    left_ns = np.maximum(ends[found] - start_ns[found], 0)
    return _Meetings(late.event[found], best[found], left_ns)


def _fillers(
    structure: Structure,
    met: _Meetings,
    place: npt.NDArray[np.integer],
    traits: _Traits,
    look: _Look,
) -> Iterator[tuple[_Meetings, Support]]:
    """Late starts that waited for room, by the kernel that they meet as it drains.

    A start is chance if it falls into the last part of a run no more often than that part is long.
    `look`: which late starts these are, and a kernel's place in words: they tell what is learned.
    """
    learnt, (turn, label) = structure.learnt, look
    resolution = structure.resolution_ns
    of_place = place[met.filler]
    order = np.argsort(of_place, kind="stable")
    starts = np.flatnonzero(group_starts(of_place[order]))
    parts = _DRAIN, _DRAIN_OF_LARGE
    n_looks = len(starts) * len(parts)
    # Few kernels are met as they drain: chances are for these only.
    drains = met.left_ns <= max(parts) * structure.events.dur_ns[met.filler]
    n_met = np.bincount(of_place)
    is_likely = np.bincount(of_place, drains) >= _ALL_BUT * n_met * (learnt is None)
    bounds = np.append(starts, len(order)).tolist()
    for number in np.flatnonzero(is_likely[of_place[order[starts]]]).tolist():
        rows = order[bounds[number] : bounds[number + 1]]
        dur_ns = structure.events.dur_ns[met.filler[rows]]
        drain_ns = np.multiply.outer(parts, dur_ns)
        drains = met.left_ns[rows] <= drain_ns
        n_matched = drains.sum(axis=1)
        shares = np.minimum((drain_ns + resolution) / np.maximum(dur_ns, 1), 1).mean(axis=1)
        is_large = bool(traits.fills[met.filler[rows]].all())
        chances = log_chance(n_matched, len(rows), shares)
        chances[1] *= is_large
        chances[n_matched < _ALL_BUT * len(rows)] = 0
        best = int(np.argmin(chances))
        where = label(structure, int(met.filler[rows[0]]))
        keys = [f"{turn} {where} {part}" for part in parts]
        fills = bool(chances[best] < np.log(_FALSE_KERNELS / n_looks))
        if learnt is not None:
            best = int(keys[1] in learnt.keys)
            fills = keys[best] in learnt.keys
        if fills and drains[best].any():
            found = met.take(rows[drains[best]])
            support = Support(
                Rule.NO_FREE_SMS,
                work_label(structure, int(found.filler[0])),
                work_label(structure, int(found.work[0])),
                len(found.work),
                len(rows),
                -int(np.median(found.left_ns)),
                int(np.ptp(found.left_ns)),
                float(shares[best]),
                keys[best],
            )
            yield found, support


def _edges(structure: Structure, met: _Meetings) -> EdgeTable:
    """Edges to the starts of works; their time is that of the kernels that fill the device.

    They come from the start of the kernel, or from the end of what ran on the work's own stream, if
    that was later: until then the work had to wait anyway.
    """
    events, queue = structure.events, structure.queue
    before = np.full(len(events), -1, dtype=np.int64)
    before[queue] = np.where(structure.queue_starts, -1, np.roll(queue, 1))
    own = before[met.work]
    ended_ns = gather(events.end_ns, own, np.iinfo(np.int64).min)
    is_own = (ended_ns > events.ts_ns[met.filler]) & (ended_ns <= events.ts_ns[met.work])
    tail = np.where(is_own, end_node(own), start_node(met.filler))
    return EdgeTable.of(
        Rule.NO_FREE_SMS,
        tail,
        start_node(met.work),
        lag_ns=events.ts_ns[met.work] - events.node_ts_ns[tail],
        event=met.filler,
    )


def waiting_for_sms(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges to work that has no room, because a kernel fills the device.

    What other rules of inference explain counts as well, where a kernel is judged: it met the
    kernel, too.
    """
    left = late_starts(structure, known)
    if not len(left.event):
        return Inferred()
    places = (work_places(structure), work_label), (structure.queue_id, stream_label)
    traits = _Traits.of(structure)
    is_late = np.zeros(len(structure.events), dtype=bool)
    is_late[left.event] = True
    parts: list[EdgeTable] = []
    support: list[Support] = []
    by_time = among(known.rule, _BY_TIME)
    turns = [(1, left)]
    if by_time.any() or structure.learnt is not None:
        turns.insert(0, (0, late_starts(structure, known.take(~by_time))))
    for turn, late in turns:
        met = _meetings(structure, late, traits)
        for place, label in places:
            for found, learnt in _fillers(structure, met, place, traits, (turn, label)):
                new = found.take(is_late[found.work])
                is_late[new.work] = False
                parts.append(_edges(structure, new))
                support += [learnt] if len(new.work) else []
    return Inferred(EdgeTable.concat(parts), tuple(support))
