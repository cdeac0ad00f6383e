"""Statistics and sums: chance, spread, distributions, running sums, delays."""

from __future__ import annotations

from dataclasses import replace
from math import comb, gamma, log, pi, sqrt

import numpy as np
import pandas as pd
import pytest
import rustworkx
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.codes import distribution
from htagraph.arrays.delays import new_delays
from htagraph.arrays.intervals import rows
from htagraph.arrays.reach import ancestors, descendants
from htagraph.arrays.welch import Sample, _quantile, ends_apart, range_if_apart, welch
from htagraph.compiler.recurrences import log_chance
from htagraph.lookup.sm_activity import Limit, RunningSums, residency
from htagraph.model.devices import DeviceProperties
from tests.queries.gridded import FOUR_SMS


@given(n=st.integers(1, 30), matched=st.integers(0, 30), share=st.floats(0.01, 0.99))
def test_chance_is_at_most_the_bound_and_at_least_its_largest_term(n, matched, share):
    """Chernoff's bound is at most n + 1 times the largest term of the tail."""
    matched = min(matched, n)
    terms = [comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(matched, n + 1)]
    bound = float(log_chance(matched, n, share))

    assert log(sum(terms)) <= bound + 1e-9
    assert bound <= min(log((n + 1) * max(terms)) + 1e-9, 0) or matched <= n * share


def test_all_that_match_are_as_likely_as_each_one_to_their_number():
    assert log_chance([4, 0, 0], [4, 0, 9], [0.1, 0.5, 0.1]).tolist() == pytest.approx(
        [4 * log(0.1), 0, 0]
    )
    assert log_chance(4, 4, 1.0) == 0
    assert log_chance(4, 4, 0.0) == pytest.approx(4 * log(1e-12))


@given(rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**12)), min_size=1, max_size=30))
def test_statistics_are_those_of_pandas(rows):
    """Sum, extremes, lower quantiles, mean and sample deviation of every group."""
    group, value = np.array(rows, dtype=np.int64).T
    found = distribution(group, value, (0.5, 0.9))
    groups = pd.Series(value).groupby(group)

    assert found.group.tolist() == sorted(set(group.tolist()))
    assert found.n.tolist() == groups.size().tolist()
    assert found.total.tolist() == groups.sum().tolist()
    assert found.smallest.tolist() == groups.min().tolist()
    assert found.largest.tolist() == groups.max().tolist()
    assert found.quantiles[1].tolist() == groups.quantile(0.9, interpolation="lower").tolist()
    assert np.allclose(found.deviation, groups.std().fillna(0), rtol=1e-9, atol=1e-3)


def test_one_value_does_not_deviate():
    """Not even by nothing over nothing."""
    assert distribution(np.array([5]), np.array([7])).deviation.tolist() == [0.0]


def test_nothing_has_no_groups():
    """And quantiles of no length."""
    none = np.empty(0, dtype=np.int64)

    assert distribution(none, none, (0.5,)).quantiles.shape == (1, 0)


_END = 30
_intervals = st.lists(
    st.tuples(st.integers(0, 15), st.integers(0, 9), st.integers(-2, 5)), max_size=8
)


@given(_intervals)
def test_levels_and_integrals_are_those_of_single_ticks(intervals):
    start, dur, value = np.reshape(np.array(intervals, dtype=np.int64), (-1, 3)).T
    sums = RunningSums(start.astype(np.float64), (start + dur).astype(np.float64))
    ticks = np.zeros(_END, dtype=np.int64)
    for begin, length, one in intervals:
        ticks[begin : begin + length] += one

    level = sums.of(value)
    integral = sums.integral(level)

    assert sums.time.tolist() == sorted([*start.tolist(), *(start + dur).tolist()])
    for at in range(max(len(sums.time) - 1, 0)):
        begin, end = int(sums.time[at]), int(sums.time[at + 1])
        assert end == begin or set(ticks[begin:end].tolist()) == {level[at]}
    assert [ticks[: int(time)].sum() for time in sums.time] == integral.tolist()
    assert sums.over_each(integral).tolist() == [
        ticks[begin : begin + length].sum() for begin, length, _ in intervals
    ]


_N_NODES = 7


