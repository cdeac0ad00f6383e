"""Places: where in a program a piece of device work stands, the same each time it comes round.

A kernel's name alone is shared by many layers. What ran before it on its stream, the operator that
launched it, and its position in a replayed graph tell them apart.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts
from htagraph.compiler.structure import Structure
from htagraph.model.kinds import EventKind

__all__ = ["by_name", "by_neighbour", "by_position", "by_stream", "work_label"]

I64 = npt.NDArray[np.int64]


def _coded(structure: Structure, *columns: npt.NDArray[np.integer]) -> I64:
    """Number of each distinct row of columns of the device events; -1 for other events."""
    device = structure.queue
    code = np.zeros(len(device), dtype=np.int64)
    for column in columns:
        _, numbers = np.unique(column, return_inverse=True)
        _, code = np.unique(code * (len(device) + 1) + numbers, return_inverse=True)
    out = np.full(len(structure.events), -1, dtype=np.int64)
    out[device] = code
    return out


def _names_before(structure: Structure) -> I64:
    """Name of the work before each on its stream, in the order of `structure.queue`."""
    name = structure.events.name[structure.queue].astype(np.int64)
    return np.where(structure.queue_starts, -1, np.roll(name, 1))


def _operators(structure: Structure) -> I64:
    """Name of the operator or annotation that launched each piece of device work, -1 for none."""
    events = structure.events
    around = gather(structure.parent, structure.launch[structure.queue])
    in_call = gather(events.kind, around, EventKind.OTHER) == EventKind.RUNTIME
    around = np.where(in_call, gather(structure.parent, around), around)
    return gather(events.name, around).astype(np.int64)


def _ordinals(structure: Structure) -> I64:
    """How many pieces of its launch ran on its stream before each one; 0 outside of replays."""
    device, launch = structure.queue, structure.launch[structure.queue]
    stream = structure.queue_id[device]
    rows = np.lexsort((structure.events.ts_ns[device], stream, launch))
    starts = group_starts(launch[rows], stream[rows])
    first = np.maximum.accumulate(np.where(starts, np.arange(len(rows)), 0))
    out = np.zeros(len(device), dtype=np.int64)
    out[rows] = np.where(launch[rows] >= 0, np.arange(len(rows)) - first, 0)
    return out


def by_stream(structure: Structure) -> I64:
    """Place of each device event by its stream alone."""
    return structure.queue_id


def by_name(structure: Structure) -> I64:
    """Place of each device event by its stream and its name; -1 for other events."""
    device = structure.queue
    return _coded(structure, structure.queue_id[device], structure.events.name[device])


def by_neighbour(structure: Structure) -> I64:
    """The same, and by the name of what ran before it there."""
    device = structure.queue
    return _coded(
        structure,
        structure.queue_id[device],
        structure.events.name[device],
        _names_before(structure),
    )


def by_position(structure: Structure) -> I64:
    """The same, and by the operator that launched it and its position in a replayed graph."""
    device = structure.queue
    return _coded(
        structure,
        structure.queue_id[device],
        structure.events.name[device],
        _names_before(structure),
        _operators(structure),
        _ordinals(structure),
    )


def work_label(structure: Structure, event: int) -> str:
    """Name and stream of a piece of device work, as a person reads them."""
    events = structure.events
    return f"{events.symbols.texts[events.name[event]]} (stream {events.stream[event]})"
