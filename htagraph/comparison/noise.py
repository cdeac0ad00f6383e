"""The rule that tells a change from noise: Welch's interval at 99%, and at least one percent.

Both runs give the means and standard deviations of their typical steps. A difference is a change if
it exceeds both what such means differ by in 99 of 100 comparisons without a change
(`htagraph.algorithms.welch`) and `LEAST_CHANGE` of the earlier value. Means, not medians: they add
up, so the differences of all bounds sum to that of the steps, to the nanosecond. One slow step
cannot move the mean far: steps far from the median are not typical
(`htagraph.lookup.steady_steps`), and are named instead.

Where steps come in kinds, a run is a sum: of each kind the mean, as often as it occurs. So are its
errors; each kind needs two steps in both runs, and no more than its own spread counts.

The first step of a trace starts with an idle device, and is left out if three others remain. Among
three steps it stays, and what sets it apart is taken to be the same in both runs. The path of the
last step ends with device work, that of the others with the next launches, so its parts say nothing
about their spread. If both runs have as many steps, the interval without these ends
(`ends_apart`) counts if it is narrower; else both ends are part of the spread.

If a change makes something else the bottleneck, parts of steps vary in other ways than before. So a
part has also changed if all steps of one run lie farther from all of the other than the steps of
either lie apart (`range_if_apart`).

The rule cannot see how runs differ as a whole: another node, another GPU clock. ``docs/gate.md``
has measured false alarms, and what to do about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from htagraph.algorithms.welch import FEWEST, Error, Sample, ends_apart, range_if_apart, welch
from htagraph.model.arrays import F64

LEAST_CHANGE = 0.01
"""Share by which a time must differ to count as changed, however small its spread.

Chosen: runs of one program differ as much for reasons that no capture shows. Documented in
`docs/gate.md`, and pinned by `test_run_diff.py::test_a_run_must_differ_by_one_percent`.
"""


def noise_ns(
    before: Sequence[Sample],
    after: Sequence[Sample],
    *,
    first: Sequence[bool] = (),
    last: Sequence[bool] = (),
    parts: bool = False,
) -> F64:
    """The largest difference of means that counts as noise; infinite for too few steps.

    Parameters
    ----------
    before, after : sequence of Sample
        Times of one or several groups in the steps of each kind, unit=ns. A run is their sum.
    first, last : sequence of bool, default=()
        Of each kind, whether its first or last step is unlike the others in both runs.
    parts : bool, default=False
        They are parts of steps, not steps.

    Examples
    --------
    >>> runs = Sample.of([99, 101, 99, 101]), Sample.of([109, 111, 109, 111])
    >>> noise_ns(runs[:1], runs[1:]).round(1).tolist()
    [3.0]
    """
    least = LEAST_CHANGE * np.sum([one.mean for one in before], axis=0)
    fewest = min(one.n for one in (*before, *after))
    if fewest < (FEWEST if len(before) == 1 else 2):
        return np.full_like(least, np.inf)
    unlike = zip_longest(range(len(before)), first, last, fillvalue=False)
    errors = [
        _error(before[kind], after[kind], first=is_first, last=is_last)
        for kind, is_first, is_last in unlike
    ]
    width = Error.sum(errors).half_width
    if parts and len(before) == 1:
        width = np.minimum(width, range_if_apart(before[0], after[0]))
    return np.asarray(np.maximum(width, least))


def _error(before: Sample, after: Sample, *, first: bool, last: bool) -> Error:
    """The error of the difference of one kind of steps."""
    error = welch(before, after)
    if (first or last) and before.n == after.n:
        return error.or_narrower(ends_apart(before, after, first=first, last=last))
    return error
