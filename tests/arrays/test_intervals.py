"""Unions, gaps and states, against a brute-force clock that ticks once a unit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.intervals import Cover, gaps, states, sum_by_code, union

_END = 40
intervals = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 10), st.integers(0, 2)),
    max_size=15,
)


def _columns(drawn):
    group, start, dur, bit = np.array(drawn, dtype=np.int64).reshape(len(drawn), 4).T
    return group, start, start + dur, bit


def _ticks(group, start, end, chosen):
    """Whether a chosen group is busy, for each unit of time."""
    busy = np.zeros(_END, dtype=bool)
    for g, a, b in zip(group, start, end, strict=True):
        if g == chosen:
            busy[a:b] = True
    return busy


@given(drawn=intervals)
def test_a_union_covers_what_its_intervals_cover(drawn):
    """Tick by tick; and its parts neither overlap nor touch."""
    group, start, end, _ = _columns(drawn)
    found = union(group, start, end)
    for chosen in range(3):
        mine = found.group == chosen

        assert _ticks(*found, chosen).tolist() == _ticks(group, start, end, chosen).tolist()
        assert (found.start[mine][1:] > found.end[mine][:-1]).all()


@given(drawn=intervals)
def test_gaps_and_union_tile_the_bounds(drawn):
    """What is not busy is a gap; a group that is never busy is one."""
    group, start, end, _ = _columns(drawn)
    busy = union(group, start, end)
    free = gaps(busy, np.arange(3), 0, _END)
    for chosen in range(3):
        assert (_ticks(*free, chosen) ^ _ticks(*busy, chosen)).all()


@given(drawn=intervals)
def test_states_say_what_runs_at_once(drawn):
    """Each tick has the bits of the classes that run in it."""
    group, start, end, bit = _columns(drawn)
    found = states(group, start, end, bit, 3)
    for chosen in range(3):
        mask = np.zeros(_END, dtype=np.int64)
        for g, a, b, m in zip(*found, strict=True):
            if g == chosen:
                assert (mask[a:b] == 0).all()
                mask[a:b] = m
        expected = sum(
            _ticks(group[bit == b], start[bit == b], end[bit == b], chosen).astype(np.int64) << b
            for b in range(3)
        )

        assert mask.tolist() == np.broadcast_to(expected, _END).tolist()


@given(drawn=intervals, at=st.integers(0, _END), dur=st.integers(0, 20))
def test_a_cover_measures_any_stretch(drawn, at, dur):
    """As many ticks as are busy in it."""
    group, start, end, _ = _columns(drawn)
    group = np.zeros_like(group)
    found = union(group, start, end)
    cover = Cover(found.start, found.end)
    busy = np.append(_ticks(group, start, end, 0), np.zeros(60, dtype=bool))

    assert cover.within(np.array([at]), np.array([at + dur])).tolist() == [
        busy[at : at + dur].sum()
    ]
    assert cover.free_from(np.array([at])).tolist() == [at + int(np.argmin(busy[at:]))]


def test_touching_intervals_are_one():
    """Half-open intervals leave nothing between them."""
    found = union(np.zeros(2, np.int64), np.array([0, 5]), np.array([5, 9]))

    assert (found.start.tolist(), found.end.tolist()) == ([0], [9])


def test_sums_of_large_integers_are_exact():
    """Beyond 2**53 a float has no odd numbers."""
    odd = 2**53 + 1

    assert sum_by_code(np.array([0, 0, 1]), np.array([odd, 2, 3]), 2).tolist() == [odd + 2, 3]


def test_sums_are_those_of_all_blocks():
    """Of more rows than are summed at once, and a code that only the last block has."""
    code = np.append(np.zeros(600_000, dtype=np.int32), 1)

    assert sum_by_code(code, np.ones(600_001, dtype=np.int64), 2).tolist() == [600_000, 1]
