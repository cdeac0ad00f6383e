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

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.chance import log_chance
from htagraph.algorithms.matching import group_starts
from htagraph.compiler.late_ends import most_overlap, resolution_ns, stream_wait_edges_from
from htagraph.compiler.late_starts import LateStarts, late_starts, nearest_ends
from htagraph.compiler.places import by_name, by_neighbour, by_position, by_stream, work_label
from htagraph.compiler.structure import Structure
from htagraph.model.edges import EdgeTable
from htagraph.model.inference import Inferred, Support
from htagraph.model.rules import Rule

__all__ = ["recurring_waits"]

I64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Place = Callable[[Structure], I64]

_FEWEST = 3
_ALL_BUT = 0.8
_FALSE_PAIRS = 1e-4
"""Pairs that chance would yield in a trace, as an expectation."""
_STEADIER = 4
_PART_OF_WAIT = 4

_LEVELS: tuple[tuple[Place, Place], ...] = (
    (by_position, by_position),
    (by_neighbour, by_neighbour),
    (by_name, by_name),
    (by_name, by_stream),
)
"""Places of what waits and of its source, the finest first; what one explains, the next leaves."""


class _Candidates(NamedTuple):
    """Late work, and work of another stream that ended nearest to its start.

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
    rows : ndarray of shape (n_candidates,), dtype=int64
        Candidates by pair, then by distance.
    source : ndarray of shape (n,), dtype=int64
        Place of the source.
    first, last : ndarray of shape (n,), dtype=int64
        Positions in `rows` between which the occurrences match.
    n_all : ndarray of shape (n,), dtype=int64
        How often the target is late.
    low_ns, high_ns : ndarray of shape (n,), dtype=int64, unit=ns
        The range of distances.
    """

    rows: I64
    source: I64
    first: I64
    last: I64
    n_all: I64
    low_ns: I64
    high_ns: I64

    @property
    def n_matched(self) -> I64:
        """How often the distance is in the range."""
        n_matched: I64 = np.minimum(self.last - self.first + 1, self.n_all)
        return n_matched


def _candidates(structure: Structure, late: LateStarts) -> _Candidates:
    """For each late start and each other stream: what ended last before it, or right after it.

    A stream can only be made to wait for what was launched before its own work.
    """
    events, launched_ns = structure.events, structure.launch_time_ns
    start_ns, most = events.ts_ns[late.event], most_overlap(structure)
    since_ns = launched_ns[late.event]
    is_known = structure.launch[late.event] >= 0
    device = events.device[structure.queue[structure.queue_starts]]
    rows, sources = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for queue in range(len(device)):
        other = structure.queue_id[late.event] != queue
        other &= events.device[late.event] == device[queue]
        ended = nearest_ends(structure, queue, start_ns)
        ending = nearest_ends(structure, queue, start_ns + most)
        given = structure.covered_on(queue, since_ns + 1)
        in_time = ~is_known | (launched_ns[ended] <= since_ns)
        before = np.where(in_time, ended, np.where(events.end_ns[given] <= start_ns, given, -1))
        before[ended < 0] = -1
        overlaps = (ending != ended) & (~is_known | (launched_ns[ending] <= since_ns))
        for found, wanted in ((before, before >= 0), (ending, overlaps)):
            chosen = np.flatnonzero(other & wanted & (events.ts_ns[found] < start_ns))
            rows.append(chosen)
            sources.append(found[chosen])
    row, source = np.concatenate(rows), np.concatenate(sources)
    return _Candidates(row, source, start_ns[row] - events.end_ns[source])


def _tightest(target: I64, source: I64, distance_ns: I64, n_all: I64) -> _Pairs:
    """Of each pair of places, the narrowest range of distances that nearly all targets have."""
    rows = np.lexsort((distance_ns, source, target))
    starts = group_starts(target[rows], source[rows])
    group = np.cumsum(starts) - 1
    ends = np.append(np.flatnonzero(starts)[1:], len(rows))
    n_pair = np.diff(np.append(np.flatnonzero(starts), len(rows)))[group]
    wanted = np.maximum(np.ceil(_ALL_BUT * n_pair).astype(np.int64), _FEWEST)
    last = np.arange(len(rows)) + wanted - 1
    fits = np.flatnonzero(last < ends[group])
    low, high = distance_ns[rows[fits]], distance_ns[rows[last[fits]]]
    # Of ranges of one width the one nearest to the end of the source.
    order = np.lexsort((np.abs(low), high - low, group[fits]))
    best = fits[order[group_starts(group[fits[order]])]]
    high = distance_ns[rows[last[best]]]
    until = last[best]
    return _Pairs(
        rows,
        source[rows[best]],
        best,
        until,
        n_all[target[rows[best]]],
        distance_ns[rows[best]],
        high,
    )


def _support(  # noqa: PLR0917  one row of a table
    structure: Structure,
    late: LateStarts,
    candidates: _Candidates,
    pairs: _Pairs,
    pair: int,
    rule: Rule,
    chance: float,
) -> Support:
    """What one pair rests on, in words and numbers."""
    rows = pairs.rows[pairs.first[pair] : pairs.last[pair] + 1]
    distance_ns = candidates.distance_ns[rows]
    return Support(
        rule,
        work_label(structure, int(candidates.source[rows[0]])),
        work_label(structure, int(late.event[candidates.late[rows[0]]])),
        int(pairs.n_matched[pair]),
        int(pairs.n_all[pair]),
        int(np.median(distance_ns)),
        int(np.ptp(distance_ns)),
        chance,
    )


