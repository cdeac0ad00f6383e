"""What recurs: waits at one place of a program that end, every time, behind the same thing.

One wait that ends soon after something else may be chance. It is a dependency if nearly all waits
at that place end soon after something of one sort, and chance would hardly have it so. The chance
level is counted: the share of random instants of a wait that lie as near behind a thing of that
sort. That so many waits match is a binomial tail, times the number of pairs of places tried.

How likely it is that so many of so many match by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.arrays.codes import as_narrow, is_in, n_alike
from htagraph.arrays.matching import group_starts, last_before
from htagraph.model.arrays import F64, I64, Bools
from htagraph.model.edges import Support
from htagraph.model.rules import Rule


def log_chance(n_matched: npt.ArrayLike, n_all: npt.ArrayLike, share: npt.ArrayLike) -> F64:
    """Upper bound of the log of the chance that at least `n_matched` of `n_all` match.

    Chernoff's bound, ``-n * KL(n_matched / n || share)`` (Hoeffding 1963, theorem 1); 0 where no
    more match than expected. `share` is the chance of a single match.
    """
    matched, count = np.asarray(n_matched, dtype=float), np.asarray(n_all, dtype=float)
    chance = np.clip(np.asarray(share, dtype=float), 1e-12, 1.0)
    found = matched / np.maximum(count, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        hits = np.where(found > 0, found * np.log(found / chance), 0.0)
        misses = np.where(found < 1, (1 - found) * np.log((1 - found) / (1 - chance)), 0.0)
    out: F64 = np.where(found > chance, -count * (hits + misses), 0.0)
    return out


_FEWEST = 2
"""Waits of device work at a place that show nothing yet if there are fewer. Two do if they are
long: of 8 ms each, 3 us behind a collective (``tests/compiler/test_waits.py``)."""
_FEWEST_OF_THREADS = 3
"""The same of threads, which may keep time by themselves: two cannot show that they do not (chosen;
``tests/compiler/test_worker_calls.py``)."""
_NEARLY_ALL = 0.9
"""Share of the waits at a place that must match; the others were held up by something else."""
MOST_CHANCE = 0.2
"""Chance of one match beyond which no number of them is evidence: the source is everywhere
(chosen; ``tests/compiler/test_waits.py``)."""
_FEWEST_PERIODS = 4
"""Periods of threads that show a rhythm; of fewer, their spread is chance (chosen;
``tests/compiler/test_worker_calls.py``)."""
_CLEARLY = 2
"""Times by which waits vary more than the distance from what ended them. Where nothing did, they
vary as much or less; waits of real threads on a busy machine vary 3 to 170 times more. At 1.5, one
of 60 pairs of simulated threads at one rhythm passes (the same test)."""
_FALSE_PAIRS = 1e-4
"""Pairs of places that chance would yield in a trace, as an expectation (chosen; the same test)."""


class Waits(NamedTuple):
    """Waits, each with the number of its place; all of shape (n,), dtype=int64."""

    until: I64
    """What ends the wait: a node, or a position of one."""
    since_ns: I64
    until_ns: I64
    place: I64

    def take(self, rows: I64 | Bools) -> Waits:
        """Some of them, by positions or a mask."""
        return Waits(*(column[rows] for column in self))


class Candidates(NamedTuple):
    """What may have ended waits, nodes or positions of nodes; all of shape (n,), dtype=int64."""

    wait: I64
    """Row of the wait."""
    source: I64
    distance_ns: I64
    """From the source to the end of the wait; negative if the source's time was taken late."""

    def take(self, rows: I64 | Bools) -> Candidates:
        """Some of them, by positions or a mask."""
        return Candidates(*(column[rows] for column in self))


class Sources(NamedTuple):
    """All that may end waits, near one or not, with the numbers of their places."""

    ts_ns: I64
    place: I64
    reach_ns: I64
    """How long after it a wait that ends may be matched with it."""

    @classmethod
    def of(cls, ts_ns: I64, place: I64) -> Sources:
        """Sources that reach any distance."""
        return cls(ts_ns, place, np.full(len(ts_ns), np.iinfo(np.int64).max))

    def only(self, places: I64) -> Sources:
        """Those at some places, by place and time."""
        rows = np.flatnonzero(is_in(self.place, places))
        rows = rows[np.lexsort((self.ts_ns[rows], self.place[rows]))]
        return Sources(self.ts_ns[rows], self.place[rows], self.reach_ns[rows])


