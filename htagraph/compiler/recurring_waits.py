"""SYNC, learnt: late work that begins where the same work of another stream ended, every time.

In a replayed graph the launch is long past, so what another stream had been given before it says
nothing. But a dependency comes round: whenever this kernel is late, it starts the same time after
the end of that kernel.

::

    stream 7    [A  ][B  ]      [A    ][B ]        [A ][B   ]
    stream 20       |---->[C]        |--->[C]          |----->[C]    C after B: 3 of 3

With kernels back to back on the other stream some end is always near. So the chance level is
counted: the share of random instants of a wait at which the same source had ended the same time
before. A pair is taken if nearly all occurrences match, and if that many would hardly ever match by
chance, over all pairs that were looked at. Beyond the usual gap the distance must be constant where
the wait is not: kernels of fixed length are always the same time apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.chance import log_chance
from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts, last_before
from htagraph.compiler.late_ends import most_overlap, stream_wait_edges_from
from htagraph.compiler.late_starts import LateStarts, ends_before, late_starts, most_used_streams
from htagraph.compiler.places import Places, mixed, work_label
from htagraph.compiler.structure import Structure
from htagraph.model.edges import EdgeTable
from htagraph.model.inference import Inferred, Support
from htagraph.model.rules import Rule

__all__ = ["distant_waits", "recurring_waits"]

I64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_FEWEST = 3
_FEW = 6
_ALL_BUT = 0.8
_FALSE_PAIRS = 1e-4
"""Pairs that chance would yield in a trace, as an expectation."""
_STEADIER = 4
_TIGHTER = 10
_CLEARER = 3
_LONGEST_FACTOR = 32
_N_NEAREST = 4
_USUAL_PERCENTILE = 90

_SAME = (("position", "position"), ("neighbour", "neighbour"), ("name", "name"))
_LEVELS = {
    Rule.RECURRING_IN_REPLAYS: (*_SAME, ("name", "stream")),
    Rule.RECURRING_AT_A_DISTANCE: _SAME,
}
"""Places of what waits and of its source, the finest first; what one explains, the next keeps."""


class _Candidates(NamedTuple):
    """Late work, and work of another stream that ended before its start, or ends a little later.

    Parameters
    ----------
    late : ndarray of shape (n,), dtype=int64
        Position among the late starts.
    source : ndarray of shape (n,), dtype=int64
    distance_ns : ndarray of shape (n,), dtype=int64, unit=ns
        From the source's end to the late start; negative where the end comes late.
    """

    late: I64
    source: I64
    distance_ns: I64

    def take(self, rows: I64 | Bools) -> _Candidates:
        """Some of them, by positions or a mask."""
        return _Candidates(self.late[rows], self.source[rows], self.distance_ns[rows])


class _Pairs(NamedTuple):
    """Pairs of places, and the tightest range of distances that holds enough occurrences.

    Parameters
    ----------
    target, source : ndarray of shape (n,), dtype=int64
        Places.
    n_all : ndarray of shape (n,), dtype=int64
        How often the target is late.
    low_ns, high_ns : ndarray of shape (n,), dtype=int64, unit=ns
        The range of distances.
    starts : ndarray of shape (n,), dtype=int64
        Where the occurrences of each pair begin in `row`.
    row, pair : ndarray of shape (k,), dtype=int64
        Candidates that match, by pair, and the pair of each.
    """

    target: I64
    source: I64
    n_all: I64
    low_ns: I64
    high_ns: I64
    starts: I64
    row: I64
    pair: I64

    def only(self, wanted: Bools) -> _Pairs:
        """Some of the pairs."""
        rows = wanted[self.pair]
        pair = (np.cumsum(wanted) - 1)[self.pair[rows]]
        return _Pairs(
            self.target[wanted],
            self.source[wanted],
            self.n_all[wanted],
            self.low_ns[wanted],
            self.high_ns[wanted],
            np.flatnonzero(group_starts(pair)),
            self.row[rows],
            pair,
        )

    @property
    def n_matched(self) -> I64:
        """How often the distance is in the range."""
        n_matched: I64 = np.minimum(np.bincount(self.pair, minlength=len(self.source)), self.n_all)
        return n_matched


def _candidates(structure: Structure, late: LateStarts, n_nearest: int) -> _Candidates:
    """For each late start and each other stream: what ended last before it, or right after it.

    A stream can only be made to wait for what was launched before its own work, and what ended
    before that was ready did not make it wait.
    """
    events, launched_ns = structure.events, structure.launch_time_ns
    start_ns, most = events.ts_ns[late.event], most_overlap(structure)
    since_ns = gather(events.ts_ns, structure.launch[late.event], np.iinfo(np.int64).max - 1)
    device = events.device[structure.queue[structure.queue_starts]]
    parts = []
    for queue in most_used_streams(structure).tolist():
        other = structure.queue_id[late.event] != queue
        other &= events.device[late.event] == device[queue]
        given = structure.covered_on(queue, since_ns + 1)
        until_ns = np.minimum(start_ns, gather(events.end_ns, given, np.iinfo(np.int64).min))
        found = ends_before(structure, queue, until_ns, n_nearest)
        ending = ends_before(structure, queue, start_ns + most, 1)
        late_end = (ending[0] != found[0]) & (gather(launched_ns, ending[0], 0) <= since_ns)
        found = np.concatenate([np.where(late_end, ending, -1), found])
        order, row = np.nonzero((found >= 0) & other)
        source = found[order, row]
        distance_ns = start_ns[row] - events.end_ns[source]
        fits = (events.ts_ns[source] < start_ns[row]) & (distance_ns <= late.wait_ns[row])
        parts.append(_Candidates(row[fits], source[fits], distance_ns[fits]))
    return _Candidates(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _worth_a_look(
    candidates: _Candidates, target: I64, source: I64, usual_ns: int | None
) -> tuple[Bools, int]:
    """Candidates of pairs that come often enough, and how many such pairs there are.

    Where targets are to start within a time after their sources, nearly all must.
    """
    _, group, counts = np.unique(mixed(source, target), return_inverse=True, return_counts=True)
    often = counts >= _FEWEST
    n_tried = int(often.sum())
    if usual_ns is not None:
        near = np.bincount(group[candidates.distance_ns <= usual_ns], minlength=len(counts))
        # A late start may have two candidates of one place.
        often &= 2 * near >= _ALL_BUT * counts
    return often[group], n_tried


def _tightest(
    candidates: _Candidates, target: I64, source: I64, n_all: I64, resolution_ns: int
) -> _Pairs:
    """Of each pair of places, the narrowest range of distances that nearly all targets have."""
    late, distance_ns = candidates.late, candidates.distance_ns
    rows = np.lexsort((distance_ns, source, target))
    starts = group_starts(target[rows], source[rows])
    group = np.cumsum(starts) - 1
    ends = np.append(np.flatnonzero(starts)[1:], len(rows))
    # A late start may have two candidates of one place; it is one occurrence.
    once = np.unique(group * (int(late.max(initial=0)) + 1) + late[rows], return_index=True)[1]
    n_pair = np.bincount(group[once])[group]
    wanted = np.maximum(np.ceil(_ALL_BUT * n_pair).astype(np.int64), _FEWEST)
    last = np.arange(len(rows)) + wanted - 1
    fits = np.flatnonzero(last < ends[group])
    low, high = distance_ns[rows[fits]], distance_ns[rows[last[fits]]]
    # Of ranges of one width the one nearest to the end of the source.
    order = np.lexsort((np.abs(low), high - low, group[fits]))
    best = fits[order[group_starts(group[fits[order]])]]
    # Others may lie as far beyond it as it is wide.
    low, high = distance_ns[rows[best]], distance_ns[rows[last[best]]]
    width = np.maximum(high - low, resolution_ns)
    where = group[best]
    first = last_before(group, distance_ns[rows], where, low - width) + 1
    first = np.maximum(first, np.searchsorted(group, where))
    until = last_before(group, distance_ns[rows], where, high + width + 1)
    counts = until - first + 1
    begins = np.cumsum(counts) - counts
    pair = np.repeat(np.arange(len(best)), counts)
    row = rows[first[pair] + np.arange(len(pair)) - begins[pair]]
    return _Pairs(
        target[rows[best]],
        source[rows[best]],
        n_all[target[rows[best]]],
        distance_ns[rows[first]],
        distance_ns[rows[until]],
        begins,
        row,
        pair,
    )


def _n_ends(structure: Structure, place: I64, of: I64, before_ns: I64) -> I64:
    """How many events at each place ended before each time."""
    events, device = structure.events, structure.queue
    device = device[np.isin(place[device], of)]
    rows = device[np.lexsort((events.end_ns[device], place[device]))]
    first = np.searchsorted(place[rows], of)
    last = last_before(place[rows], events.end_ns[rows], of, before_ns)
    return np.where(last >= 0, last - first + 1, 0)


def _chances(structure: Structure, wait: LateStarts, place: I64, pairs: _Pairs) -> Floats:
    """Share of random instants of its waits at which the source of each pair ended as far back.

    `wait` has a row for each of ``pairs.row``.
    """
    low, high, source = (
        column[pairs.pair] for column in (pairs.low_ns, pairs.high_ns, pairs.source)
    )
    until_ns = wait.ready_ns + wait.wait_ns - low + 1
    n_ends = _n_ends(structure, place, source, until_ns)
    n_ends -= _n_ends(structure, place, source, wait.ready_ns - high)
    width = np.maximum(high - low, structure.resolution_ns)
    share = np.minimum(n_ends * width / np.maximum(wait.wait_ns, 1), 1)
    return np.bincount(pairs.pair, share) / np.bincount(pairs.pair)


def _is_right_after(structure: Structure, pairs: _Pairs, usual_ns: int) -> Bools:
    """Whether the targets of each pair start within what is usual after their sources ended."""
    is_tight = pairs.high_ns - pairs.low_ns <= structure.calibration.launch_floor_ns
    is_after: Bools = is_tight & (pairs.high_ns <= usual_ns)
    return is_after


def _is_steady(structure: Structure, wait: LateStarts, pairs: _Pairs, width_ns: I64) -> Bools:
    """Whether the distance of each pair varies less than the wait, and than any other distance.

    Of works that follow each other the source has the steadiest end; those after it add their own.
    So a source is taken only where that is clear, and of few occurrences only where all match.
    """
    by_length = wait.wait_ns[np.lexsort((wait.wait_ns, pairs.pair))]
    ends = np.append(pairs.starts[1:], len(pairs.pair)) - 1
    varied = by_length[ends] - by_length[pairs.starts]
    order = np.lexsort((width_ns, pairs.target))
    first = group_starts(pairs.target[order])
    width = width_ns[order]
    is_clear = np.append(first[1:] | (_CLEARER * width[:-1] <= width[1:]), True)
    steadiest = np.zeros(len(order), dtype=bool)
    steadiest[order] = first & is_clear
    steadiest &= (pairs.n_matched == pairs.n_all) | (pairs.n_matched >= _FEW)
    most = _LONGEST_FACTOR * structure.calibration.launch_floor_ns
    steady: Bools = steadiest & (_STEADIER * width_ns <= varied)
    return steady & (_TIGHTER * width_ns <= pairs.high_ns) & (pairs.high_ns <= most)


def _fits(
    structure: Structure, wait: LateStarts, pairs: _Pairs, rule: Rule, usual_ns: int
) -> Bools:
    """Whether each pair is as a rule wants it: right after, or at a steady distance."""
    if rule is Rule.RECURRING_IN_REPLAYS:
        return _is_right_after(structure, pairs, usual_ns)
    width = np.maximum(pairs.high_ns - pairs.low_ns, structure.resolution_ns)
    return _is_steady(structure, wait, pairs, width)


def _is_unlikely(
    structure: Structure, wait: LateStarts, chance: Floats, pairs: _Pairs, n_tried: int
) -> Bools:
    """Whether each of some pairs, out of all that were tried, is far above chance."""
    width = np.maximum(pairs.high_ns - pairs.low_ns, structure.resolution_ns)
    mean = np.bincount(pairs.pair, wait.wait_ns) / np.bincount(pairs.pair)
    # As many ranges as narrow as this one could have been found.
    n_looks = n_tried * np.maximum(mean / width, 1)
    log_chances = log_chance(pairs.n_matched, pairs.n_all, chance)
    unlikely: Bools = log_chances < np.log(_FALSE_PAIRS / n_looks)
    return unlikely


class _Found(NamedTuple):
    """Candidates that are dependencies, each with its lag, and the number of its pair."""

    candidates: _Candidates
    lag_ns: I64
    pair: I64
    support: tuple[Support, ...]

    def only(self, left: Bools) -> _Found:
        """Those of some late starts, with the support of the pairs that still explain one."""
        rows = left[self.candidates.late]
        used, pair = np.unique(self.pair[rows], return_inverse=True)
        return _Found(
            self.candidates.take(rows),
            self.lag_ns[rows],
            pair,
            tuple(self.support[one] for one in used.tolist()),
        )


def _learn(  # noqa: PLR0917  a rule and all that it is asked of
    structure: Structure,
    late: LateStarts,
    candidates: _Candidates,
    places: tuple[I64, I64],
    rule: Rule,
    usual_ns: int,
) -> _Found:
    """Candidates that are dependencies by one rule and one sort of places."""
    target_at, source_at = places
    _, target = np.unique(target_at[late.event], return_inverse=True)
    n_all = np.bincount(target, minlength=1)
    wanted, n_tried = _worth_a_look(
        candidates,
        target[candidates.late],
        source_at[candidates.source],
        usual_ns if rule is Rule.RECURRING_IN_REPLAYS else None,
    )
    candidates = candidates.take(wanted)
    targets, source = target[candidates.late], source_at[candidates.source]
    pairs = _tightest(candidates, targets, source, n_all, structure.resolution_ns)
    if len(pairs.row):
        wait = late.take(candidates.late[pairs.row])
        pairs = pairs.only(_fits(structure, wait, pairs, rule, usual_ns))
    if not len(pairs.row):
        none = np.empty(0, dtype=np.int64)
        return _Found(candidates.take(none), none, none, ())
    wait = late.take(candidates.late[pairs.row])
    chance = _chances(structure, wait, source_at, pairs)
    taken = _is_unlikely(structure, wait, chance, pairs, n_tried)[pairs.pair]
    row, pair = pairs.row[taken], pairs.pair[taken]
    # The nearest of several sources.
    order = np.lexsort((np.abs(candidates.distance_ns[row]), candidates.late[row]))
    order = order[group_starts(candidates.late[row[order]])]
    row, pair = row[order], pair[order]
    used, first, number = np.unique(pair, return_index=True, return_inverse=True)
    support = tuple(
        Support(rule, work_label(structure, source), work_label(structure, waiter), *numbers)
        for source, waiter, *numbers in zip(
            candidates.source[row[first]].tolist(),
            late.event[candidates.late[row[first]]].tolist(),
            pairs.n_matched[used].tolist(),
            pairs.n_all[used].tolist(),
            ((pairs.low_ns + pairs.high_ns) // 2)[used].tolist(),
            (pairs.high_ns - pairs.low_ns)[used].tolist(),
            chance[used].tolist(),
            strict=True,
        )
    )
    lag_ns = pairs.low_ns[pair] if rule is Rule.RECURRING_AT_A_DISTANCE else np.zeros_like(pair)
    return _Found(candidates.take(row), lag_ns, number, support)


def _learnt(
    structure: Structure, late: LateStarts, rule: Rule, places: Places, usual_ns: int
) -> Inferred:
    """Edges to late starts by one rule, by the finest sort of places that tells."""
    candidates = _candidates(structure, late, 1)
    if rule is Rule.RECURRING_AT_A_DISTANCE:
        # Where something ended right before, something far says nothing.
        is_far = np.ones(len(late.event), dtype=bool)
        is_far[candidates.late[candidates.distance_ns <= usual_ns]] = False
        far = np.flatnonzero(is_far)
        found = _candidates(structure, late.take(far), _N_NEAREST)
        longest = 2 * _LONGEST_FACTOR * structure.calibration.launch_floor_ns
        found = found.take(found.distance_ns <= longest)
        candidates = found._replace(late=far[found.late])
    left = np.ones(len(late.event), dtype=bool)
    support: tuple[Support, ...] = ()
    parts = []
    for target, source in _LEVELS[rule]:
        level = getattr(places, target), getattr(places, source)
        learnt = _learn(structure, late, candidates, level, rule, usual_ns).only(left)
        waiter, waited = late.event[learnt.candidates.late], learnt.candidates.source
        parts.append(stream_wait_edges_from(structure, rule, waited, waiter, lag_ns=learnt.lag_ns))
        support += learnt.support
        left[learnt.candidates.late] = False
    return Inferred(EdgeTable.concat(parts), support)


def _usual_gap(structure: Structure, by_itself: EdgeTable) -> int:
    """Time within which work starts after what it waits for: twice the launch floor, or as seen."""
    times, usual = structure.events.node_ts_ns, structure.calibration.stream_usual_ns
    if len(by_itself) < _FEWEST:
        return usual
    gap_ns = times[by_itself.head] - structure.events.end_ns[by_itself.tail >> 1]
    return max(usual, int(np.percentile(gap_ns, _USUAL_PERCENTILE, method="lower")))


def _recurring(structure: Structure, known: EdgeTable, rule: Rule) -> Inferred:
    """Edges by one rule to what is late by all edges so far.

    What started right after all that was given before is looked at as well, for it is one more
    occurrence; then once more without, for it may be one of another sort.
    """
    by_itself = known.take(known.rule == Rule.ENDED_RIGHT_BEFORE)
    usual_ns = _usual_gap(structure, by_itself)
    edges, places = EdgeTable(), Places(structure)
    support: tuple[Support, ...] = ()
    others = known.take(known.rule != Rule.ENDED_RIGHT_BEFORE)
    for before in (others, known) if len(by_itself) else (known,):
        late = late_starts(structure, EdgeTable.concat([before, edges]))
        if len(late.event) < _FEWEST:
            continue
        found = _learnt(structure, late, rule, places, usual_ns)
        edges, support = EdgeTable.concat([edges, found.edges]), support + found.support
    return Inferred(edges.take(~_is_among(edges, by_itself)), support)


def recurring_waits(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges from work of one stream to late work of another that always starts right after it."""
    return _recurring(structure, known, Rule.RECURRING_IN_REPLAYS)


def distant_waits(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges from work of one stream to late work of another that starts a constant time after it.

    The last resort among streams: such a distance says less than an end right before, or room on
    the device.
    """
    return _recurring(structure, known, Rule.RECURRING_AT_A_DISTANCE)


def _is_among(edges: EdgeTable, others: EdgeTable) -> Bools:
    """Whether each edge joins two nodes that another one joins."""
    mine, theirs = (table.tail.astype(np.int64) << 32 | table.head for table in (edges, others))
    return np.isin(mine, theirs)
