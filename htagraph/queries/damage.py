"""What a recording lacks or has wrong, and what that does to the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pandas as pd

from htagraph.lookup.clock_jumps import clock_jumps
from htagraph.lookup.lost_records import lost_records
from htagraph.lookup.lost_steps import lost_steps
from htagraph.lookup.reader_damage import reader_damage
from htagraph.model.answers import DAMAGE
from htagraph.model.dag import Dag
from htagraph.model.damage import Damage, DamageKind
from htagraph.model.schema import labelled
from htagraph.model.window import Window

__all__ = ["damage", "damage_frame", "damage_of"]

_FINDERS: tuple[Callable[[Dag], Iterable[Damage]], ...] = (
    reader_damage,
    lost_records,
    lost_steps,
    clock_jumps,
)
"""What finds damage, each of the whole trace. To add one: a function in `lookup`, and its place."""


def damage(dag: Dag, window: Window) -> pd.DataFrame:
    """What of the window is damaged: events that are lost, times that are wrong."""
    return damage_frame(damage_of(dag, window))


def damage_of(dag: Dag, window: Window) -> list[Damage]:
    """The same as rows: damage of the trace that reaches into the window."""
    found = (one for finder in _FINDERS for one in finder(dag))
    return [one for one in found if one.overlaps(window.start_ns, window.end_ns)]


def damage_frame(found: Iterable[Damage]) -> pd.DataFrame:
    """Damage as a frame, schema `answers.DAMAGE`."""
    rows = list(found)
    return DAMAGE.frame(
        {
            "kind": labelled([one.kind for one in rows], list(DamageKind)),
            "n": [one.n for one in rows],
            "n_all": [one.n_all for one in rows],
            "start_ns": [one.start_ns for one in rows],
            "end_ns": [one.end_ns for one in rows],
            "consequence": [one.said for one in rows],
        }
    )
