"""What all steps of two runs share, where steps vary in what they do.

The length of a batch, the tokens of an expert or the requests of a server may change how often an
operator runs. Then no two steps do the same work, but they share most of it: the names that are
called as often in every step. These are compared; the others are left out, and named.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.comparison.places import neighbour_of
from htagraph.comparison.profiling import reduced
from htagraph.comparison.run_profile import OTHER, PATH_PARTS, Part, RunProfile
from htagraph.model.labels import name_label

_FEWEST_SHARED = 0.5
"""Share of the time that steps have to share: else they are compared as a whole.

Chosen, as that of names in common. Pinned by
`test_shared_work.py::test_steps_that_share_little_are_compared_as_a_whole`.
"""

_N_NAMED = 2
"""Names that are left out and told; more is no sentence. Pinned by `test_shared_work.py`."""

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
