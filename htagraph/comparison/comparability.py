"""Whether two runs can be compared: the same machine, the same size, about the same work."""

from __future__ import annotations

import pandas as pd

from htagraph.comparison.parts import OTHER
from htagraph.comparison.run_profile import RunProfile
from htagraph.explain.differences import short_name

__all__ = ["why_not_comparable"]

_FEWEST_COMMON = 0.5
_MOST_ODD = 0.5


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
        if run.n_odd > _MOST_ODD * run.n_steps:
            said.append(f"{side}, {run.n_odd} of {run.n_steps} steps are not like the others")
    common = _common_share(before, after)
    if common < _FEWEST_COMMON:
        said.append(f"names that both have are {common:.0%} of the time: other work")
    return tuple(said)


def _common_share(before: RunProfile, after: RunProfile) -> float:
    """Share of the time that names have which both runs know; of kernels or operators, the larger.

    Names of kernels are compared without templates, which change with types and shapes.
    """
    shares = [_common(_times(before, part), _times(after, part)) for part in ("kernel", "operator")]
    known = [share for share in shares if share is not None]
    return max(known, default=1.0)


def _times(run: RunProfile, part: str) -> pd.Series:
    """Time of each name of a part."""
    rows = run.frame[(run.frame["part"] == part) & (run.frame["name"] != OTHER)]
    return rows["total_ns"].groupby(rows["name"].map(short_name)).sum()


def _common(before: pd.Series, after: pd.Series) -> float | None:
    """Share of the time of names that both sides have, of that side where it is smaller."""
    total = before.sum(), after.sum()
    if not all(total):
        return 0.0 if any(total) else None
    names = before.index.intersection(after.index)
    return float(min(before[names].sum() / total[0], after[names].sum() / total[1]))
