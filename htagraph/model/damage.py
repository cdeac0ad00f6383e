"""Damage: what a recording lacks or has wrong, and what that does to the answers."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class DamageKind(StrEnum):
    """What is damaged, the worst first: sentences are printed in this order."""

    FAILED_FILE = "failed file"
    CUT_FILE = "cut file"
    CUT_RANK = "cut rank"
    LOST_WORK = "lost device work"
    LOST_LAUNCHES = "lost launches"
    LOST_NODES = "lost graph nodes"
    APART = "rank apart"
    DROPPED_EVENTS = "dropped events"
    LOST_EVENTS = "lost events"
    LOST_TIMES = "lost times"
    OTHER_STEPS = "other steps"
    MISSING_RANKS = "missing ranks"
    UNMATCHED = "unmatched"


ACCEPTED = frozenset({DamageKind.MISSING_RANKS, DamageKind.UNMATCHED})
"""What a capture may lack by choice, or because nothing records it: a check accepts it."""

HOLES = (DamageKind.LOST_WORK, DamageKind.LOST_LAUNCHES, DamageKind.LOST_NODES)
"""What leaves a hole: no path through it is to be trusted."""


class Damage(NamedTuple):
    """One way in which a recording is damaged.

    Parameters
    ----------
    kind : DamageKind
        What is damaged.
    n, n_all : int
        How much of it is damaged: files, events, ranks or collectives, as `said` names them.
    start_ns, end_ns : int, unit=ns
        Where, on the clock of the rank; the whole trace if that is unknown.
    said : str
        What is damaged and what that does to the answer: one sentence, which begins with a small
        letter and ends with a full stop.
    """

    kind: DamageKind
    n: int
    n_all: int
    start_ns: int
    end_ns: int
    said: str

    @property
    def is_accepted(self) -> bool:
        """Whether a check accepts it."""
        return self.kind in ACCEPTED

    def overlaps(self, start_ns: int, end_ns: int) -> bool:
        """Whether it reaches into a window."""
        return self.start_ns <= end_ns and self.end_ns >= start_ns


def damage_in_words(found: Iterable[Damage]) -> tuple[str, ...]:
    """The sentences of damage, the worst kind first.

    Examples
    --------
    >>> damage_in_words([Damage(DamageKind.LOST_EVENTS, 2, 9, 0, 5, "2 of 9 events are lost.")])
    ('2 of 9 events are lost.',)
    """
    ordered = sorted(found, key=lambda one: [*DamageKind].index(one.kind))
    return tuple(dict.fromkeys(one.said[:1].upper() + one.said[1:] for one in ordered))