def _chances(structure: Structure, waits: list[LateStarts], place: I64, pairs: _Pairs) -> Floats:
    """Share of random instants of its waits at which the source of each pair ended as far back."""
    events, device = structure.events, structure.queue
    by_place = device[np.lexsort((events.end_ns[device], place[device]))]
    bounds = np.searchsorted(place[by_place], np.stack([pairs.source, pairs.source + 1]))
    width = np.maximum(pairs.high_ns - pairs.low_ns, resolution_ns(structure))
    out = np.empty(len(waits))
    for pair, late in enumerate(waits):
        ends = events.end_ns[by_place[bounds[0, pair] : bounds[1, pair]]]
        until_ns = late.ready_ns + late.wait_ns - pairs.low_ns[pair]
        n_ends = np.searchsorted(ends, until_ns, side="right")
        n_ends -= np.searchsorted(ends, late.ready_ns - pairs.high_ns[pair])
        out[pair] = np.minimum(n_ends * width[pair] / np.maximum(late.wait_ns, 1), 1).mean()
    return out


def _accepted(
    structure: Structure, waits: list[LateStarts], chance: Floats, pairs: _Pairs
) -> Bools:
    """Whether each pair is a dependency: far above chance, and right after or at a distance."""
    width = np.maximum(pairs.high_ns - pairs.low_ns, resolution_ns(structure))
    median = np.array([np.median(late.wait_ns) for late in waits])
    varied = np.array([np.ptp(late.wait_ns) for late in waits])
    is_after = _is_right_after(structure, pairs)
    is_steady = (_STEADIER * width <= np.minimum(varied, pairs.high_ns)) & (
        _PART_OF_WAIT * pairs.high_ns <= median
    )
    # As many ranges as narrow as this one could have been found.
    n_looks = len(waits) * np.maximum(median / width, 1)
    unlikely = log_chance(pairs.n_matched, pairs.n_all, chance) < np.log(_FALSE_PAIRS / n_looks)
    accepted: Bools = unlikely & (is_after | is_steady)
    return accepted


def _is_right_after(structure: Structure, pairs: _Pairs) -> Bools:
    """Whether the targets of each pair start within what is usual after their sources ended."""
    return pairs.high_ns <= structure.calibration.launch_usual_ns


def _learn(
    structure: Structure, late: LateStarts, candidates: _Candidates, level: tuple[Place, Place]
) -> tuple[_Candidates, npt.NDArray[np.int8], I64, list[Support]]:
    """Candidates that are dependencies by one sort of places, with rule, lag and support."""
    target_at, source_at = (place(structure) for place in level)
    target, source = target_at[late.event], source_at[candidates.source]
    n_all = np.bincount(target, minlength=1)
    pairs = _tightest(target[candidates.late], source, candidates.distance_ns, n_all)
    waits = [
        late.take(candidates.late[pairs.rows[first : last + 1]])
        for first, last in zip(pairs.first.tolist(), pairs.last.tolist(), strict=True)
    ]
    chance = _chances(structure, waits, source_at, pairs)
    taken = np.flatnonzero(_accepted(structure, waits, chance, pairs))
    is_after = _is_right_after(structure, pairs)
    matched = [pairs.rows[pairs.first[pair] : pairs.last[pair] + 1] for pair in taken]
    rows = np.concatenate([np.empty(0, dtype=np.int64), *matched])
    pair = np.repeat(taken, [len(part) for part in matched])
    # The nearest of several sources, right before the start if there is one.
    order = np.lexsort(
        (np.abs(candidates.distance_ns[rows]), ~is_after[pair], candidates.late[rows])
    )
    rows, pair = rows[order], pair[order]
    first = group_starts(candidates.late[rows])
    rows, pair = rows[first], pair[first]
    rules = np.where(is_after, Rule.RECURRING_IN_REPLAYS, Rule.RECURRING_AT_A_DISTANCE)
    members = list(Rule)
    lag_ns = np.where(is_after, 0, pairs.low_ns)
    support = [
        _support(structure, late, candidates, pairs, one, members[rules[one]], float(chance[one]))
        for one in np.unique(pair).tolist()
    ]
    return candidates.take(rows), rules[pair].astype(np.int8), lag_ns[pair], support


def _learnt(structure: Structure, late: LateStarts) -> Inferred:
    """Edges to late starts, by the finest sort of places that tells what they wait for."""
    candidates = _candidates(structure, late)
    support: list[Support] = []
    parts = []
    for level in _LEVELS:
        found, rule, lag_ns, learnt = _learn(structure, late, candidates, level)
        waiter = late.event[found.late]
        parts.append(stream_wait_edges_from(structure, rule, found.source, waiter, lag_ns=lag_ns))
        support += learnt
        left = np.ones(len(late.event), dtype=bool)
        left[found.late] = False
        number = np.cumsum(left) - 1
        candidates = candidates.take(left[candidates.late])
        candidates = candidates._replace(late=number[candidates.late])
        late = late.take(left)
    return Inferred(EdgeTable.concat(parts), tuple(support))


def recurring_waits(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges from work of one stream to late work of another that always starts as long after it.

    What started right after all that was given before is looked at as well, for it is one more
    occurrence; then once more without, for it may be one of another sort.
    """
    by_itself = known.rule == Rule.ENDED_RIGHT_BEFORE
    edges = EdgeTable()
    support: tuple[Support, ...] = ()
    for before in (known.take(~by_itself), known):
        late = late_starts(structure, EdgeTable.concat([before, edges]))
        if len(late.event) < _FEWEST:
            continue
        found = _learnt(structure, late)
        new = found.edges.take(~np.isin(found.edges.head, known.head[by_itself]))
        edges, support = EdgeTable.concat([edges, new]), support + found.support
    return Inferred(edges, support)
