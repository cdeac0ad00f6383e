"""What was repaired in a file: each kind of defect, how often, and where first.

Offsets are those of the decompressed bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Self

import numpy as np

from htagraph.model.arrays import I64
from htagraph.model.recording import Repair

_NOWHERE = np.iinfo(np.int64).max


class Defect(IntEnum):
    """A way in which a file of one format breaks, and what the reader does about it.

    Codes count from 0: a row of `new_counts`, and a bit where several are noted at once.
    """

    label: str
    sentence: str
    damage: str

    def __new__(cls, label: str, sentence: str, damage: str = "") -> Self:
        """Make a member that carries its label, its sentence and what it damages."""
        member = int.__new__(cls, len(cls.__members__))
        member._value_ = len(cls.__members__)
        member.label = label
        member.sentence = sentence
        member.damage = damage
        return member


def new_counts(defects: type[Defect]) -> I64:
    """An empty table of count and first offset per defect, for compiled code to fill."""
    return np.tile(np.array([0, _NOWHERE], dtype=np.int64), (len(defects), 1))


def count_in(counts: I64, defect: Defect, offset: int) -> None:
    """Count one repair."""
    counts[defect, 0] += 1
    counts[defect, 1] = min(counts[defect, 1], offset)


def merge_counts(counts: I64, more: I64) -> None:
    """Add the counts of one table to another."""
    counts[:, 0] += more[:, 0]
    np.minimum(counts[:, 1], more[:, 1], out=counts[:, 1])


class RepairLog:
    """Counts and first offsets of all repairs of one file, while it is read."""

    def __init__(self, defects: type[Defect]) -> None:
        self._defects = defects
        self.counts = new_counts(defects)

    def add(self, defect: Defect, offset: int = -1, n: int = 1) -> None:
        """Count repairs; -1 is an unknown offset."""
        if n:
            self.counts[defect, 0] += n
            self.counts[defect, 1] = min(self.counts[defect, 1], offset)

    def once(self, defect: Defect, offset: int) -> None:
        """Count a repair that is made once per file."""
        self.add(defect, offset)
        self.counts[defect, 0] = 1

    def merge(self, counts: I64) -> None:
        """Add the counts of compiled code."""
        merge_counts(self.counts, counts)

    def count(self, defects: Iterable[Defect]) -> int:
        """How often some repairs were made."""
        return int(self.counts[list(defects), 0].sum())

    def repairs(self) -> tuple[Repair, ...]:
        """The repairs made, in the order of the defects."""
        return tuple(
            Repair(defect.label, int(n), int(first), defect.sentence, defect.damage)
            for defect, (n, first) in zip(self._defects, self.counts, strict=True)
            if n
        )
