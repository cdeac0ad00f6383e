"""Whether two runs can be compared: the same machine, the same size, about the same work.

Where steps come in kinds, each kind is compared with the one of the other run that is most like it.
Where steps vary (the length of a batch, the tokens of an expert), no two do the same work, but they
share most of it: the names that are called as often in every step. These are compared; the others
are left out, and named.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.comparison.profiling import reduced
from htagraph.comparison.run_profile import KERNEL_PARTS, OTHER, PATH_PARTS, Part, RunProfile
from htagraph.comparison.samples import neighbour_of
from htagraph.explain.differences import short_name
from htagraph.model.labels import name_label

_FEWEST_COMMON = 0.5
"""Share in common below which work differs: of time by name, of two runs; of calls, of two kinds of
steps. Chosen, and documented in `docs/gate.md`. Pinned by test_run_diff."""


_CONTAINED = 0.9
"""Share of one run's time in names of the other from which that does the same and more. Chosen:
test_run_diff."""

Pairs = tuple[tuple[int, int], ...]
"""Kinds of steps that are compared, by their rows before and after."""


def matched_kinds(before: RunProfile, after: RunProfile) -> Pairs:
    """The kinds that both runs have, by the calls of their operators and kernels.

    The two most similar are a pair, then of the others the two most similar, and so on.
    """
    calls = [[_calls(run, kind) for kind in range(len(run.kinds))] for run in (before, after)]
    alike = np.array([[_alike(one, other) for other in calls[1]] for one in calls[0]])
    pairs: list[tuple[int, int]] = []
    while np.isfinite(alike).any():
        place = int(alike.argmax())
        one, other = divmod(place, alike.shape[1])
        if pairs and alike[one, other] < _FEWEST_COMMON:
            break
        pairs.append((one, other))
        alike[one], alike[:, other] = -np.inf, -np.inf
    return tuple(sorted(pairs))


def _calls(run: RunProfile, kind: int) -> pd.Series:
    """Calls in a step of a kind, by name."""
    rows = pd.concat([run.rows(part, kind) for part in ("kernel", "operator")])
    rows = rows[rows["name"] != OTHER]
    return rows["calls"].groupby(rows["name"].map(_work)).sum()


def _alike(one: pd.Series, other: pd.Series) -> float:
    """Share of calls that two kinds of steps have in common, of all that either has."""
    both = pd.concat([one, other], axis=1).fillna(0.0)
    most = both.max(axis=1).sum()
    return float(both.min(axis=1).sum() / most) if most else 1.0


def why_not_comparable(before: RunProfile, after: RunProfile) -> tuple[str, ...]:
    """Why two runs, of the same kinds of steps, cannot be compared, in words; empty if they can."""
    said = []
    if before.unit != after.unit:
        said.append(f"a {before.unit} before, a {after.unit} after")
    elif before.unit == "window" and before.n_steps != after.n_steps:
        said.append(f"{before.n_steps} steps in the window before, {after.n_steps} after")
    if before.devices and after.devices and before.devices != after.devices:
        said.append(f"on {before.devices} before, on {after.devices} after")
    if before.world_size and after.world_size and before.world_size != after.world_size:
        said.append(f"a job of {before.world_size:,} ranks before, of {after.world_size:,} after")
    elif before.n_ranks != after.n_ranks:
        said.append(f"traces of {before.n_ranks:,} ranks before, of {after.n_ranks:,} after")
    said += [*restless(before, after), *_other_mix(before, after)]
    if "window" in (before.unit, after.unit) and (other := other_work(before, after)):
        said.append(other)
    return tuple(said)


def restless(before: RunProfile, after: RunProfile) -> list[str]:
    """Clauses on runs of which most steps are unlike the others, as on a busy machine."""
    both = (("before", before), ("after", after))
    return [f"{side}, {run.most_are_odd}" for side, run in both if run.most_are_odd]


def other_work(before: RunProfile, after: RunProfile) -> str:
    """A clause if two runs share few names; steps are comparable all the same, by their length."""
    shares = [_common(_times(before, part), _times(after, part)) for part in ("kernel", "operator")]
    common = max((share for share in shares if share is not None), default=1.0)
    few = f"names in common make up {common:.0%} of the time: different work"
    return few if common < _FEWEST_COMMON else ""


def do_the_same_elsewhere(before: RunProfile, after: RunProfile) -> bool:
    """Whether two runs differ by nothing but the device, which has the same to do, by its shapes.

    Kernels have other names on another device.
    """
    if not (before.devices and after.devices and before.devices != after.devices):
        return False
    alike = replace(after, devices=before.devices)
    if {*why_not_comparable(before, alike)} - {other_work(before, alike)}:
        return False
    times = [_times(run, KERNEL_PARTS["shape"]) for run in (before, after)]
    same = [name for name in times[0].index.intersection(times[1].index) if "[" in name]
    share = min(float(one[same].sum()) / max(float(one.sum()), 1) for one in times)
    return share >= _FEWEST_COMMON


def _other_mix(before: RunProfile, after: RunProfile) -> list[str]:
    """Why kinds of steps occur too differently: more so than where a capture begins explains."""
    totals = [sum(one.n_steps for one in run.kinds) for run in (before, after)]
    for one, other in zip(before.kinds, after.kinds, strict=True):
        share = one.n_steps / totals[0], other.n_steps / totals[1]
        if abs(share[0] - share[1]) > 1 / totals[0] + 1 / totals[1]:
            return [f"steps of one kind are {share[0]:.0%} before, {share[1]:.0%} after"]
    return []


def _times(run: RunProfile, part: str) -> pd.Series:
    rows = run.frame[(run.frame["part"] == part) & (run.frame["name"] != OTHER)]
    return rows["total_ns"].groupby(rows["name"].map(_work)).sum()


def _work(name: str) -> str:
    """What a name does, whatever the types and shapes, and whichever process loads the data."""
    return short_name(name).replace("_SingleProcessDataLoader", "_MultiProcessingDataLoader")


def _common(before: pd.Series, after: pd.Series) -> float | None:
    """Share of time in common names, on the side where it is smaller.

    All of a run whose work the other one contains: what is added may take most of the time.
    """
    total = before.sum(), after.sum()
    if not all(total):
        return 0.0 if any(total) else None
    names = before.index.intersection(after.index)
    less, more = sorted([before[names].sum() / total[0], after[names].sum() / total[1]])
    return float(more if more >= _CONTAINED else less)


_FEWEST_SHARED = 0.5
"""Share of the time that steps have to share: else they are compared as a whole. Chosen, as that of
names in common. Pinned by test_kinds."""

_N_NAMED = 2
"""Names that are left out and told; more is no sentence. Pinned by `test_kinds.py`."""

_WHOLES = ("step", *PATH_PARTS)


class SharedWork(NamedTuple):
    """Two runs, reduced to what all of their steps share, and what a reader has to know of it."""

    before: RunProfile
    after: RunProfile
    is_part: bool = False
    said: str = ""


def shared_work(before: RunProfile, after: RunProfile) -> SharedWork:
    """What all steps share of two runs whose steps vary; the runs as they are if it is too little.

    Each run has one kind of steps.
    """
    runs = (before, after)
    if not all(kind.varies for run in runs for kind in run.kinds):
        return SharedWork(before, after)
    calls = [part for run in runs for part in run.parts if part.part in ("kernel", "operator")]
    varying = {part.name for part in calls if part.varies}
    known = {part.name for part in calls}
    if OTHER not in known:
        known |= {neighbour_of(part.name) for run in runs for part in run.parts}
    shared = known - varying - {OTHER}
    one, other = (_only(run, shared) for run in runs)
    shares = [
        _steps_ns(kept) / max(_steps_ns(run), 1)
        for kept, run in zip((one, other), runs, strict=True)
    ]
    if min(shares) < _FEWEST_SHARED:
        said = f"Steps vary in what they do, and share {min(shares):.0%} of their time."
        return SharedWork(before, after, said=f"{said} They are compared as a whole.")
    said = (
        "Steps vary in what they do: only work that all of them do as often is compared, "
        f"{shares[0]:.0%} of the time before, {shares[1]:.0%} after"
    )
    return SharedWork(one, other, is_part=True, said=f"{said}{_left_out(before, shared)}.")


def _only(run: RunProfile, names: set[str]) -> RunProfile:
    """A run reduced to some names; its path by operator becomes that by name."""
    kept = [part for part in run.parts if part.part == "name" and neighbour_of(part.name) in names]
    n = run.kinds[0].n_compared
    pieces = pd.DataFrame(
        {
            "row": np.tile(np.arange(n), len(kept)),
            "bound": np.repeat(np.array([part.bound for part in kept], dtype=object), n),
            "name": np.repeat(np.array([part.name for part in kept], dtype=object), n),
            "calls": np.repeat([part.calls for part in kept], n),
            "dur_ns": np.array([part.steps_ns for part in kept], dtype=np.int64).ravel(),
        }
    )
    by_bound = pieces.assign(name=pieces["bound"])
    whole = pieces.assign(bound="", name=run.unit)
    kind, top = np.zeros(n, dtype=np.int64), len(kept) + 1
    grouped = {"step": whole, "bound": by_bound, "op": pieces, "name": pieces}
    parts: list[Part] = []
    for part, groups in grouped.items():
        parts += reduced(groups, part, kind, top=top)
    others = (part for part in run.parts if part.part not in _WHOLES)
    kept_works = [
        part for part in others if part.part not in ("kernel", "operator") or part.name in names
    ]
    return replace(run, parts=(*parts, *kept_works))


def _steps_ns(run: RunProfile) -> int:
    return sum(part.total_ns for part in run.parts if part.part == "step")


def _left_out(run: RunProfile, shared: set[str]) -> str:
    """The names with most time that are left out, with their shares."""
    total_ns = _steps_ns(run)
    left: dict[str, int] = {}
    for part in run.parts:
        if part.part == "name" and (name := neighbour_of(part.name)) not in shared:
            left[name] = left.get(name, 0) + part.total_ns
    largest = sorted(left, key=lambda name: -left[name])[:_N_NAMED]
    named = [
        f"{name_label(name)} ({left[name] / max(total_ns, 1):.0%})"
        for name in largest
        if name != OTHER
    ]
    return f"; left out: {', '.join(named)}" if named else ""
