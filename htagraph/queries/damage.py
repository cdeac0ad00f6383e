"""What a recording lacks or has wrong, and what that does to the answers."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from htagraph.lookup.damage import damage_of
from htagraph.model.answers import DAMAGE
from htagraph.model.dag import Dag
from htagraph.model.damage import Damage, DamageKind
from htagraph.model.schema import labelled
from htagraph.model.window import Window


def damage(dag: Dag, window: Window) -> pd.DataFrame:
    """What of the window is damaged: events that are lost, times that are wrong."""
    return damage_frame(damage_of(dag, window))


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