class _Pairs(NamedTuple):
    """Candidates by pair of places: a place of waits, and one of sources."""

    found: Candidates
    source: I64
    """Place of the source of each candidate."""
    number: I64
    """Number of the pair of each candidate; ascending."""
    n_all: I64
    """Waits at the place of each pair, matched or not."""

    def only(self, chosen: Bools) -> _Pairs:
        """Some pairs."""
        rows = chosen[self.number]
        number = (np.cumsum(chosen) - 1)[self.number[rows]]
        return _Pairs(self.found.take(rows), self.source[rows], number, self.n_all[chosen])

    @property
    def n_matched(self) -> I64:
        """Waits of each pair that match."""
        return np.bincount(self.number, minlength=len(self.n_all))

    @property
    def width_ns(self) -> I64:
        """Longest distance of each pair."""
        width_ns = np.ones(len(self.n_all), dtype=np.int64)
        np.maximum.at(width_ns, self.number, np.abs(self.found.distance_ns))
        return width_ns


def _first_of_least(values: I64, starts: Bools) -> I64:
    """Of each group of rows, the first with the least value."""
    if not len(values):
        return np.empty(0, dtype=np.int64)
    group = np.cumsum(starts) - 1
    least = np.flatnonzero(values == np.minimum.reduceat(values, np.flatnonzero(starts))[group])
    return least[group_starts(group[least])]


def _pairs(waits: Waits, found: Candidates, source: I64, fewest: int) -> _Pairs:
    """Of each wait and place of sources the nearest candidate, where a pair comes often enough."""
    n_waits = np.bincount(waits.place, minlength=1)
    at = waits.place[found.wait]
    pair = at * (int(source.max(initial=0)) + 1) + source
    # A wait may have several candidates of a pair: that many match at most.
    some = np.flatnonzero(n_alike(pair) >= np.maximum(_NEARLY_ALL * n_waits[at], fewest))
    some = some[np.lexsort((as_narrow(found.wait[some]), as_narrow(pair[some])))]
    order = some[
        _first_of_least(np.abs(found.distance_ns[some]), group_starts(pair[some], found.wait[some]))
    ]
    starts = group_starts(pair[order])
    number = np.cumsum(starts) - 1
    pairs = _Pairs(found.take(order), source[order], number, n_waits[at[order][starts]])
    n_matched = pairs.n_matched
    return pairs.only((n_matched >= fewest) & (n_matched >= _NEARLY_ALL * pairs.n_all))


def _near_ns(waits: Waits, pairs: _Pairs, known: Sources) -> I64:
    """How much of the wait of each candidate is as near behind a source of its pair."""
    until_ns, since_ns = waits.until_ns[pairs.found.wait], waits.since_ns[pairs.found.wait]
    width_ns = pairs.width_ns
    first = np.searchsorted(known.place, pairs.source) - 1
    behind = np.maximum(last_before(known.place, known.ts_ns, pairs.source, until_ns + 1), first)
    before = np.maximum(last_before(known.place, known.ts_ns, pairs.source, since_ns + 1), first)
    near_ns = np.empty(len(until_ns), dtype=np.int64)
    bounds = np.append(0, np.cumsum(pairs.n_matched)).tolist()
    places = pairs.source[bounds[:-1]]
    starts, stops = (np.searchsorted(known.place, places, side) for side in ("left", "right"))
    for (begin, end), start, stop, width in zip(
        pairwise(bounds), starts.tolist(), stops.tolist(), width_ns.tolist(), strict=True
    ):
        total = np.append(0, np.cumsum(np.minimum(known.reach_ns[start:stop], width)))
        one, other = (side[begin:end] - start + 1 for side in (behind, before))
        near_ns[begin:end] = total[one] - total[other]
    return near_ns


def _chances(waits: Waits, pairs: _Pairs, near_ns: I64) -> F64:
    """Share of random instants of the waits of each pair that would match as well."""
    wait_ns = (waits.until_ns - waits.since_ns)[pairs.found.wait]
    near_ns = np.maximum(near_ns, pairs.width_ns[pairs.number])
    share = np.minimum(near_ns / np.maximum(wait_ns, 1), 1)
    chances: F64 = np.bincount(pairs.number, share) / pairs.n_matched
    return chances


def _is_evidence(pairs: _Pairs, chance: F64, false_share: float) -> Bools:
    """Whether chance would hardly yield each pair."""
    unlikely = log_chance(pairs.n_matched, pairs.n_all, chance) < np.log(false_share)
    evidence: Bools = unlikely & (chance <= MOST_CHANCE)
    return evidence


