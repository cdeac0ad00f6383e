"""How far two means may lie apart by chance: Welch's interval for samples of unequal spread.

Of two samples with means and standard deviations s, their difference has the standard error
``sqrt(s1**2 / n1 + s2**2 / n2)``. Divided by that, it follows Student's distribution with the
degrees of freedom of Welch and Satterthwaite, whatever the spread of either side is (B. L. Welch,
Biometrika 34, 1947). Two samples of one distribution lie farther apart than `half_width` in one of
a hundred cases; ``tests/benchmarks/bench_noise.py`` measures that, also where steps are not normal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["FEWEST", "half_width"]

F64 = npt.NDArray[np.float64]

FEWEST = 3
"""Values of either sample from which its spread can be told."""

_FREEDOM = np.array([2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 60, np.inf])
_QUANTILE = np.array(
    [
        *(9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.25),
        *(3.169, 3.055, 2.947, 2.845, 2.75, 2.66, 2.576),
    ]
)
"""Student's quantile at 99.5% by degrees of freedom: 99% lie within it."""


def _quantile(freedom: F64) -> F64:
    """Student's quantile; between those of the table, its logarithm is a line in 1 / freedom.

    Examples
    --------
    >>> _quantile(np.array([2.0, 2.5, 1e9])).round(2).tolist()
    [9.92, 7.22, 2.58]
    """
    at = np.interp(-1 / freedom, -1 / _FREEDOM, np.log(_QUANTILE))
    return np.asarray(np.exp(at), dtype=np.float64)


def half_width(std_1: npt.ArrayLike, n_1: int, std_2: npt.ArrayLike, n_2: int) -> F64:
    """How far the means of two samples of one distribution lie apart in 99 of 100 cases, at most.

    Parameters
    ----------
    std_1 : array_like
        Standard deviation of the first sample (of n - 1); several for several quantities.
    n_1 : int
        Its size.
    std_2, n_2
        The same of the second.

    Returns
    -------
    ndarray of float
        Infinite where either sample has fewer than `FEWEST` values.

    Examples
    --------
    >>> half_width([1.0, 0.0], 5, [1.0, 0.0], 5).round(2).tolist()
    [2.12, 0.0]
    >>> half_width(1.0, 2, 1.0, 5).tolist()
    inf
    """
    first = np.square(np.asarray(std_1, dtype=np.float64)) / n_1
    second = np.square(np.asarray(std_2, dtype=np.float64)) / n_2
    if min(n_1, n_2) < FEWEST:
        return np.full(np.broadcast(first, second).shape, np.inf)
    error = first + second
    weight = np.square(first) / (n_1 - 1) + np.square(second) / (n_2 - 1)
    freedom = np.divide(np.square(error), weight, out=np.full_like(error, np.inf), where=weight > 0)
    return np.asarray(_quantile(np.maximum(freedom, min(n_1, n_2) - 1)) * np.sqrt(error))
