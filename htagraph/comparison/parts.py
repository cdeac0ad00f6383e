"""Parts of a run: the time of each group over its steps, and how it varies from step to step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

__all__ = ["OTHER", "Part", "reduced"]

OTHER = "(other)"
"""Group of all that is too short for a row of its own."""


@dataclass(frozen=True)
class Part:
    """Time of one group in all compared steps; of a job's ranks the mean, except on its path.

    Parameters
    ----------
    part : str
        ``step``, the whole; ``bound``, ``op`` and ``name``, of the critical path; ``kernel``,
        ``operator``; ``device``: ``idle``, ``compute``, and exposed ``communication`` and
        ``memory``.
    bound : str
        Bound of the path, empty elsewhere.
    calls : float
        Events per step; on a path, segments.
    total_ns : int, unit=ns
        Of all steps together.
    std_ns : float, unit=ns
        Standard deviation from step to step; 0 for one step.
    first_ns, last_ns, least_ns, most_ns : int, unit=ns
        In the first and the last step, and in the steps with the least and the most.
    """

    part: str
    bound: str
    name: str
    calls: float
    total_ns: int
    std_ns: float
    first_ns: int
    last_ns: int
    least_ns: int
    most_ns: int


def reduced(pieces: pd.DataFrame, part: str, n: int, *, top: int, over: int = 1) -> list[Part]:
    """The longest groups of a part over `n` steps, the longest first; the rest is `OTHER`.

    Parameters
    ----------
    pieces : DataFrame
        ``row``, the step; ``bound``, ``name``, ``calls``, ``dur_ns``.
    top : int
        Groups that are kept.
    over : int, default=1
        Number of devices that pieces are summed over: parts are their mean.
    """
    groups = pieces.groupby(["bound", "name"], sort=False)["dur_ns"].sum()
    kept = groups.sort_values(ascending=False, kind="stable").index[:top]
    if len(kept) < len(groups):
        is_kept = pd.MultiIndex.from_frame(pieces[["bound", "name"]]).isin(kept)
        pieces = pieces.assign(
            bound=pieces["bound"].where(is_kept, ""), name=pieces["name"].where(is_kept, OTHER)
        )
    by_step = pieces.groupby(["bound", "name", "row"], sort=False)[["calls", "dur_ns"]].sum()
    found = by_step.groupby(["bound", "name"], sort=False)
    total, n_with = found.sum(), found.size().to_numpy()
    mean_ns = total["dur_ns"] / n
    away = by_step["dur_ns"] - found["dur_ns"].transform("sum") / n
    spread = away.pow(2).groupby(["bound", "name"], sort=False).sum().to_numpy()
    spread = spread + (n - n_with) * np.square(mean_ns.to_numpy())
    std_ns = np.sqrt(spread / max(n - 1, 1)) * (n > 1)
    row = by_step.index.get_level_values("row")
    ends = [
        by_step["dur_ns"].where(row == end, 0).groupby(["bound", "name"], sort=False).sum()
        for end in (0, n - 1)
    ]
    least = found["dur_ns"].min().where(n_with == n, 0)
    # Integers stay integers: floats lose nanoseconds after 104 days.
    times = [total["dur_ns"], *ends, least, found["dur_ns"].max()]
    columns = (
        (total["calls"] / n / over).tolist(),
        (std_ns / over).tolist(),
        *(
            [time_ns if over == 1 else round(time_ns / over) for time_ns in one.tolist()]
            for one in times
        ),
    )
    parts = [
        Part(part, bound, name, calls, total_ns, std, *others)
        for (bound, name), calls, std, total_ns, *others in zip(
            total.index.tolist(), *columns, strict=True
        )
    ]
    return sorted(parts, key=lambda row: (row.name == OTHER, -row.total_ns, row.bound, row.name))
