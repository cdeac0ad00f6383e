"""Whether two runs can be compared: the same machine, the same size, about the same work."""

from __future__ import annotations

import pandas as pd

from htagraph.comparison.run_profile import OTHER, RunProfile
from htagraph.explain.differences import short_name

__all__ = ["why_not_comparable"]

_FEWEST_COMMON = 0.5
"""Share of time in common names below which two runs do different work.

Chosen, and documented in `docs/gate.md`. Pinned by
`test_run_diff.py::test_another_model_has_few_names_in_common`.
"""


def why_not_comparable(before: RunProfile, after: RunProfile) -> tuple[str, ...]:
    """Why two runs cannot be compared, in words; empty if they can."""
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
    for side, run in (("before", before), ("after", after)):
        if run.most_are_odd:
            said.append(f"{side}, {run.most_are_odd}")
    common = _common_share(before, after)
    if common < _FEWEST_COMMON:
        said.append(f"names in common make up {common:.0%} of the time: different work")
    return tuple(said)


def _common_share(before: RunProfile, after: RunProfile) -> float:
    """Share of time in names that both runs have; of kernels or operators, the larger share.

    Kernel names lose their template arguments, which change with types and shapes.
    """
    shares = [_common(_times(before, part), _times(after, part)) for part in ("kernel", "operator")]
    known = [share for share in shares if share is not None]
    return max(known, default=1.0)


def _times(run: RunProfile, part: str) -> pd.Series:
    rows = run.frame[(run.frame["part"] == part) & (run.frame["name"] != OTHER)]
    return rows["total_ns"].groupby(rows["name"].map(short_name)).sum()


def _common(before: pd.Series, after: pd.Series) -> float | None:
    """Share of time in common names, on the side where it is smaller."""
    total = before.sum(), after.sum()
    if not all(total):
        return 0.0 if any(total) else None
    names = before.index.intersection(after.index)
    return float(min(before[names].sum() / total[0], after[names].sum() / total[1]))
