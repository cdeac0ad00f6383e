"""Stretches: time of host threads between two boundaries that is long enough for a wait."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from htagraph.arrays.codes import distinct, gather
from htagraph.compiler.boundaries import Boundaries
from htagraph.compiler.structure import Structure, once
from htagraph.model.arrays import I32, I64, Bools
from htagraph.model.edges import EdgeTable
from htagraph.model.events import EventTable
from htagraph.model.kinds import EdgeKind, among
from htagraph.model.rules import Rule

NUMBER = re.compile(r"#?(?<![a-zA-Z0-9])\d+")
"""A number in a name that differs every time: of a step, or of a thread."""

_USUAL_FACTOR = 2
"""A wait is longer than so many usual delays of launches (chosen)."""


class Stretches(NamedTuple):
    """Stretches of the time of host threads; all of shape (n,), dtype=int64."""

    since: I64
    until: I64
    inside: I64
    """Host event that is innermost, -1 for none."""
    end: I64
    """Position of `until` among the boundaries of host events."""

    @classmethod
    def at(cls, between: Boundaries, first: I64, last: I64 | None = None) -> Stretches:
        """From boundaries, by position, to the next ones of their lanes, or to the last given."""
        end = first + 1 if last is None else last
        columns = (between.node[first], between.node[end], between.inside[end - 1], end)
        return cls(*(column.astype(np.int64) for column in columns))

    def take(self, rows: I64 | Bools) -> Stretches:
        """Some of them, by positions or a mask."""
        return Stretches(*(column[rows] for column in self))


def usual_wait_ns(structure: Structure) -> int:
    """Time below which a stretch is no wait, and a return from one is prompt."""
    return _USUAL_FACTOR * structure.calibration.launch_usual_ns


@once
def long_stretches(structure: Structure) -> Stretches:
    """From each boundary of a host thread to the next, if that is long enough for a wait."""
    between = structure.boundaries
    return Stretches.at(between, between.longer_than(usual_wait_ns(structure)))


def explained_ends(known: EdgeTable) -> I64:
    """Nodes at which a wait ends that is explained: by the device, or by another thread."""
    waits = among(known.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC))
    ends: I64 = known.head[waits | (known.rule == Rule.HANDOFF)].astype(np.int64)
    return ends


def plain_names(events: EventTable) -> I32:
    """Code of each host event's name without numbers; -1 for other events."""
    texts, codes = events.symbols.texts, dict[str, int]()
    of_symbol = np.full(len(texts), -1, dtype=np.int32)
    for symbol in distinct(events.name[events.is_host]).tolist():
        of_symbol[symbol] = codes.setdefault(NUMBER.sub("#", texts[symbol]), len(codes))
    return gather(of_symbol, events.name)
