"""Whether all parts of a run changed by one factor, as if the clock of a machine had another rate.

Code that changes makes some of its parts slower. If nearly all of them take longer by one factor,
called as often as before, the machine is the simplest reason. This is an inference: it names its
support, and says nothing where only some parts moved, or where they moved by different factors.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.algorithms.welch import FEWEST, Sample
from htagraph.comparison.run_profile import OTHER
from htagraph.lookup.phases import Phase
from htagraph.model.arrays import F64, Bools
from htagraph.model.collective_names import COMMUNICATION_KERNELS
from htagraph.model.kinds import Bound

_NEARLY_ALL = 0.9
"""Share of the time, and of the names, that has to move by the common factor.

Chosen. Pinned by `test_drift.py::test_one_part_that_stays_is_a_reason_to_say_nothing`. The rest is
what has to move apart from the largest name, of which alone nothing follows.
"""

_FEWEST = 3
"""Names that have to move by it: fewer may be one change. A name needs a hundredth of the time.

Chosen. Pinned by `test_drift.py::test_two_kernels_are_too_few`.
"""

_MATERIAL = 0.01
"""Share of the time from which a name counts.

Chosen. Pinned by `test_drift.py::test_a_name_counts_from_a_hundredth_of_the_time_on`.
"""

_HALF_WAY = 0.5
"""How far a part may be from the common factor, as a share of the change: halfway to no change.

Also the share of the time, and of shapes, that has to tell.
Pinned by `test_drift.py::test_two_factors_are_no_clock`.
"""

_SAME_CALLS = 0.01
"""Share by which calls may differ, as those of typical steps.

Pinned by `test_drift.py::test_calls_may_differ_by_a_hundredth`.
"""

_OVERHEAD_NS = 20_000
"""Mean length of calls that are overhead, which takes as long whatever the size of the data.

Chosen, as `_SHORT_NS` of attributed time. Pinned by
`test_drift.py::test_larger_inputs_leave_the_overhead`.
"""

MATTERS = 0.05
"""Share of a step from which noise counts, and what differs in every step: a gate's default limit.

Of 360 equal pairs of captures on a machine whose cores were all busy, no name differs so; of 155
planted changes of a fifth of a step and more, 152 are named. Pinned by
`test_drift.py::test_a_part_is_longer_in_every_step`.
"""

_OPTIMIZER = Phase.labels()[Phase.OPTIMIZER]
_NOT_COMPUTE = [re.compile(one) for one in (r"^Mem(cpy|set)\b", *COMMUNICATION_KERNELS.values())]


class Alike(NamedTuple):
    """Parts that moved by one factor: how many, and their share of the time."""

    factor: float
    n_names: int
    share: float

    @property
    def in_words(self) -> str:
        """By how much, and the support."""
        how = "slower" if self.factor > 1 else "faster"
        return (
            f"all {self.n_names} names with {self.share:.0%} of the time are "
            f"{abs(self.factor - 1):.1%} {how}"
        )


def in_every_step(fast: Sample, slow: Sample, factor: F64) -> Bools:
    """Whether parts are longer in each step of a run than in any of the other, whatever the load.

    Load of a machine comes and goes. So a part counts if its least time exceeds the longest in the
    other run, even if load made that longer by the factor between the steps that differ most.
    """
    least_ns = MATTERS * fast.mean.sum()
    is_longer = slow.least - np.maximum(factor, 1) * fast.most > least_ns
    return np.asarray(is_longer & (min(fast.n, slow.n) >= FEWEST))


def all_alike(rows: pd.DataFrame) -> Alike | None:
    """The common factor of groups, schema `frames.STEP_DIFF`; None if they do not share one.

    Groups whose noise would hide such a change tell nothing one by one, only as their sum.
    """
    before, after, noise = (
        rows[name].to_numpy(np.float64) for name in ("before_ns", "after_ns", "noise_ns")
    )
    in_both = (before > 0) & (after > 0)
    if not in_both.any():
        return None
    ratio = after[in_both] / before[in_both]
    factor = _weighted_median(ratio, before[in_both])
    changed_ns = abs(factor - 1) * before
    tells = noise <= changed_ns
    moved = tells & in_both & (np.abs(after - factor * before) <= _HALF_WAY * changed_ns)
    moved &= (rows["name"] != OTHER).to_numpy()
    # Half of both sides: work that is new counts, as does work that is gone.
    weight = (before + after) / (before.sum() + after.sum())
    is_material, told, share = weight >= _MATERIAL, weight[tells].sum(), weight[moved].sum()
    n_names, rest = int((moved & is_material).sum()), ~tells
    agree = (
        n_names >= max(_FEWEST, _NEARLY_ALL * (tells & is_material).sum()),
        told >= _HALF_WAY,
        share >= _NEARLY_ALL * told,
        share - weight[moved].max(initial=0.0) >= 1 - _NEARLY_ALL,
        abs(after[rest].sum() - factor * before[rest].sum())
        <= _HALF_WAY * changed_ns[rest].sum() + _MATERIAL * changed_ns.sum(),
    )
    return Alike(factor, n_names, float(share)) if all(agree) else None


def _weighted_median(values: F64, weights: F64) -> float:
    order = np.argsort(values)
    until = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(until, until[-1] / 2)])


def has_same_calls(work: pd.DataFrame) -> bool:
    """Whether work of the same names is called as often in both runs, up to a hundredth of it."""
    n_before, n_after = (work[name].to_numpy(float) for name in ("calls_before", "calls_after"))
    return bool(np.abs(n_after - n_before).sum() <= _SAME_CALLS * n_before.sum())


def compute_kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    """Kernels that compute: they neither copy nor communicate, which other clocks rule.

    Examples
    --------
    >>> names = ["gemm", "Memcpy HtoD (Pinned -> Device)", "ncclDevKernel_AllReduce_Sum_f32"]
    >>> compute_kernels(pd.DataFrame({"name": names}))["name"].tolist()
    ['gemm']
    """
    others = [any(one.search(name) for one in _NOT_COMPUTE) for name in kernels["name"]]
    return kernels[~np.array(others, dtype=bool)]


def is_same_size(
    alike: Alike, by_name: pd.DataFrame, shapes: pd.DataFrame, phases: pd.DataFrame
) -> bool:
    """Whether inputs have the same size, which a common factor alone does not tell.

    Shapes were recorded and are the same; or what takes as long whatever the size of a batch moved
    by the factor as well: the optimizer, and the overhead of calls.
    """
    recorded = shapes[shapes["name"].str.contains(" [", regex=False)]
    if recorded["before_ns"].sum() >= _HALF_WAY * max(shapes["before_ns"].sum(), 1):
        in_both = recorded[recorded["after_ns"] > 0]
        return bool(in_both["before_ns"].sum() >= _NEARLY_ALL * recorded["before_ns"].sum())
    on_host = by_name["bound"].isin([Bound.HOST.label, Bound.UNTRACED_CODE.label])
    is_short = by_name["before_ns"] < _OVERHEAD_NS * by_name["calls_before"]
    overhead, optimizer = by_name[on_host & is_short], phases[phases["name"] == _OPTIMIZER]
    return any(
        rows["before_ns"].sum() >= _MATERIAL * whole["before_ns"].sum()
        and abs(rows["after_ns"].sum() / rows["before_ns"].sum() - alike.factor)
        <= _HALF_WAY * abs(alike.factor - 1)
        for rows, whole in ((overhead, by_name), (optimizer, phases))
        if rows["before_ns"].sum()
    )
