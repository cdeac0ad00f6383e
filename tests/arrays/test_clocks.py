"""Clocks from common instants: offsets, drift, and how far they may be wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.clocks import Clock, fit_clock, follow, shared_clock, to_common

MS = 1_000_000


def test_a_constant_offset_is_found_exactly() -> None:
    """All matched collectives of 10 us end together on clocks 7 ms apart."""
    start = np.arange(5) * MS
    fit = fit_clock(start, start + 10_000, start + 7 * MS, start + 7 * MS + 10_000)
    assert (fit.clock.offset_ns, fit.clock.drift_ppb, fit.spread_ns) == (7 * MS, 0, 0)


def test_the_feasible_interval_is_what_the_starts_and_ends_allow() -> None:
    """Nobody ends before all have started: 10 us to either side, and 20 ns for unnoticed drift."""
    start = np.arange(5) * MS
    fit = fit_clock(start, start + 10_000, start, start + 10_000)
    assert (fit.low_ns, fit.high_ns, fit.width_ns) == (-10_020, 10_020, 20_040)


def test_one_that_only_waits_is_bounded_from_below() -> None:
    """A receiver cannot end before the sender has started; that it starts first says nothing."""
    start, always = np.arange(5) * MS, np.ones(5, dtype=bool)
    fit = fit_clock(start, start + 10_000, start, start + 10_000, waits=always, is_awaited=~always)
    assert (fit.low_ns, fit.high_ns > 10**15) == (-10_020, True)


def test_ends_of_members_that_end_on_their_own_give_bounds_only() -> None:
    """All-to-alls end 1 to 5 us apart, as if clocks drifted; barriers say that both are equal."""
    start = np.arange(16) * MS
    end, other_end = start + 10_000, start + 10_000 + np.linspace(0, 5_000, 16).astype(np.int64)
    barrier = np.arange(16) % 4 == 0
    other_end[barrier] = end[barrier]
    alone = fit_clock(start, end, start, other_end, ends_together=np.zeros(16, dtype=bool))
    both = fit_clock(start, end, start, other_end, ends_together=barrier)
    assert (alone.clock.drift_ppb, both.clock.offset_ns) == (0, 0)
    assert alone.low_ns <= alone.clock.offset_ns <= alone.high_ns
    assert (alone.low_ns, alone.high_ns) == (both.low_ns, both.high_ns)


def test_clocks_that_cannot_be_brought_together_have_a_negative_width() -> None:
    """One matched collective asks for an offset of about 0, the next for one of about 80 ms."""
    start = np.array([0, MS])
    reference = np.array([0, 81 * MS])
    fit = fit_clock(start, start + 10_000, reference, reference + 10_000)
    assert fit.width_ns < 0


def test_the_estimate_is_moved_into_the_feasible_interval() -> None:
    """Ends say 1 ms; but the other had started before the end of this one only up to 10 us."""
    start = np.arange(3) * MS
    fit = fit_clock(start, start + 10_000, start, start + 1_010_000, waits=None, is_awaited=None)
    assert fit.clock.offset_ns == MS
    late = fit_clock(start, start + 10_000, start - MS, start + 1_000)
    assert late.low_ns <= late.clock.offset_ns <= late.high_ns


def test_drift_is_fitted_where_it_pays() -> None:
    """5 ppm over 10 s are 50 us, far more than the ends differ."""
    start = np.arange(11) * 1_000 * MS
    reference = start + start * 5 // 1_000_000
    fit = fit_clock(start, start + 10_000, reference, reference + 10_000)
    assert fit.clock.drift_ppb == 5_000
    assert abs(fit.clock.to_common(start) - reference).max() <= 1


def test_drift_is_not_fitted_to_jitter() -> None:
    """Ends that differ by up to 3 us in no order."""
    start = np.arange(11) * MS
    jitter = np.array([0, 3, 1, 2, 0, 3, 1, 0, 2, 3, 1]) * 1_000
    assert fit_clock(start, start + 10_000, start, start + 10_000 + jitter).clock.drift_ppb == 0


def test_without_collectives_the_clock_is_left_alone() -> None:
    """There is nothing to compare it with."""
    none = np.empty(0, dtype=np.int64)
    fit = fit_clock(none, none, none, none)
    assert (fit.clock, fit.n_collectives, fit.width_ns) == (Clock(), 0, 0)


@given(
    times=st.lists(st.integers(-(2**61), 2**61), min_size=2, max_size=20),
    offset=st.integers(-(10**10), 10**10),
    drift=st.integers(-200_000, 200_000),
)
def test_common_time_keeps_the_order(times: list[int], offset: int, drift: int) -> None:
    """Law: exact integers, also at 1.7e18 ns since the epoch."""
    common = to_common(np.sort(np.array(times)), offset, drift, times[0])
    assert (np.diff(common) >= 0).all()
    exact = [t + offset + (t - times[0]) * drift // 1_000_000_000 for t in sorted(times)]
    assert common.tolist() == exact


_busy = st.lists(
    st.tuples(st.integers(-9, 9), st.integers(-3, 9), st.integers(0, 9)), min_size=1, max_size=6
)


@given(_busy)
def test_a_drifting_clock_is_followed_from_stretch_to_stretch(busy) -> None:
    """The lower bound wins a contradiction; order is kept; a shift changes only if it must."""
    low, width, gap = (np.array(column, dtype=np.int64) for column in zip(*busy, strict=True))
    high = low + width
    shift = follow(low, high, gap).tolist()

    begins = 0
    for at in range(len(busy) + 1):
        together = slice(begins, at + 1)
        if at < len(busy) and (at == begins or low[together].max() <= high[together].min()):
            continue
        least, most = low[begins:at].max(), high[begins:at].min()
        before = shift[begins - 1] if begins else 0
        nearest = max(min(before, most), least)
        kept = max(nearest, before - gap[begins]) if begins else nearest
        assert shift[begins:at] == [kept] * (at - begins)
        begins = at


@pytest.mark.parametrize(
    ("apart_ns", "bounds"),
    [
        (0, (-10_000, 10_000)),
        (60_000, (0, 70_000)),
        (95_000, (0, 100_000)),
        (105_000, (0, 100_000)),
        (-105_000, (-100_000, 0)),
        (110_000, (0, 100_000)),
        (-110_000, (-100_000, 0)),
        (115_000, None),
        (-115_000, None),
    ],
)
def test_processes_of_a_host_share_a_clock_up_to_100_us(apart_ns: int, bounds) -> None:
    """Ends that are farther apart are of two hosts, whatever their names."""
    start, both = np.arange(3) * MS, np.ones(3, dtype=bool)
    columns = start, start + 10_000, start + apart_ns, start + 10_000 + apart_ns
    fit = shared_clock(*columns, waits=both, is_awaited=both, clock=Clock())
    assert (fit and (fit.low_ns, fit.high_ns)) == bounds
    assert fit is None or (fit.spread_ns, fit.clock) == (abs(apart_ns), Clock())


@pytest.mark.parametrize(
    ("drift_ppb", "n", "found"), [(190_000, 8, 190_000), (210_000, 8, 0), (190_000, 7, 0)]
)
def test_drift_needs_enough_collectives_and_is_that_of_a_clock(drift_ppb, n, found) -> None:
    """200 ppm at most, from eight collectives."""
    start = np.arange(n) * 1_000 * MS
    reference = start + start // 1_000_000 * drift_ppb // 1_000
    fit = fit_clock(start, start + 10_000, reference, reference + 10_000)
    assert fit.clock.drift_ppb == found


def test_a_fitted_drift_is_unsure_by_four_times_the_spread() -> None:
    """Without drift, by 5 ppm of the time between the ends, here 40 ns."""
    start = np.arange(16) * 1_000 * MS
    jitter = np.tile([0, 100], 8)
    reference = start + start * 50 // 1_000_000
    fit = fit_clock(start, start + 10_000, reference, reference + 10_000 + jitter)
    assert (fit.clock.drift_ppb, fit.spread_ns) == (50_000, 50)
    assert (fit.low_ns, fit.high_ns) == (-10_200, 10_201)  # times on the other clock are cut
    short = 10**18 + start[:9] // 1_000
    steady = fit_clock(short, short + 10_000, short, short + 10_000)
    assert steady.high_ns == 10_000 + 40


@pytest.mark.parametrize(("jitter_ns", "is_fitted"), [(1_500, True), (2_500, False)])
def test_a_drift_must_halve_the_spread(jitter_ns: int, is_fitted: bool) -> None:
    start = np.arange(16) * 1_000 * MS
    reference = start + np.linspace(0, 16_000, 16).astype(np.int64)
    jitter = np.tile([jitter_ns, -jitter_ns], 8)
    fit = fit_clock(start, start + 10_000, reference, reference + 10_000 + jitter)
    assert (fit.clock.drift_ppb != 0) == is_fitted


def test_collectives_that_all_end_at_once_have_no_drift() -> None:
    start = np.zeros(8, dtype=np.int64)
    assert fit_clock(start, start + 10, start, start + 10).clock.drift_ppb == 0


def test_one_that_is_only_awaited_is_bounded_from_above() -> None:
    """A sender cannot start after the receiver has ended; when it ends says nothing."""
    start, always = np.arange(5) * MS, np.ones(5, dtype=bool)
    fit = fit_clock(start, start + 10_000, start, start + 10_000, waits=~always, is_awaited=always)
    assert (fit.low_ns < -(10**15), fit.high_ns) == (True, 10_020)