@given(
    edges=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), max_size=14),
    seeds=st.sets(st.integers(0, 6)),
)
def test_marks_spread_over_allowed_edges_in_either_direction(edges, seeds):
    """Nodes are numbered against their topological order."""
    edges = sorted(
        ((max(a, b), min(a, b), allowed) for a, b, allowed in edges if a != b),
        key=lambda edge: edge[1],
    )
    graph = rustworkx.PyDiGraph()
    graph.add_nodes_from(range(_N_NODES))
    graph.add_edges_from_no_data([(a, b) for a, b, allowed in edges if allowed])
    offsets = np.searchsorted([b for _, b, _ in edges], np.arange(_N_NODES + 1)).astype(np.int64)
    columns = (
        np.arange(_N_NODES, dtype=np.int32)[::-1].copy(),
        offsets,
        np.array([a for a, _, _ in edges], dtype=np.int32),
        np.array([allowed for *_, allowed in edges], dtype=bool),
        np.isin(np.arange(_N_NODES), list(seeds)),
    )
    for spread, oracle in (
        (descendants, rustworkx.descendants),
        (ancestors, rustworkx.ancestors),
    ):
        expected = seeds.union(*(oracle(graph, seed) for seed in seeds))
        assert set(np.flatnonzero(spread(*columns)).tolist()) == expected


@pytest.mark.parametrize("freedom", [1, 2, 2.4, 3, 3.7, 5, 11, 17, 25, 45])
def test_ninety_nine_percent_lie_within_the_quantile(freedom):
    """The integral of Student's density, by the trapezoidal rule."""
    at = np.linspace(0, float(_quantile(np.array(float(freedom)))), 200_001)
    scale = gamma((freedom + 1) / 2) / (sqrt(freedom * pi) * gamma(freedom / 2))
    density = scale * (1 + at**2 / freedom) ** (-(freedom + 1) / 2)

    between = (density[1:] + density[:-1]) @ np.diff(at)  # both sides: twice the half of it
    assert between == pytest.approx(0.99, abs=4e-4)


def test_a_sample_has_its_ends_and_its_extremes():
    sample = Sample.of([3, 5, 1, 4, 2])

    assert (sample.first, sample.last, sample.least, sample.most) == (3, 2, 1, 5)
    assert (sample.n, sample.mean, sample.std**2) == (5, 3, pytest.approx(2.5))
    assert Sample.of([7]).std.tolist() == [0]


@pytest.mark.parametrize("n", [3, 5, 10])
def test_chance_exceeds_the_interval_in_one_of_a_hundred_cases(n):
    """For normal values: no more often, and with equal spread not much less."""
    draw = np.random.default_rng(0).normal(100, 1, (2, 20_000, n))
    samples = [
        Sample(n, x.mean(1), x.std(1, ddof=1), x[:, 0], x[:, -1], x.min(1), x.max(1)) for x in draw
    ]
    apart = np.abs(samples[0].mean - samples[1].mean)

    assert 0.003 < (apart > welch(*samples).half_width).mean() < 0.012
    for ends in ({"first": True}, {"last": True}, {"first": True, "last": True}):
        assert 0.008 < (apart > ends_apart(*samples, **ends).half_width).mean() < 0.012
    assert np.isfinite(range_if_apart(*samples)).mean() < 0.01


def test_samples_are_apart_whichever_comes_first():
    """The wider one ranges over 2.5, and 5.1 lie between them."""
    wide, narrow = Sample.of([7.8, 6.6, 5.3]), Sample.of([0.1, 0.1, 0.2])

    assert range_if_apart(wide, narrow) == range_if_apart(narrow, wide) == pytest.approx(2.5)


def test_samples_as_far_apart_as_the_wider_one_ranges_are_not_apart():
    """2 and 2; then 3 and 2."""
    low = Sample.of([0, 1, 2])

    assert range_if_apart(low, Sample.of([4, 5, 6])).tolist() == [np.inf]
    assert range_if_apart(low, Sample.of([5, 6, 7])).tolist() == [2]


def test_means_of_equal_values_differ_by_no_chance():
    steady = Sample.of([5, 5, 5])

    assert welch(steady, steady).half_width.tolist() == [0]


_instants = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 100), st.integers(0, 60)), max_size=4
)


