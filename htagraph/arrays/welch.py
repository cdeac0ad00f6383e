"""How far two means may differ by chance: Student's intervals for two samples.

The difference of two means has the standard error ``sqrt(s1**2 / n1 + s2**2 / n2)``. Divided by
it, the difference follows Student's distribution with the degrees of freedom of Welch and
Satterthwaite (B. L. Welch, Biometrika 34, 1947). The means of two samples of one distribution
differ by more than `Error.half_width` in one of a hundred cases;
``tests/benchmarks/bench_noise.py`` measures that, also where steps are not normal.

Where the first or the last value differs from the others for a reason that both samples share,
`ends_apart` leaves it out of the spread. Errors of a sum of differences add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import F64

FEWEST = 3
"""Values that a sample needs: of two, the spread is known too badly for any verdict."""

_FREEDOM = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 60, np.inf])
_QUANTILE = np.array(
    [
        *(63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.25),
        *(3.169, 3.055, 2.947, 2.845, 2.75, 2.66, 2.576),
    ]
)
"""Student's quantile at 99.5% by degrees of freedom (any table): 99% lie within it."""


def _quantile(freedom: F64) -> F64:
    """Student's quantile; between those of the table, its log is linear in 1 / freedom."""
    at = np.interp(-1 / freedom, -1 / _FREEDOM, np.log(_QUANTILE))
    return np.asarray(np.exp(at), dtype=np.float64)


class Sample(NamedTuple):
    """Statistics of samples of `n` values each, one sample for each of several quantities.

    `std` is the deviation of a sample (n - 1); `least` and `most` are the extremes.
    """

    n: int
    mean: F64
    std: F64
    first: F64
    last: F64
    least: F64
    most: F64

    @classmethod
    def of(cls, values: npt.ArrayLike) -> Sample:
        """Statistics of the values of one quantity."""
        known = np.asarray(values, dtype=np.float64)
        std = known.std(ddof=1, keepdims=True) if len(known) > 1 else np.zeros(1)
        ends = (known[:1], known[-1:], known.min(keepdims=True), known.max(keepdims=True))
        return cls(len(known), known.mean(keepdims=True), std, *ends)


class Error(NamedTuple):
    """The squared standard error of differences of means, and its degrees of freedom."""

    square: F64
    freedom: F64

    @property
    def half_width(self) -> F64:
        """How far the differences are off by chance in 99 of 100 cases, at most."""
        return np.asarray(_quantile(self.freedom) * np.sqrt(self.square))

    @classmethod
    def sum(cls, errors: Sequence[Error]) -> Error:
        """The error of a sum of differences, after Welch and Satterthwaite."""
        square = np.sum([one.square for one in errors], axis=0)
        weight = np.sum([np.square(one.square) / one.freedom for one in errors], axis=0)
        freedom = np.divide(
            np.square(square), weight, out=np.full_like(square, np.inf), where=weight > 0
        )
        return cls(square, freedom)

    def or_narrower(self, other: Error) -> Error:
        """Of two estimates the one with the smaller interval."""
        is_wider = other.half_width < self.half_width
        return Error(
            np.where(is_wider, other.square, self.square),
            np.where(is_wider, other.freedom, self.freedom),
        )


def welch(before: Sample, after: Sample) -> Error:
    """The error of the difference of the means of two samples, of two values each at least."""
    of_each = [
        Error(np.square(one.std) / one.n, np.full(one.mean.shape, one.n - 1.0))
        for one in (before, after)
    ]
    square, freedom = Error.sum(of_each)
    return Error(square, np.maximum(freedom, min(before.n, after.n) - 1))


def ends_apart(before: Sample, after: Sample, *, first: bool = False, last: bool = False) -> Error:
    """The same for samples of one size, whose first or last values differ for a reason.

    Analysis of variance with one spread for both. The first value differs by the same amount in
    both samples, so that one degree of freedom is left of the two. The last may differ by another
    amount in each; only where fewer than two others are left, by the same.
    """
    n = before.n
    apart = [name for name, is_apart in (("first", first), ("last", last)) if is_apart][: n - 1]
    m = n - len(apart)
    as_much = [name for name in apart if name == "first" or m < 2]
    rest, squares = [], np.zeros_like(before.mean)
    for sample in (before, after):
        ends = [getattr(sample, name) - sample.mean for name in apart]
        of_rest = -sum(ends, np.zeros_like(sample.mean)) / m
        within = (n - 1) * np.square(sample.std) - sum(map(np.square, ends)) - m * of_rest**2
        squares += np.maximum(within, 0)
        rest.append(sample.mean + of_rest)
    differ = [
        rest[1] - rest[0],
        *(getattr(after, name) - getattr(before, name) for name in as_much),
    ]
    weights = [m] + [1] * len(as_much)
    mean = np.average(differ, axis=0, weights=weights)
    for weight, one in zip(weights, differ, strict=True):
        squares += weight * np.square(one - mean) / 2
    freedom = float(2 * (m - 1) + len(as_much))
    return Error(squares / freedom * 2 / n, np.full_like(squares, freedom))


def range_if_apart(before: Sample, after: Sample) -> F64:
    """Range of the wider sample, where the samples are farther apart than that; else infinite.

    Of three normal values each, chance does so in 0.8 of 100 cases, of more hardly ever. (All of
    one sample are above all of the other in 10 of 100, whatever the distribution.)
    """
    gap = np.maximum(after.least - before.most, before.least - after.most)
    longest = np.maximum(before.most - before.least, after.most - after.least)
    is_apart = (gap > longest) & (min(before.n, after.n) >= FEWEST)
    return np.where(is_apart, longest, np.inf)
