"""Inferred dependencies: what each rests on, so that a reader can judge it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from htagraph.model.edges import EdgeTable
from htagraph.model.rules import Rule


@dataclass(frozen=True)
class Support:
    """Evidence for one inferred dependency between two places of a program.

    A place is a kernel's name with its stream and its position, or a host range.

    Parameters
    ----------
    rule : Rule
        That made the edges.
    source, target : str
        The places: what was waited for, and what waited.
    n_matched : int
        How often the target waited and the source ended where the rule wants it.
    n_all : int
        How often the target waited.
    distance_ns, spread_ns : int, unit=ns
        Median time from the source's end to the target, and the range of those that matched.
    chance : float
        Share of random instants that would have matched as well.
    key : str
        Tells what was learned in the graph of another part of the trace; empty where each part
        learns by itself.
    """

    rule: Rule
    source: str
    target: str
    n_matched: int
    n_all: int
    distance_ns: int
    spread_ns: int
    chance: float
    key: str = ""


class Inferred(NamedTuple):
    """What a pass of inference found.

    Parameters
    ----------
    support : tuple of Support
        One for each pair of places that was learnt; empty where a rule judges every event by
        itself.
    """

    edges: EdgeTable = EdgeTable()
    support: tuple[Support, ...] = ()