@given(_instants)
def test_a_delay_is_new_but_for_what_arose_since_in_stretches_before(instants):
    """Each stretch ends at its instant; its delay arises evenly over it, and fits into it."""
    seen = np.cumsum([100, *(step for step, _, _ in instants)])[1:]
    since = np.array([at - min(back, at) for at, (_, back, _) in zip(seen, instants, strict=True)])
    delay = np.array([late for *_, late in instants], dtype=np.int64)

    begin, new = new_delays(seen, since.astype(np.int64), delay)

    for at in range(len(seen)):
        assert begin[at] == max(since[at], seen[at - 1] if at else since[at])
        arose = sum(
            new[i] * max(seen[i] - max(begin[i], since[at]), 0) / max(seen[i] - begin[i], 1)
            for i in range(at)
        )
        most = seen[at] - begin[at]
        assert abs(new[at] - np.clip(delay[at] - arose, 0, most)) <= 1
        assert 0 <= new[at] <= most


INTERVALS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 8)), max_size=40
)


@given(INTERVALS)
def test_a_viewer_that_matches_ends_to_the_last_begin_finds_every_interval(
    drawn: list[tuple[int, int, int]],
) -> None:
    """Law: a stack that reads the boundaries of each row gives back the intervals, in order."""
    lane = np.array([lane for lane, _, _ in drawn], dtype=np.int32)
    start = np.array([start for _, start, _ in drawn], dtype=np.int64)
    end = start + np.array([dur for _, _, dur in drawn], dtype=np.int64)
    rows_of, boundaries = rows(lane, start, end)
    stacks: dict[tuple[int, int], list[int]] = {}
    now: dict[tuple[int, int], int] = {}
    closed = []
    for boundary in boundaries.tolist():
        interval, is_end = divmod(boundary, 2)
        row = (int(lane[interval]), int(rows_of[interval]))
        time = int((end if is_end else start)[interval])
        assert now.get(row, 0) <= time
        now[row] = time
        if is_end:
            assert stacks[row].pop() == interval
            closed.append(interval)
        else:
            stacks.setdefault(row, []).append(interval)
    assert sorted(closed) == list(range(len(drawn)))
    assert (np.diff(lane[boundaries >> 1]) >= 0).all()


def test_intervals_that_nest_take_one_row() -> None:
    """Calls of a well-behaved thread; touching is not overlapping."""
    lane = np.zeros(4, dtype=np.int32)
    row, _ = rows(lane, np.array([0, 2, 4, 10]), np.array([10, 4, 8, 12]))
    assert row.tolist() == [0, 0, 0, 0]


def test_a_row_is_free_again_when_its_intervals_have_ended() -> None:
    """Overlapping kernels alternate between two rows."""
    lane = np.zeros(4, dtype=np.int32)
    row, _ = rows(lane, np.array([0, 9, 19, 29]), np.array([10, 20, 30, 40]))
    assert row.tolist() == [0, 1, 0, 1]


AMPERE = replace(FOUR_SMS, compute_major=8)
"""Its system takes some of the shared memory."""


def test_registers_whose_product_is_beyond_64_bits_fit_once() -> None:
    """The kernel has run: one block fits."""
    blocks, limit = residency(AMPERE, np.array([128]), np.array([1 << 60]), np.array([0]))

    assert (blocks.tolist(), limit.tolist()) == ([1], [Limit.REGISTERS])


def test_shared_memory_whose_sum_is_beyond_64_bits_fits_once() -> None:
    blocks, limit = residency(AMPERE, np.array([128]), np.array([16]), np.array([(1 << 63) - 1]))

    assert (blocks.tolist(), limit.tolist()) == ([1], [Limit.SHARED_MEMORY])


def test_a_p100_allocates_registers_from_two_parts_and_others_from_four() -> None:
    """A warp takes 2,816: 11 fit into each half of 65,536 registers, 5 into each quarter."""
    device = DeviceProperties(
        0, warp_size=32, threads_per_sm=2_048, registers_per_sm=65_536, compute_major=6
    )
    kernel = np.array([32]), np.array([88]), np.array([0])

    for minor, n_blocks in ((0, 22), (1, 20)):
        blocks, limit = residency(replace(device, compute_minor=minor), *kernel)
        assert (blocks.tolist(), limit.tolist()) == ([n_blocks], [Limit.REGISTERS])
