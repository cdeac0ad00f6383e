"""The causes of a difference between runs, in words.

Code that changes makes some of its parts slower. If nearly all of them take longer by one factor,
called as often as before, the machine is the simplest reason. This is an inference: it names its
support, and says nothing where only some parts moved, or where they moved by different factors.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.welch import FEWEST, Sample
from htagraph.comparison.run_profile import OTHER
from htagraph.comparison.samples import PLACE
from htagraph.lookup.work_groups import Phase
from htagraph.model.arrays import F64, Bools
from htagraph.model.collective_names import COMMUNICATION_KERNELS, operation_of
from htagraph.model.kinds import Bound, bound_in_words
from htagraph.model.labels import name_label
from htagraph.model.units import human_duration

_DRIFT_NEARLY_ALL = 0.9
"""Share of the time, and of the names, that has to move by the common factor. Chosen: test_drift.
The rest is what has to move apart from the largest name, of which alone nothing follows."""

_FEWEST = 3
"""Names that have to move by it: fewer may be one change. A name needs a hundredth of the time.
Chosen: test_drift."""

_MATERIAL = 0.01
"""Share of the time from which a name counts. Chosen: test_drift."""

_HALF_WAY = 0.5
"""How far a part may be from the common factor, as a share of the change: halfway to no change.
Also the share of the time, and of shapes, that has to tell. Pinned by test_drift."""

_SAME_CALLS = 0.01
"""Share by which calls may differ, as those of typical steps. Pinned by test_drift."""

_OVERHEAD_NS = 20_000
"""Mean length of calls that are overhead, which takes as long whatever the size of the data.
Chosen, as `_SHORT_NS` of attributed time. Pinned by test_drift."""

MATTERS = 0.05
"""Share of a step from which noise counts, and what differs in every step: a gate's default limit.
Of 360 equal pairs of captures on a machine whose cores were all busy, no name differs so; of 155
planted changes of a fifth of a step and more, 152 are named. Pinned by test_drift."""

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
    order = np.argsort(ratio)
    until = np.cumsum(before[in_both][order])
    factor = float(ratio[order][np.searchsorted(until, until[-1] / 2)])  # the weighted median
    changed_ns = abs(factor - 1) * before
    tells = noise <= changed_ns
    moved = tells & in_both & (np.abs(after - factor * before) <= _HALF_WAY * changed_ns)
    moved &= (rows["name"] != OTHER).to_numpy()
    # Half of both sides: work that is new counts, as does work that is gone.
    weight = (before + after) / (before.sum() + after.sum())
    is_material, told, share = weight >= _MATERIAL, weight[tells].sum(), weight[moved].sum()
    n_names, rest = int((moved & is_material).sum()), ~tells
    agree = (
        n_names >= max(_FEWEST, _DRIFT_NEARLY_ALL * (tells & is_material).sum()),
        told >= _HALF_WAY,
        share >= _DRIFT_NEARLY_ALL * told,
        share - weight[moved].max(initial=0.0) >= 1 - _DRIFT_NEARLY_ALL,
        abs(after[rest].sum() - factor * before[rest].sum())
        <= _HALF_WAY * changed_ns[rest].sum() + _MATERIAL * changed_ns.sum(),
    )
    return Alike(factor, n_names, float(share)) if all(agree) else None


def has_same_calls(work: pd.DataFrame) -> bool:
    """Whether work of the same names is called as often in both runs, up to a hundredth of it."""
    n_before, n_after = (work[name].to_numpy(float) for name in ("calls_before", "calls_after"))
    return bool(np.abs(n_after - n_before).sum() <= _SAME_CALLS * n_before.sum())


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
        return bool(in_both["before_ns"].sum() >= _DRIFT_NEARLY_ALL * recorded["before_ns"].sum())
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


_WORTH_NAMING = 0.1
"""Share of the difference from which a bound is named. Chosen: test_findings."""

_MOST_OF_IT = 0.4
"""Share of a bound's change from which one kernel or operator is named as its cause. Chosen:
test_findings."""

_NEARLY_ALL = 0.9
"""Share from which one kernel or operator is named as the whole cause, with its own time. Chosen:
test_findings."""

_N_CAUSES = 3
"""Bounds that a sentence names: more is no sentence. Pinned by `test_findings.py`."""

_SHARE_OF_A_REASON = 0.2
"""Share from which calls, or the time of each, count as a reason for a change. Chosen:
test_findings."""

_ROUNDS_TO_NOTHING = 0.005
"""Smaller changes print as 0%."""

ALL_ALIKE = "all parts by the same factor"
_SAYS_NOTHING = re.compile(r"^\(|^ProfilerStep$")
_OF_DEVICE = {Bound.COMPUTE.label, Bound.COMMUNICATION.label, Bound.MEMORY.label}


def calls_in_words(row: Mapping[Hashable, Any]) -> str:
    """Whether work takes longer each time or runs more often; empty if neither."""
    n_before, n_after = float(row["calls_before"]), float(row["calls_after"])
    before_ns, after_ns = int(row["before_ns"]), int(row["after_ns"])
    if not n_before or not before_ns:
        return "new" if n_after else ""
    if not n_after or not after_ns:
        return "gone"
    calls = n_after / n_before - 1
    each = (after_ns / n_after) / (before_ns / n_before) - 1
    by_calls = abs(calls) * before_ns
    by_rate = abs(each) * after_ns
    least_ns = _SHARE_OF_A_REASON * (by_calls + by_rate)
    said = []
    if abs(calls) >= _ROUNDS_TO_NOTHING and by_calls >= least_ns:
        more = f"{calls:.0%} more" if calls < 1 else f"{calls + 1:.3g}x as many"
        said.append(f"{more if calls > 0 else f'{-calls:.0%} fewer'} calls")
    if abs(each) >= _ROUNDS_TO_NOTHING and by_rate >= least_ns:
        slower = f"{each:.0%} slower" if each < 1 else f"{each + 1:.3g}x as long"
        said.append(f"each {slower if each > 0 else f'{-each:.0%} faster'}")
    return ", ".join(said)


class Tables(NamedTuple):
    """Differences per step, schema `frames.STEP_DIFF`: of the path by group, and of all work."""

    by_bound: pd.DataFrame
    by_op: pd.DataFrame
    by_name: pd.DataFrame
    kernels: pd.DataFrame
    operators: pd.DataFrame
    shapes: pd.DataFrame
    phases: pd.DataFrame

    def inferred(self, alike: Alike, *, whose: str) -> str:
        """What a common factor tells."""
        if is_same_size(alike, self.by_name, self.shapes, self.phases):
            return f"{alike.in_words}: the {whose}'s clock or load, not the code (inferred)"
        return (
            f"{alike.in_words}: the {whose}'s clock or load, or inputs of another size (inferred; "
            "record_shapes=True tells)"
        )


class Causes(NamedTuple):
    """Why steps changed: the largest cause as a clause, and where each of them is."""

    largest: str = ""
    where: str = ""


def causes_of(tables: Tables, lasting: str = "") -> Causes:
    """The bounds that changed most beyond noise, each with its main cause; empty if none did.

    If each is within its noise, the cause is what lasts, a clause; or else the largest is named.
    """
    delta_ns = abs(int(tables.by_bound["delta_ns"].sum()))
    if not delta_ns:
        return Causes()
    if has_same_calls(tables.operators) and (alike := all_alike(tables.by_name)):
        of_device = tables.by_name["bound"].isin([*_OF_DEVICE, Bound.KERNEL_GAP.label])
        time_ns = tables.by_name["before_ns"]
        is_device = time_ns[of_device].sum() >= _NEARLY_ALL * time_ns.sum()
        where = tables.inferred(alike, whose="device" if is_device else "machine")
        return Causes(ALL_ALIKE, f"{where[0].upper()}{where[1:]}.")
    named = _changed(tables.by_bound, delta_ns * _WORTH_NAMING).head(_N_CAUSES).to_dict("records")
    if not named and lasting:
        return Causes(lasting)
    if not named:
        few = "No part of the path changed by more than its own noise"
        rows = tables.by_name[tables.by_name["name"] != OTHER].head(1).to_dict("records")
        most = [f"the most {where_in_words(one['name'], one['delta_ns'])}" for one in rows]
        return Causes(where=f"{'; '.join([few, *most])}.")
    first_ns, words = int(named[0]["delta_ns"]), bound_in_words(named[0]["name"])
    more = "more" if first_ns > 0 else "less"
    said = [_one(tables, row) for row in named] + _with_what_it_calls(tables, named)
    is_told = said == [f"{words} {_signed(first_ns)}"]
    where = "" if is_told else f"Where: {'; '.join(said)}."
    return Causes(f"{human_duration(abs(first_ns))} {more} in {words}", where)


def _with_what_it_calls(tables: Tables, bounds: Sequence[Mapping[Hashable, Any]]) -> list[str]:
    """The operator or annotation that contains most of a change that has many places, if any.

    Of those that contain nearly as much, the one with the least, which is the innermost.
    """
    of_host = [row for row in bounds if row["name"] not in _OF_DEVICE]
    total_ns = sum(int(row["delta_ns"]) for row in of_host)
    spread_ns = sum(int(row["delta_ns"]) for row in of_host if _main_cause(tables, row) is None)
    if abs(spread_ns) < max(_MOST_OF_IT * abs(total_ns), 1):
        return []
    rows = _changed(tables.operators, _MOST_OF_IT * abs(total_ns))
    rows = rows[(rows["delta_ns"] * total_ns > 0) & (rows["delta_ns"].abs() <= abs(total_ns))]
    rows = rows[rows["delta_ns"].abs() >= _NEARLY_ALL * rows["delta_ns"].abs().max()]
    if not len(rows):
        return []
    row = rows.to_dict("records")[-1]
    how = calls_in_words(row)
    said = f"{name_label(str(row['name']))} and what it calls {_signed(int(row['delta_ns']))}"
    return [f"{said} ({how})" if how else said]


def _changed(frame: pd.DataFrame, least_ns: float) -> pd.DataFrame:
    """Rows that changed beyond their noise, and by at least so much."""
    return frame[(frame["delta_ns"].abs() >= least_ns) & (frame["change"] != "noise")]


def _one(tables: Tables, bound: Mapping[Hashable, Any]) -> str:
    """A bound, with the main cause of its change, which gets no more than it has."""
    label, delta_ns = str(bound["name"]), int(bound["delta_ns"])
    said = f"{bound_in_words(label)} {_signed(delta_ns)}"
    # They neither copy nor communicate, which other clocks rule.
    other = [any(one.search(name) for one in _NOT_COMPUTE) for name in tables.kernels["name"]]
    kernels = tables.kernels[~np.array(other, dtype=bool)]
    is_compute = label == Bound.COMPUTE.label and has_same_calls(kernels)
    if is_compute and (alike := all_alike(kernels)):
        return f"{said}: {tables.inferred(alike, whose='device')}"
    row = _main_cause(tables, bound)
    if row is None:
        return said
    name, own_ns = str(row["name"]), int(row["delta_ns"])
    called = operation_of(name) if label == Bound.COMMUNICATION.label else ""
    where = _where(called or name)
    same = tables.kernels if label in _OF_DEVICE else tables.operators
    is_code = label == Bound.UNTRACED_CODE.label
    same = _changed(same[same["name"] == name], 0).head(0 if is_code else 1)
    how = calls_in_words(same.to_dict("records")[0]) if len(same) else ""
    where += f" ({how})" if how else ""
    if abs(own_ns) < _NEARLY_ALL * abs(delta_ns):
        return f"{said}, {_signed(own_ns)} of it {where}"
    return f"{bound_in_words(label)} {_signed(min(own_ns, delta_ns, key=abs))} {where}"


def _main_cause(tables: Tables, bound: Mapping[Hashable, Any]) -> Mapping[Hashable, Any] | None:
    """The kernel, operator or place with most of a bound's change; None if none has enough.

    Of host time by place first, then by the operator or annotation around it. A step is no place.
    """
    label, delta_ns = str(bound["name"]), int(bound["delta_ns"])
    for frame in (tables.by_name,) if label in _OF_DEVICE else (tables.by_name, tables.by_op):
        rows = frame[(frame["bound"] == label) & (frame["name"] != OTHER)]
        rows = _changed(rows, _MOST_OF_IT * abs(delta_ns))
        rows = rows[rows["delta_ns"] * delta_ns > 0]
        if len(rows) and not _SAYS_NOTHING.search(rows["name"].iloc[0]):
            return rows.to_dict("records")[0]
    return None


def _where(name: str) -> str:
    """Where time is spent: ``in aten::mm``, or ``after aten::mm, at train.py in main``."""
    if not (found := PLACE.match(name)):
        return f"in {name_label(name)}"
    neighbour, comma, function = found[2].partition(", at ")
    return f"{found[1]} {name_label(neighbour)}{comma}{function}"


def where_in_words(name: str, delta_ns: float) -> str:
    """A difference, and where it is."""
    return f"{_signed(int(delta_ns))} {_where(name)}"


def _signed(delta_ns: int) -> str:
    """A difference of times, with its sign."""
    return f"{'+' if delta_ns > 0 else ''}{human_duration(delta_ns)}"
