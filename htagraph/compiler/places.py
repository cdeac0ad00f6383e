"""Places: where in a program a piece of device work stands, the same each time it comes round.

A kernel's name alone is shared by many layers. What ran before it on its stream, the operator that
launched it, and its position in a replayed graph tell them apart.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts
from htagraph.compiler.structure import Structure
from htagraph.model.kinds import EventKind

__all__ = ["Places", "mixed", "work_label"]

I64 = npt.NDArray[np.int64]

_MIX = np.int64(-7046029254386353131)  # 2**64 / golden ratio, odd: spreads bits over the word


def mixed(key: I64, column: npt.NDArray[np.integer]) -> I64:
    """Hash of rows of columns, one column after the other."""
    with np.errstate(over="ignore"):
        mixed: I64 = (key ^ (key >> np.int64(29))) * _MIX + column.astype(np.int64)
    return mixed


class Places:
    """Places of the device events of a trace, from coarse to fine, as numbers.

    Equal numbers are equal places. Each is an array of shape (n_events,), of no meaning for other
    events.
    """

    def __init__(self, structure: Structure) -> None:
        self.structure = structure

    def _of_device(self, values: I64) -> I64:
        """Values of the device events, in the order of `structure.queue`, as one per event."""
        out = np.full(len(self.structure.events), -1, dtype=np.int64)
        out[self.structure.queue] = values
        return out

    @property
    def stream(self) -> I64:
        """By stream alone."""
        return self.structure.queue_id

    @cached_property
    def name(self) -> I64:
        """By stream and name."""
        return mixed(self.structure.queue_id, self.structure.events.name)

    @cached_property
    def neighbour(self) -> I64:
        """The same, and by the name of what ran before it on its stream."""
        device = self.structure.queue
        name = self.structure.events.name[device].astype(np.int64)
        before = np.where(self.structure.queue_starts, -1, np.roll(name, 1))
        return self._of_device(mixed(self.name[device], before))

    @cached_property
    def position(self) -> I64:
        """The same, and by the operator that launched it and its position in a replayed graph."""
        device = self.structure.queue
        key = mixed(self.neighbour[device], _operators(self.structure))
        return self._of_device(mixed(key, _ordinals(self.structure)))


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
    if not structure.replays.any():
        return np.zeros(len(device), dtype=np.int64)
    stream = structure.queue_id[device]
    rows = np.lexsort((structure.events.ts_ns[device], stream, launch))
    starts = group_starts(launch[rows], stream[rows])
    first = np.maximum.accumulate(np.where(starts, np.arange(len(rows)), 0))
    out = np.zeros(len(device), dtype=np.int64)
    out[rows] = np.where(launch[rows] >= 0, np.arange(len(rows)) - first, 0)
    return out


def work_label(structure: Structure, event: int) -> str:
    """Name and stream of a piece of device work, as a person reads them."""
    events = structure.events
    return f"{events.symbols.texts[events.name[event]]} (stream {events.stream[event]})"