def _medians(number: I64, values: I64, n: int) -> I64:
    """Median of the values of each of some groups, by number."""
    ordered = np.append(values[np.lexsort((values, number))], 0)  # the last is of empty groups
    behind = np.cumsum(np.bincount(number, minlength=n))
    medians: I64 = ordered[(np.append(0, behind[:-1]) + behind) // 2]
    return medians


def _spreads(number: I64, values: I64, n: int) -> I64:
    """Median distance of the values of each group from their median."""
    return _medians(number, np.abs(values - _medians(number, values, n)[number]), n)


def _keep_time(waits: Waits, pairs: _Pairs, thread: npt.NDArray[np.integer]) -> Bools:
    """Whether the waits of each pair follow a rhythm of their threads, not the source.

    A thread that continues every 10 ms is always as far behind another one that does. So the
    distance from the source must vary clearly less than the time since the thread's last wait, and
    than the wait: as much as that it varies if the source is regular, too.
    """
    of, number, n = pairs.found.wait, pairs.number, len(pairs.n_all)
    order = np.lexsort((waits.until_ns[of], thread[of], number))
    of, distance_ns = of[order], pairs.found.distance_ns[order]
    until_ns, wait_ns = waits.until_ns[of], (waits.until_ns - waits.since_ns)[of]
    again = np.flatnonzero((np.diff(number) == 0) & (np.diff(thread[of]) == 0))
    moved_ns, period_ns = np.diff(distance_ns)[again], np.diff(until_ns)[again]
    often = number[again]
    keeps = _CLEARLY * _spreads(often, moved_ns, n) > _spreads(often, period_ns, n)
    keeps |= _CLEARLY * _spreads(number, distance_ns, n) > _spreads(number, wait_ns, n)
    return keeps & (np.bincount(often, minlength=n) >= _FEWEST_PERIODS)


def recurring(
    rule: Rule,
    waits: Waits,
    found: Candidates,
    sources: tuple[Callable[[I64], Sources], I64],
    label: Callable[[int], str],
    *,
    n_ways: int = 1,
    thread: I64 | None = None,
) -> tuple[Candidates, tuple[Support, ...]]:
    """Candidates that recur, the nearest of each wait, and what they rest on.

    `sources` of shape (n_candidates,): `Sources.only`, which is called if there may be evidence,
    and the place of the source of each candidate. `label`: a source, or what `Waits.until` names,
    in words. `n_ways`: how often each source is listed; a pair that is tried in two ways is one.
    `thread` of shape (n_waits,): thread of each wait, where threads may have a rhythm of their own.
    """
    fewest = _FEWEST if thread is None else _FEWEST_OF_THREADS
    pairs = _pairs(waits, found, sources[1], fewest)
    false_share = _FALSE_PAIRS * n_ways / max(len(pairs.n_all), 1)
    # With one source in each wait, most pairs are no evidence already.
    least = _chances(waits, pairs, np.zeros(len(pairs.number), dtype=np.int64))
    pairs = pairs.only(_is_evidence(pairs, least, false_share))
    if not len(pairs.number):
        return pairs.found, ()
    chance = _chances(waits, pairs, _near_ns(waits, pairs, sources[0](pairs.source)))
    recurs = _is_evidence(pairs, chance, false_share)
    pairs, chance = pairs.only(recurs), chance[recurs]
    distance_ns = pairs.found.distance_ns
    rows = np.lexsort((np.abs(distance_ns), pairs.found.wait))
    rows = rows[group_starts(pairs.found.wait[rows])]
    if thread is not None:
        rows = rows[~_keep_time(waits, pairs, thread)[pairs.number[rows]]]
    support = []
    for number in np.unique(pairs.number[rows]).tolist():
        first, behind = np.searchsorted(pairs.number, [number, number + 1]).tolist()
        source = label(int(pairs.found.source[first]))
        target = label(int(waits.until[pairs.found.wait[first]]))
        support.append(
            Support(
                rule,
                source,
                target,
                int(pairs.n_matched[number]),
                int(pairs.n_all[number]),
                int(np.median(distance_ns[first:behind])),
                int(np.ptp(distance_ns[first:behind])),
                float(chance[number]),
                _key(source, target),
            )
        )
    return pairs.found.take(rows), tuple(support)


def _key(source: str, target: str) -> str:
    """What tells a pair in the graph of another part."""
    return f"{source} > {target}"


def learnt_pairs(
    waits: Waits,
    found: Candidates,
    source: I64,
    label: Callable[[int], str],
    keys: frozenset[str],
) -> Candidates:
    """Candidates of pairs that all of a trace has shown to recur, the nearest of each wait."""
    pair = waits.place[found.wait] * (int(source.max(initial=0)) + 1) + source
    _, first, number = np.unique(pair, return_index=True, return_inverse=True)
    nodes = zip(found.source[first].tolist(), waits.until[found.wait[first]].tolist(), strict=True)
    recurs = np.array([_key(label(a), label(b)) in keys for a, b in nodes], dtype=bool)
    found = found.take(recurs[number])
    rows = np.lexsort((np.abs(found.distance_ns), found.wait))
    return found.take(rows[group_starts(found.wait[rows])])
