"""Levels of a series: where one begins, and that chance makes none."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph.arrays.change_points import FALSE_ALARMS, change_points


def test_levels_begin_where_they_were_planted() -> None:
    """Whatever their order; the noise is a sixth of the smallest."""
    source = np.random.default_rng(5)
    levels = np.repeat([100.0, 103.0, 108.0, 101.0], 15)

    assert change_points(levels + source.normal(0, 0.5, 60)) == [15, 30, 45]


def test_one_odd_run_is_no_level() -> None:
    """However far off: a rank cannot say so."""
    values = np.random.default_rng(5).normal(100, 1, 60)
    values[30] = 1_000

    assert change_points(values) == []


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_few_runs_have_one_level(n: int) -> None:
    """No order of five values is as rare as 1 of 100."""
    assert change_points(np.array([1.0, 1.0, 1.0, 2.0, 2.0])[:n]) == []


def test_the_fewest_runs_of_a_new_level() -> None:
    """After many of the old one: four are seen, three are not."""
    assert [change_points(np.repeat([1.0, 2.0], [30, n])) for n in (3, 4)] == [[], [30]]


def test_equal_values_have_one_level() -> None:
    """Their ranks are equal."""
    assert change_points(np.full(50, 7.0)) == []


def test_chance_makes_levels_as_rarely_as_stated() -> None:
    """Of any distribution, in 1 of 100 series: three deviations of 400 drawn ones are allowed."""
    source = np.random.default_rng(8)
    n_seen = sum(bool(change_points(source.standard_cauchy(40))) for _ in range(400))

    assert n_seen <= 400 * FALSE_ALARMS + 3 * np.sqrt(400 * FALSE_ALARMS)
