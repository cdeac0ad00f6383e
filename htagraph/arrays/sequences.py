"""Sequences of codes that repeat, and sequences of the same events on two clocks.

Maximal repeats (Gusfield, "Algorithms on Strings, Trees, and Sequences", 1997) that do not overlap
themselves grow by one code at a time (Karp, Miller and Rosenberg 1972): a sequence is numbered by
its shorter form and the next code, so that each length costs one sort.

Events on two clocks correspond by a global alignment (Needleman and Wunsch 1970) with gaps that
cost the same however long they are (Gotoh 1982): the chain of pairs, in order in both, with the
most evidence, in thousandths of a nat. A pair is possible if its symbols are equal, its times near,
and none ends before the other begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from htagraph.arrays.codes import ranges
from htagraph.arrays.passes import compiled
from htagraph.model.arrays import I64, Bools


class Repeats(NamedTuple):
    """Occurrences of repeated sequences that do not overlap themselves."""

    sequence: I64  # Dense number of the sequence that each occurrence is of; ascending
    start: I64  # Position of its first code; ascending within a sequence
    length: I64  # Number of its codes


@compiled
def _without_overlap(group: I64, start: I64, length: int, keep: Bools) -> None:
    """Keep the leftmost occurrences of each group that do not overlap one that is kept."""
    last_group = -1
    free = 0
    for row in range(len(group)):
        if group[row] != last_group:
            last_group = group[row]
            free = start[row]
        if start[row] >= free:
            keep[row] = True
            free = start[row] + length


def _numbered(*keys: I64) -> tuple[I64, I64]:
    """Dense number of each distinct row of keys, and how often it occurs."""
    key = keys[0]
    for other in keys[1:]:
        key = key * (int(other.max(initial=0)) + 1) + other
    _, number, count = np.unique(key, return_inverse=True, return_counts=True)
    return number.astype(np.int64), count[number].astype(np.int64)


def repeats(code: I64, lane: I64, *, min_length: int, max_length: int) -> Repeats:
    """Sequences of neighbors that occur at least twice without overlapping themselves.

    Left out are sequences that occur as often as one that is longer by one code, on either side,
    and those that are a shorter one repeated. `code`: dense codes, in order. `lane`: sequences do
    not cross from one to another; ascending.
    """
    n = len(code)
    number, count = _numbered(code)
    position = np.flatnonzero(count > 1)
    number, count = number[position], count[position]
    parts: list[Repeats] = []
    n_sequences = 0
    for length in range(1, min(max_length, n) + 1):
        if not len(position):
            break
        longer = _grown(position, number, code, lane, length)
        if length >= min_length:
            closed = ~_explained(position, count, longer, n) & ~_is_power(position, code, length)
            parts.append(_occurrences(position[closed], number[closed], length, n_sequences))
            n_sequences = int(parts[-1].sequence.max(initial=n_sequences - 1)) + 1
        position, number, count = longer
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return Repeats(none, none, none)
    return Repeats(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _grown(position: I64, number: I64, code: I64, lane: I64, length: int) -> tuple[I64, I64, I64]:
    """Position, number and count of sequences that still repeat with one code more."""
    fits = position + length < len(code)
    fits[fits] = lane[position[fits]] == lane[position[fits] + length]
    position, number = position[fits], number[fits]
    number, count = _numbered(number, code[position + length])
    again = count > 1
    return position[again], number[again], count[again]


def _explained(position: I64, count: I64, longer: tuple[I64, I64, I64], n: int) -> Bools:
    """Whether a sequence occurs as often as one that is longer by one code."""
    longer_count = np.zeros(n + 1, dtype=np.int64)
    longer_count[longer[0]] = longer[2]
    after = longer_count[position] == count
    before = (position > 0) & (longer_count[position - 1] == count)
    explained: Bools = after | before
    return explained


def _is_power(position: I64, code: I64, length: int) -> Bools:
    """Whether a sequence is a shorter one repeated."""
    power = np.zeros(len(position), dtype=bool)
    for period in range(1, length // 2 + 1):
        if length % period == 0:
            differs = np.concatenate([[0], np.cumsum(code[:-period] != code[period:])])
            power |= differs[position + length - period] == differs[position]
    return power


def _occurrences(position: I64, number: I64, length: int, first_number: int) -> Repeats:
    """Occurrences of sequences of one length, numbered from a first number."""
    order = np.lexsort((position, number))
    start = position[order]
    _, dense = np.unique(number[order], return_inverse=True)
    keep = np.zeros(len(start), dtype=bool)
    _without_overlap(dense.astype(np.int64), start, length, keep)
    again = np.bincount(dense[keep]) > 1
    kept = np.flatnonzero(keep & again[dense])
    _, sequence = np.unique(dense[kept], return_inverse=True)
    return Repeats(
        sequence.astype(np.int64) + first_number,
        start[kept],
        np.full(len(kept), length, dtype=np.int64),
    )


_SAME = 6_000
"""Evidence of equal symbols."""
_AWAY = 2_000
"""What distance takes away for each factor e: some ends come late by many times the scale. Pinned
by test_sequences.
"""
_OTHER_SIZE = 8_000
"""What another size takes away, if the other sequence has this size, too: splits may be uneven.
Pinned by test_sequences.
"""
_GAP = 6_000
"""What a gap costs, once however long: losses are rare, and ends often come late. Chosen:
test_sequences.
"""
_END = 3_000
"""What it costs if only one sequence has a beginning, or an end: recordings often differ so."""
_DOUBT = 3_000
"""Another chain with so little less evidence (1 to 20) leaves in doubt what it matches else. Pinned
by test_sequences.
"""
_NEAR_NS = 50_000_000
"""Largest distance of a pair. Ends of one collective are recorded up to 6 ms apart, rarely more."""
_MOST_CELLS = 4_000_000
"""Pairs that are tried: 200 MB. Beyond that only nearer ones are."""
_IMPOSSIBLE = np.iinfo(np.int64).min // 4

_SAMPLES = 64
"""Events of one sequence whose distances to those of the other vote for an offset."""
_VOTES_NS = 2_000_000
"""Distances that differ by less vote together: as far as ends of one collective usually spread."""
_MOST_OFFSETS = 16
"""Offsets that are proposed, those with most votes first."""


@dataclass(frozen=True)
class Timed:
    """A sequence of events in time."""

    symbol: I64  # What has to be equal
    size: I64  # What is usually equal
    start_ns: I64
    end_ns: I64
    # waits, is_awaited: whether it does not end before the other one begins, and the other one not
    # before this. If all hold, both end together.
    waits: Bools
    is_awaited: Bools

    @property
    def meets(self) -> Bools:
        """Which ones wait, and are awaited."""
        return self.waits & self.is_awaited

    def __len__(self) -> int:
        """Count the events."""
        return len(self.symbol)


@compiled
def _chain(  # noqa: C901  one pass over the cells
    low: I64, high: I64, score: I64, column: I64, column_cell: I64, best: I64, before: I64
) -> None:
    """Fill the evidence of the best chain up to each cell, and the cell before it, -1 for none.

    Row ``i`` has cells of the columns from ``low[i]`` to ``high[i]``, which both ascend.
    """
    done, done_cell, first = _IMPOSSIBLE, -1, 0
    row_cell, above_cell, above_low, above_high = 0, 0, 0, -1
    for row in range(len(low)):
        while first < low[row]:
            if column[first] > done:
                done, done_cell = column[first], column_cell[first]
            first += 1
        running, running_cell = done, done_cell
        for place in range(low[row], high[row] + 1):
            cell = row_cell + place - low[row]
            if place > low[row] and column[place - 1] > running:
                running, running_cell = column[place - 1], column_cell[place - 1]
            best[cell], before[cell] = _IMPOSSIBLE, -1
            if score[cell] == _IMPOSSIBLE:
                continue
            value, source = -_END * ((row > 0) + (place > 0)), -1
            if running - _GAP > value:
                value, source = running - _GAP, running_cell
            if above_low < place <= above_high + 1:
                diagonal = above_cell + place - 1 - above_low
                if best[diagonal] >= value:
                    value, source = best[diagonal], diagonal
            best[cell], before[cell] = score[cell] + value, source
        for place in range(low[row], high[row] + 1):
            cell = row_cell + place - low[row]
            if best[cell] > column[place]:
                column[place], column_cell[place] = best[cell], cell
        above_cell, above_low, above_high = row_cell, low[row], high[row]
        row_cell += high[row] + 1 - low[row]


@compiled
def _mark(cell: int, before: I64, chosen: Bools) -> None:
    """Mark the cells of the chain that ends with a cell."""
    while cell >= 0:
        chosen[cell] = True
        cell = before[cell]


def _chains(low: I64, high: I64, score: I64, n_columns: int) -> tuple[I64, I64]:
    """Evidence of the best chain up to each cell, and the cell before it."""
    best, before = np.empty_like(score), np.empty_like(score)
    column = np.full(n_columns, _IMPOSSIBLE, dtype=np.int64)
    _chain(low, high, score, column, np.full(n_columns, -1, dtype=np.int64), best, before)
    return best, before


def _band(own: Timed, other: Timed) -> tuple[I64, I64]:
    """The first and the last of the others that each event may be: those near in time."""
    begins = np.minimum.accumulate(np.where(other.meets, other.end_ns, other.start_ns)[::-1])[::-1]
    ends = np.maximum.accumulate(other.end_ns)
    early = np.where(own.meets, own.end_ns, own.start_ns)
    near_ns = _NEAR_NS
    while True:
        low = np.searchsorted(ends, early - near_ns)
        high = np.searchsorted(begins, own.end_ns + near_ns, side="right") - 1
        low = np.minimum.accumulate(low[::-1])[::-1]
        high = np.maximum(np.maximum.accumulate(high), low - 1)
        if (high + 1 - low).sum() <= _MOST_CELLS or near_ns < 1_000:
            return low.astype(np.int64), high.astype(np.int64)
        near_ns //= 2


def align(own: Timed, other: Timed, scale_ns: int, slack_ns: int) -> tuple[I64, Bools]:
    """Place of each event in another sequence on the same clock, and what remains in doubt.

    `scale_ns`: by how much ends of the same event usually differ. `slack_ns`: by how much one may
    end before one begins that it waits for: the error of the clock. `place`: ascending; -1 for
    none. `is_doubtful`: whether it may as well be another one, or another one may be this.
    """
    place, doubtful = np.full(len(own), -1, dtype=np.int64), np.zeros(len(own), dtype=bool)
    if not (len(own) and len(other)):
        return place, doubtful
    low, high = _band(own, other)
    width = high + 1 - low
    row = np.repeat(np.arange(len(own)), width)
    column = ranges(low, width)
    score = _scores(own, other, row, column, scale_ns, slack_ns)
    best, before = _chains(low, high, score, len(other))
    if not len(best) or best.max() <= _IMPOSSIBLE:
        return place, doubtful
    n = len(other) - 1
    rest, _ = _chains(n - high[::-1], n - low[::-1], score[::-1].copy(), len(other))
    through = best + rest[::-1] - score
    chosen = np.zeros(len(score), dtype=bool)
    last = best - _END * ((row < len(own) - 1) * 1 + (column < n))
    if last.max() <= -2 * _END:  # as good as no pair
        return place, doubtful
    _mark(int(last.argmax()), before, chosen)
    place[row[chosen]] = column[chosen]
    near = ~chosen & (score > _IMPOSSIBLE) & (through >= last.max() - _DOUBT)
    doubtful[row[near]] = True
    claimed = np.zeros(len(other), dtype=bool)
    claimed[column[near]] = True
    return place, (doubtful | claimed[place]) & (place >= 0)


def _scores(own: Timed, other: Timed, row: I64, column: I64, scale_ns: int, slack_ns: int) -> I64:
    """The evidence that two events are the same, of each cell."""
    met = own.meets[row] & other.meets[column]
    begin, end = own.start_ns[row], own.end_ns[row]
    others_begin, others_end = other.start_ns[column], other.end_ns[column]
    ahead, behind = others_begin - end, begin - others_end
    apart = np.abs(end - others_end)
    # What was sent already is received at once.
    later = np.where(behind > ahead, end - begin, others_end - others_begin)
    one_way = np.where(np.maximum(ahead, behind) > 0, np.minimum(apart, later), 0)
    away = _AWAY * np.log1p(np.where(met, apart, one_way) / max(scale_ns, 1))
    score = _SAME - away.astype(np.int64)
    is_other = (own.size[row] != other.size[column]) & np.isin(own.size, other.size)[row]
    score[is_other] -= _OTHER_SIZE
    too_early = own.waits[row] & other.is_awaited[column] & (ahead > slack_ns)
    too_late = other.waits[column] & own.is_awaited[row] & (behind > slack_ns)
    score[(own.symbol[row] != other.symbol[column]) | too_early | too_late] = _IMPOSSIBLE
    return score


def likely_offsets(symbol: I64, ts_ns: I64, other_symbol: I64, other_ns: I64) -> list[int]:
    """What may have to be added to times so that most of them are times of equal symbols.

    Each pair of equal symbols votes for its distance.
    """
    sample = np.unique(np.linspace(0, len(ts_ns) - 1, min(_SAMPLES, len(ts_ns))).astype(np.int64))
    by_symbol = np.argsort(other_symbol, kind="stable")
    first, last = (
        np.searchsorted(other_symbol[by_symbol], symbol[sample], side=side)
        for side in ("left", "right")
    )
    apart = [
        other_ns[by_symbol[begin:end]] - ts_ns[at]
        for at, begin, end in zip(sample.tolist(), first.tolist(), last.tolist(), strict=True)
    ]
    distance = np.sort(np.concatenate([*apart, np.empty(0, dtype=np.int64)]))
    until = np.searchsorted(distance, distance + _VOTES_NS, side="right")
    votes = until - np.arange(len(distance))
    found: list[int] = []
    while len(found) < _MOST_OFFSETS and votes.any():
        most = int(votes.argmax())
        found.append(int(np.median(distance[most : until[most]])))
        votes[(distance > distance[most] - _VOTES_NS) & (distance < distance[until[most] - 1])] = 0
        votes[most : until[most]] = 0
    return found
