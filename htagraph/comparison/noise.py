"""The rule that tells a change from noise: Welch's interval at 99%, and at least one percent.

Both runs give the means and standard deviations of steps that are alike. Their difference is a
change where it exceeds both what means of this spread differ by in 99 of 100 comparisons without
any change (`htagraph.algorithms.welch`) and `LEAST_CHANGE` of what it was. Of means, not medians:
the mean of a sum is the sum of the means, so the differences of all bounds add up to that of the
steps, to the nanosecond. One slow step cannot carry the mean far off, as steps far from the median
are not alike (`htagraph.lookup.steady_steps`), and are named instead.

What the rule cannot see is how runs differ from each other as a whole: another node, another clock
of the device. See ``docs/gate.md`` for measured false alarms, and for what to do about that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.welch import half_width

__all__ = ["LEAST_CHANGE", "noise_ns"]

F64 = npt.NDArray[np.float64]

LEAST_CHANGE = 0.01
"""Share of what it was by which something must differ to have changed."""


def noise_ns(
    mean_ns: npt.ArrayLike, std_before_ns: npt.ArrayLike, n_before: int,
    std_after_ns: npt.ArrayLike, n_after: int,
) -> F64:  # fmt: skip
    """How large a difference of means is without any change, at most.

    Parameters
    ----------
    mean_ns : array_like, unit=ns
        Means before.
    std_before_ns : array_like, unit=ns
        Standard deviations from step to step before.
    n_before : int
        Number of steps.
    std_after_ns, n_after
        The same after.

    Returns
    -------
    ndarray of float
        Infinite where steps are too few to tell.

    Examples
    --------
    >>> noise_ns([100.0, 100.0], [1.0, 0.0], 4, [1.0, 0.0], 4).round(1).tolist()
    [2.6, 1.0]
    """
    least = LEAST_CHANGE * np.asarray(mean_ns, dtype=np.float64)
    width: F64 = np.maximum(half_width(std_before_ns, n_before, std_after_ns, n_after), least)
    return width
