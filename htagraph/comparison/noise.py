"""The rule that tells a change from noise: Welch's interval at 99%, and at least one percent.

Both runs give the means and standard deviations of steps that are alike. Their difference is a
change where it exceeds both what means of this spread differ by in 99 of 100 comparisons without
any change (`htagraph.algorithms.welch`) and `LEAST_CHANGE` of what it was. Of means, not medians:
the mean of a sum is the sum of the means, so the differences of all bounds add up to that of the
steps, to the nanosecond. One slow step cannot carry the mean far off, as steps far from the median
are not alike (`htagraph.lookup.steady_steps`), and are named instead.

The first step of a trace begins with an idle device, and is left out where three others remain. Of
three steps it is one: what sets it apart is taken to be the same in both runs. The path of the last
step ends with what the device still does, that of the others with what the host already does: its
parts say nothing of the spread of theirs. Where runs have as many steps, the interval that leaves
this out counts (`half_width_ends_apart`), if it is the narrower one; elsewhere, either is spread.

Where a change lets something else bound the steps, their parts vary in other ways than before. A
part has also changed where all steps of one run lie farther from all of the other than the steps of
either lie apart (`range_if_apart`).

What the rule cannot see is how runs differ from each other as a whole: another node, another clock
of the device. See ``docs/gate.md`` for measured false alarms, and for what to do about that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.welch import Sample, half_width, half_width_ends_apart, range_if_apart

__all__ = ["LEAST_CHANGE", "noise_ns"]

LEAST_CHANGE = 0.01
"""Share of what it was by which something must differ to have changed."""


def noise_ns(
    before: Sample, after: Sample, *, first: bool = False, last: bool = False, parts: bool = False
) -> npt.NDArray[np.float64]:
    """How large a difference of means is without any change, at most.

    Parameters
    ----------
    before, after : Sample
        Times of one or several groups, unit=ns.
    first, last : bool, default=False
        The first or last step of both is apart from the others.
    parts : bool, default=False
        They are parts of steps, not steps.

    Returns
    -------
    ndarray of float
        Infinite where steps are too few to tell.

    Examples
    --------
    >>> runs = Sample.of([99, 101, 99, 101]), Sample.of([109, 111, 109, 111])
    >>> noise_ns(*runs).round(1).tolist()
    [3.0]
    """
    width = half_width(before, after)
    if (first or last) and before.n == after.n:
        width = np.minimum(width, half_width_ends_apart(before, after, first=first, last=last))
    if parts:
        width = np.minimum(width, range_if_apart(before, after))
    return np.maximum(width, LEAST_CHANGE * before.mean)
