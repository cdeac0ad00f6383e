"""Which classes of work run at once on each device: stretches of time that tile the window."""

from __future__ import annotations

import numpy as np

from htagraph.algorithms.intervals import Cover, States, states
from htagraph.algorithms.tiling import check_tiling
from htagraph.lookup.clipping import device_work
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import KernelClass
from htagraph.model.window import Window

CLASSES = (KernelClass.COMPUTE, KernelClass.COMMUNICATION, KernelClass.MEMORY)
"""Classes of device work: bit ``c`` of a mask says that class ``c`` runs, bit 0 is always set."""


def devices_of(dag: Dag) -> I64:
    """Devices of a trace that have work, ascending."""
    return np.unique(dag.events.device[dag.events.is_device]).astype(np.int64)


def device_states(dag: Dag, window: Window) -> States:
    """Classes that run at once on each device; the stretches tile the window.

    ::

        stream 7   |   [compute     ]
        stream 9   |         [nccl      ]
        class      |   [  1  ][ 1+2 ][2 ]      0 (idle) elsewhere

    Returns
    -------
    States
        ``group`` is the device; bit `KernelClass` of ``mask`` is set where that class runs, bit 0
        always.
    """
    work, devices = device_work(dag, window), devices_of(dag)
    n = len(devices)
    found = states(
        np.concatenate([dag.events.device[work.event].astype(np.int64), devices]),
        np.concatenate([work.start_ns, np.full(n, window.start_ns)]),
        np.concatenate([work.end_ns, np.full(n, window.end_ns)]),
        np.concatenate([dag.classification.kernel_class[work.event], np.zeros(n, dtype=np.int8)]),
        n_bits=len(KernelClass),
    )
    check_tiling(
        "what runs on a device",
        found.start,
        found.end,
        (np.full(n, window.start_ns), np.full(n, window.end_ns)),
        np.searchsorted(devices, found.group),
    )
    return found


def runs(found: States, kernel_class: KernelClass) -> Bools:
    """Whether a class runs, on each stretch."""
    return np.asarray((found.mask >> int(kernel_class)) & 1 == 1)


def time_by_class(found: States, device: int, start_ns: I64, end_ns: I64) -> dict[str, I64]:
    """Time of a device in each range by ``idle`` and `CLASSES`, which add up to the range.

    A class counts while none before it runs: communication that no compute hides. `found` covers
    all ranges.
    """
    mine = found.group == device
    part = np.select(
        [runs(found, member) for member in CLASSES], list(CLASSES), default=KernelClass.NONE
    )
    names = {KernelClass.NONE: "idle"} | {member: member.label for member in CLASSES}
    return {
        name: Cover(found.start[rows], found.end[rows]).within(start_ns, end_ns)
        for member, name in names.items()
        for rows in [mine & (part == member)]
    }
