"""Steps of the profiler that are missing between others: their numbers tell."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from htagraph.lookup.steps import find_steps
from htagraph.model.dag import Dag
from htagraph.model.damage import Damage, DamageKind
from htagraph.model.step_markers import step_number
from htagraph.model.units import human_count

__all__ = ["lost_steps"]


def lost_steps(dag: Dag) -> Iterator[Damage]:
    """Yield a row per gap in the numbers, which the profiler counts up by one."""
    steps = find_steps(dag.events)
    number = np.array([step_number(name) for name in steps["name"]], dtype=np.int64)
    if (np.diff(number) < 1).any():  # of several threads, or no steps of the profiler
        return
    start_ns = steps["start_ns"].to_numpy(np.int64)
    end_ns = start_ns + steps["dur_ns"].to_numpy(np.int64)
    for last in np.flatnonzero(np.diff(number) > 1).tolist():
        before, after = steps["name"].iloc[last : last + 2]
        n = int(number[last + 1] - number[last] - 1)
        said = (
            f"{human_count(n, 'step')} between {before} and {after} {'is' if n == 1 else 'are'} "
            "missing: what ran then is in no answer, and threads look idle."
        )
        n_all = int(number[-1] - number[0] + 1)
        yield Damage(
            DamageKind.LOST_EVENTS, n, n_all, int(end_ns[last]), int(start_ns[last + 1]), said
        )
