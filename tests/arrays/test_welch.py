"""How far means lie apart by chance."""

from __future__ import annotations

from math import gamma, pi, sqrt

import numpy as np
import pytest

from htagraph.arrays.welch import (
    Sample,
    _quantile,
    ends_apart,
    range_if_apart,
    welch,
)


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
