"""What recurs: waits at one place of a program that end, every time, behind the same thing.

One wait that ends soon after something else may be chance. It is a dependency if nearly all waits
at that place end soon after something of one sort, and chance would hardly have it so. The chance
level is counted: the share of random instants of a wait that lie as near behind a thing of that
sort. That so many waits match is a binomial tail, times the number of pairs of places tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.chance import log_chance
from htagraph.algorithms.codes import is_in
from htagraph.algorithms.matching import group_starts, last_before
from htagraph.model.inference import Support
from htagraph.model.rules import Rule

__all__ = ["Candidates", "Sources", "Waits", "recurring"]

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_FEWEST = 3
"""Waits at a place that show nothing yet if there are fewer (chosen)."""
_NEARLY_ALL = 0.9
"""Share of the waits at a place that must match; the others were held up by something else."""
_MOST_CHANCE = 0.2
"""Chance of one match beyond which no number of them is evidence: the source is everywhere
(chosen; ``tests/compiler/test_recurring_waits.py``)."""
_FALSE_PAIRS = 1e-4
"""Pairs of places that chance would yield in a trace, as an expectation (chosen; the same test)."""


class Waits(NamedTuple):
    """Waits, each with the number of its place; all of shape (n,), dtype=int64."""

    until: I64
    """Node at which the wait ends."""
    since_ns: I64
    until_ns: I64
    place: I64


class Candidates(NamedTuple):
    """Nodes that may have ended waits; all of shape (n,), dtype=int64."""

    wait: I64
    """Row of the wait."""
    source: I64
    distance_ns: I64
    """From the source to the end of the wait; negative if the source's time was taken late."""

    def take(self, rows: I64 | Bools) -> Candidates:
        """Some of them, by positions or a mask."""
        return Candidates(*(column[rows] for column in self))


class Sources(NamedTuple):
    """All nodes that may end waits, near one or not, with the numbers of their places."""

    node: I64
    ts_ns: I64
    place: I64

    def only(self, places: I64) -> Sources:
        """Those at some places, by place and time."""
        rows = np.flatnonzero(is_in(self.place, places))
        rows = rows[np.lexsort((self.ts_ns[rows], self.place[rows]))]
        return Sources(self.node[rows], self.ts_ns[rows], self.place[rows])


class _Pairs(NamedTuple):
    """Candidates by pair of places: a place of waits, and one of sources."""

    found: Candidates
    source: I64
    """Place of the source of each candidate."""
    number: I64
    """Number of the pair of each candidate; ascending."""
    n_all: I64
    """Waits at the place of each pair, matched or not."""


def _pairs(waits: Waits, found: Candidates, source: I64) -> _Pairs:
    """Of each wait and place of sources the nearest candidate, where a pair comes often enough."""
    at = waits.place[found.wait]
    order = np.lexsort((np.abs(found.distance_ns), found.wait, source, at))
    order = order[group_starts(at[order], source[order], found.wait[order])]
    found, source, at = found.take(order), source[order], at[order]
    starts = group_starts(at, source)
    number = np.cumsum(starts) - 1
    n_all = np.bincount(waits.place, minlength=1)[at[starts]]
    n_matched = np.bincount(number, minlength=len(n_all))
    often = (n_matched >= _FEWEST) & (n_matched >= _NEARLY_ALL * n_all)
    rows = often[number]
    number = (np.cumsum(often) - 1)[number[rows]]
    return _Pairs(found.take(rows), source[rows], number, n_all[often])


def _chances(waits: Waits, pairs: _Pairs, sources: Sources) -> npt.NDArray[np.float64]:
    """Share of random instants of the waits of each pair that would match as well."""
    until_ns, since_ns = waits.until_ns[pairs.found.wait], waits.since_ns[pairs.found.wait]
    width_ns = np.zeros(len(pairs.n_all), dtype=np.int64)
    np.maximum.at(width_ns, pairs.number, np.maximum(np.abs(pairs.found.distance_ns), 1))
    known = sources.only(pairs.source)
    first = np.searchsorted(known.place, pairs.source) - 1
    behind = last_before(known.place, known.ts_ns, pairs.source, until_ns + 1)
    before = last_before(known.place, known.ts_ns, pairs.source, since_ns + 1)
    n_sources = np.maximum(behind - np.maximum(before, first), 1)
    share = np.minimum(n_sources * width_ns[pairs.number] / np.maximum(until_ns - since_ns, 1), 1)
    chances: npt.NDArray[np.float64] = np.bincount(pairs.number, share) / np.bincount(pairs.number)
    return chances


def recurring(
    rule: Rule,
    waits: Waits,
    found: Candidates,
    sources: tuple[Sources, I64],
    label: Callable[[int], str],
) -> tuple[Candidates, tuple[Support, ...]]:
    """Candidates that recur, the nearest of each wait, and what they rest on.

    Parameters
    ----------
    sources : tuple of Sources and ndarray of shape (n_candidates,), dtype=int64
        And the place of the source of each candidate.
    label : callable
        A node in words.
    """
    pairs = _pairs(waits, found, sources[1])
    if not len(pairs.number):
        return pairs.found, ()
    n_matched = np.bincount(pairs.number)
    chance = _chances(waits, pairs, sources[0])
    unlikely = log_chance(n_matched, pairs.n_all, chance) < np.log(_FALSE_PAIRS / len(chance))
    rows = np.flatnonzero((unlikely & (chance <= _MOST_CHANCE))[pairs.number])
    distance_ns = pairs.found.distance_ns
    rows = rows[np.lexsort((np.abs(distance_ns[rows]), pairs.found.wait[rows]))]
    rows = rows[group_starts(pairs.found.wait[rows])]
    support = []
    for number in np.unique(pairs.number[rows]).tolist():
        first, behind = np.searchsorted(pairs.number, [number, number + 1]).tolist()
        support.append(
            Support(
                rule,
                label(int(pairs.found.source[first])),
                label(int(waits.until[pairs.found.wait[first]])),
                int(n_matched[number]),
                int(pairs.n_all[number]),
                int(np.median(distance_ns[first:behind])),
                int(np.ptp(distance_ns[first:behind])),
                float(chance[number]),
            )
        )
    return pairs.found.take(rows), tuple(support)
