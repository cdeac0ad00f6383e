"""Defects of Perfetto traces: the closed list of what is mended, and the log of what was."""

from __future__ import annotations

from collections import Counter
from enum import Enum

from htagraph.model.recording import Repair

__all__ = ["Defect", "DefectLog"]


class Defect(Enum):
    """A way in which a trace breaks, and (as its sentence) what was done about it."""

    TRUNCATED = "truncated", "the file ends inside a packet; that one is left out"
    DAMAGED = "damaged", "bytes that are no packet; left out, up to where packets go on"
    BAD_PACKET = "bad packet", "a packet that cannot be read; left out"
    BAD_PACKED = "bad compressed packets", "compressed packets that cannot be unpacked; left out"
    NO_STRING = (
        "unknown interned id",
        "a text is told by a number that the file does not define; taken as none",
    )
    NOT_UTF8 = "invalid UTF-8", "bytes that are no UTF-8 were replaced by U+FFFD"
    LOST = "lost packets", "the recorder says that packets were lost before this one; read on"
    NO_TIME = "no timestamp", "an event without a time; left out"
    NO_CLOCK = (
        "unknown clock",
        "an event's clock was never compared with that of the trace; its time is taken as it is",
    )
    FAR_TIME = "time out of range", "an event more than 146 years from 1970; left out"
    END_ONLY = "end without begin", "a slice ends that did not begin; left out"
    BEGIN_ONLY = "begin without end", "a slice begins and does not end; ended with the trace"
    SUPPLEMENT = (
        "supplement does not fit",
        "what htagraph wrote beside the slices is damaged, or of other slices; read without it",
    )

    def __init__(self, label: str, sentence: str) -> None:
        self.label = label
        self.sentence = sentence


class DefectLog:
    """Counts and first offsets of the repairs of one trace.

    Examples
    --------
    >>> log = DefectLog()
    >>> log.add(Defect.BAD_PACKET, 2, offset=70)
    >>> [(repair.kind, repair.n, repair.first_offset) for repair in log.repairs()]
    [('bad packet', 2, 70)]
    """

    def __init__(self) -> None:
        self._n: Counter[Defect] = Counter()
        self._first: dict[Defect, int] = {}

    def add(self, defect: Defect, n: int = 1, *, offset: int = -1) -> None:
        """Count a repair, if there was one."""
        if n > 0:
            self._n[defect] += n
            self._first.setdefault(defect, offset)

    def __contains__(self, defect: Defect) -> bool:
        """Whether there was such a repair."""
        return self._n[defect] > 0

    def repairs(self) -> tuple[Repair, ...]:
        """The repairs made, in the order of `Defect`."""
        return tuple(
            Repair(defect.label, self._n[defect], self._first[defect], defect.sentence)
            for defect in Defect
            if self._n[defect]
        )
