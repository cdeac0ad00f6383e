"""Aligning what should be one sequence, by symbols and times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.sequences import Timed, align, likely_offsets

MS = 1_000_000


def timed(
    *ends_ms: float,
    symbol: int | Sequence[int] = 0,
    size: int | Sequence[int] = 0,
    dur_ms: float = 0.5,
    waits: bool = True,
    is_awaited: bool = True,
) -> Timed:
    """Events by their ends; all members meet unless told otherwise."""
    n = len(ends_ms)
    end = (np.array(ends_ms) * MS).astype(np.int64)
    columns = (np.broadcast_to(np.asarray(one, dtype=np.int64), n) for one in (symbol, size))
    return Timed(*columns, end - int(dur_ms * MS), end, np.full(n, waits), np.full(n, is_awaited))


def places(own: Timed, other: Timed, *, scale_ms: float = 0.1, slack_ms: float = 1) -> list[int]:
    """The place of each event, -1 where there is none or it is in doubt."""
    place, doubtful = align(own, other, int(scale_ms * MS), int(slack_ms * MS))
    return np.where(doubtful, -1, place).tolist()


def test_equal_sequences_are_aligned_element_by_element() -> None:
    """Even where all are alike, and ends come late by more than the next one."""
    assert places(timed(1, 2, 3.9, 4), timed(1, 2, 3, 4)) == [0, 1, 2, 3]


def test_times_tell_what_is_missing_of_equal_events() -> None:
    """The first, the last, and one in between."""
    whole = timed(10, 20, 30, 40)
    assert places(timed(20.1, 30.1, 40.1), whole) == [1, 2, 3]
    assert places(timed(10.1, 20.1, 30.1), whole) == [0, 1, 2]
    assert places(timed(10.1, 20.1, 40.1), whole) == [0, 1, 3]


def test_both_may_lack_some() -> None:
    """The first has no second, the other one no third."""
    assert places(timed(10, 30, 40, 50), timed(10, 20, 40, 50)) == [0, -1, 2, 3]


def test_what_the_other_one_lacks_has_no_place() -> None:
    """It has another symbol, or is somewhere else in time."""
    assert places(timed(10, 20, symbol=[0, 1]), timed(10, 20)) == [0, -1]
    assert places(timed(10, 90), timed(10, 20)) == [0, -1]


def test_one_pair_that_is_far_apart_is_none() -> None:
    """The end of one comes 1 ms late, or 40 ms."""
    assert places(timed(10), timed(11, 90, dur_ms=45)) == [0]
    assert places(timed(10), timed(50, 90, dur_ms=45)) == [-1]


def test_one_that_is_missing_among_many_at_once_leaves_a_doubt() -> None:
    """Three within less than their ends differ by: any may be missing. The others are sure."""
    assert places(timed(10, 20.1, 20.2, 30), timed(10, 20, 20.1, 20.2, 30), scale_ms=1) == [
        *(0, -1, -1, 4),
    ]


def test_sizes_tell_what_times_do_not() -> None:
    """The second of three is missing."""
    whole = timed(20, 20.1, 20.2, size=[1, 2, 3])
    assert places(timed(20.1, 20.2, size=[1, 3]), whole, scale_ms=1) == [0, 2]


def test_sizes_may_differ() -> None:
    """Uneven splits: each rank sends another size."""
    assert places(timed(10, 20, 30, size=7), timed(10, 20, 30, size=8)) == [0, 1, 2]


def test_none_of_those_that_meet_ends_before_another_begins() -> None:
    """5 ms are little for a busy machine, but the clock is known to 1 ms."""
    assert places(timed(10), timed(15, dur_ms=2), scale_ms=2) == [-1]
    assert places(timed(10), timed(15, dur_ms=5), scale_ms=2) == [0]


def test_what_was_sent_before_is_received_at_once() -> None:
    """A receiver that waited long did not wait for what had been sent before."""
    sent = timed(30, 100, dur_ms=0.2, waits=False)
    assert places(sent, timed(30.5, 65, 100.5, dur_ms=29, is_awaited=False)) == [0, 2]
    assert places(sent, timed(45, 110, dur_ms=0.2, is_awaited=False)) == [0, 1]


@given(
    steps=st.lists(st.integers(5, 40), min_size=1, max_size=30),
    lost=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    late_us=st.integers(-100, 100),
)
def test_a_run_that_is_lost_is_found(steps: list[int], lost: tuple[int, int], late_us: int) -> None:
    """Law: wherever it is, and however long, if what is left is clear in time."""
    ends = np.cumsum(steps)
    kept = np.flatnonzero((np.arange(len(ends)) < min(lost)) | (np.arange(len(ends)) >= max(lost)))
    part = timed(*(ends[kept] + late_us / 1_000))
    assert places(part, timed(*ends)) == kept.tolist()


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=12),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=12),
)
def test_aligned_elements_are_equal_and_in_order(
    own: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    """Law: places rise, and symbols are equal."""
    first, second = (
        timed(*(end for _, end in rows), symbol=[symbol for symbol, _ in rows])
        for rows in (own, other)
    )
    place, _ = align(first, second, MS, MS)
    used = place[place >= 0]
    assert (np.diff(used) > 0).all()
    assert (second.symbol[used] == first.symbol[place >= 0]).all()


def test_offsets_are_proposed_that_bring_most_together() -> None:
    """5 s, not the length of a step."""
    other = np.cumsum([50, 60, 70, 80, 90]) * MS
    same = np.zeros(5, dtype=np.int64)
    found = likely_offsets(same[1:], other[1:] - 5_000 * MS, same, other)
    assert found[0] == 5_000 * MS


def test_nothing_is_proposed_without_equal_symbols() -> None:
    """One rank gathers, the other one scatters."""
    one = np.ones(1, dtype=np.int64)
    assert likely_offsets(one, one, 2 * one, one) == []
