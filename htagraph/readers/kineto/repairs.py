"""Defects of Kineto files: the closed list of what is mended, and the log of what was.

A repair is counted for each event, or for each place, that needed it, with the first byte where it
did. Byte offsets are offsets in the decompressed text.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Self

import numpy as np
import numpy.typing as npt

from htagraph.model.recording import Repair

__all__ = ["Defect", "RepairLog"]


class Defect(IntEnum):
    """A way in which a file breaks, and (as its sentence) what was done about it."""

    RAW_QUOTE = 0, "raw quote", "a quote inside a text was not escaped; taken as part of the text"
    CONTROL_BYTE = 1, "control byte", "a text held a raw control byte or newline; kept, escaped"
    INVALID_UTF8 = 2, "invalid UTF-8", "bytes that are no UTF-8 were replaced by U+FFFD"
    BAD_ESCAPE = (
        3,
        "bad escape",
        "a text held backslashes that begin no escape; all taken literally",
    )
    NOT_FINITE = 4, "not a number", "NaN or infinity where a number belongs; taken as no value"
    HEX_NUMBER = 5, "hexadecimal number", "a bare hexadecimal number; taken as the integer"
    BARE_WORD = 6, "bare word", "a word without quotes; taken as a text"
    COMMA = 7, "comma", "a comma too many or too few; taken as if there were one"
    TORN = (
        8,
        "torn event",
        "bytes that belong to no whole event (writes interleaved or lost); left out",
    )
    TRUNCATED = 9, "truncated", "the file ends inside an event or value; that one is left out"
    NO_END = 10, "no end", "the closing brackets of the file are missing; closed"
    BYTE_ORDER_MARK = 11, "byte order mark", "the file starts with a UTF-8 byte order mark; skipped"
    MANY_DOCUMENTS = (
        12,
        "several documents",
        "one JSON document follows another in the file; both were read",
    )
    GZIP_NAME = (
        13,
        "gzip by another name",
        "the file is gzip though its name does not say so; decompressed",
    )
    NOT_GZIP = 14, "not gzip", "the file is named as gzip but is plain text; read as text"
    GZIP_TRUNCATED = 15, "gzip truncated", "the compressed data ends early; read up to there"
    GZIP_DAMAGED = 16, "gzip damaged", "the compressed data is damaged; read up to there"
    NUMBER_AS_TEXT = 17, "number as text", "a time stood as text; taken as the number"
    NUMBER_TOO_LARGE = 18, "number out of range", "an integer beyond 64 bits; taken as no value"
    NO_PHASE = 19, "no phase", "an event without a phase (`ph`) that says what it is; left out"
    NO_TIMESTAMP = 20, "no timestamp", "an event without a time that can be read; left out"
    NO_DURATION = 21, "no duration", "a complete event without a duration; taken as 0"
    IMPOSSIBLE_DURATION = (
        22,
        "impossible duration",
        "a duration below zero or over 7 days is unknown; taken as 0",
    )
    ZERO_TIMESTAMP = (
        23,
        "zero timestamp",
        "events at time 0 without duration, among events that start later; set aside",
    )
    NANOSECONDS = (
        24,
        "time in nanoseconds",
        "a time too late to be microseconds; it and its duration taken as nanoseconds",
    )
    BEGIN_ONLY = (
        25,
        "begin without end",
        "an event begins and does not end; ended with the last event of its thread",
    )
    END_ONLY = 26, "end without begin", "an event ends that did not begin; left out"
    BAD_METADATA = (
        27,
        "unreadable metadata",
        "a part of the file outside the events could not be read; left out",
    )
    NO_PLACE = 28, "unnamed thread", "an event without pid or tid; put on a thread named ''"
    FAR_TIME = (
        29,
        "time out of range",
        "an event more than 146 years from 1970, base time included; left out",
    )
    STRAY_TIME = (
        30,
        "stray time",
        "an event more than an hour, and a hundred times their length, from all others; left out",
    )
    STRAY_DURATION = (
        31,
        "stray duration",
        "an event lasts as far beyond all others; its duration is unknown, taken as 0",
    )

    label: str
    sentence: str

    def __new__(cls, code: int, label: str, sentence: str) -> Self:
        """Make a member that carries its label and sentence."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.label = label
        member.sentence = sentence
        return member


_NOWHERE = np.iinfo(np.int64).max


class RepairLog:
    """Counts and first offsets of all repairs of one file, while it is read.

    Examples
    --------
    >>> log = RepairLog()
    >>> log.add(Defect.COMMA, offset=70)
    >>> log.add(Defect.COMMA, offset=12)
    >>> [(repair.kind, repair.n, repair.first_offset) for repair in log.repairs()]
    [('comma', 2, 12)]
    """

    def __init__(self) -> None:
        self._table = self.blank()

    @staticmethod
    def blank() -> npt.NDArray[np.int64]:
        """An empty table of count and first offset per defect, for compiled code to fill."""
        table = np.zeros((len(Defect), 2), dtype=np.int64)
        table[:, 1] = _NOWHERE
        return table

    def add(self, defect: Defect, offset: int = -1, n: int = 1) -> None:
        """Count a repair."""
        if n:
            self._table[defect, 0] += n
            self._table[defect, 1] = min(self._table[defect, 1], offset)

    def once(self, defect: Defect, offset: int) -> None:
        """Count a repair that is made once, wherever it shows first."""
        self.add(defect, offset)
        self._table[defect, 0] = 1

    def merge(self, table: npt.NDArray[np.int64]) -> None:
        """Count what compiled code has counted."""
        self.merge_tables(self._table, table)

    @staticmethod
    def count_in(table: npt.NDArray[np.int64], defect: Defect, offset: int) -> None:
        """Count a repair in a table."""
        table[defect, 0] += 1
        table[defect, 1] = min(table[defect, 1], offset)

    @staticmethod
    def merge_tables(table: npt.NDArray[np.int64], more: npt.NDArray[np.int64]) -> None:
        """Add the counts of one table to another."""
        table[:, 0] += more[:, 0]
        np.minimum(table[:, 1], more[:, 1], out=table[:, 1])

    def count(self, defects: Iterable[Defect]) -> int:
        """How often some repairs were made."""
        return int(self._table[list(defects), 0].sum())

    def repairs(self) -> tuple[Repair, ...]:
        """The repairs made, in the order of `Defect`."""
        return tuple(
            Repair(defect.label, int(n), int(first), defect.sentence)
            for defect, (n, first) in zip(Defect, self._table, strict=True)
            if n
        )
