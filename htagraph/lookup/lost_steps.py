"""Steps of the profiler that are missing between others: their numbers tell."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from htagraph.lookup.steps import step_events
from htagraph.model.dag import Dag
from htagraph.model.damage import Damage, DamageKind
from htagraph.model.step_markers import step_number
from htagraph.model.units import human_count


def lost_steps(dag: Dag) -> Iterator[Damage]:
    """Yield a row per gap in the numbers, which the profiler counts up by one."""
    rows, _ = step_events(dag.events)
    names = dag.events.names(rows)
    number = np.array([step_number(name) for name in names.tolist()], dtype=np.int64)
    if (np.diff(number) < 1).any():  # of several threads, or no steps of the profiler
        return
    start_ns, end_ns = dag.events.ts_ns[rows], dag.events.end_ns[rows]
    for last in np.flatnonzero(np.diff(number) > 1).tolist():
        before, after = names[last : last + 2]
        n = int(number[last + 1] - number[last] - 1)
        said = (
            f"{human_count(n, 'step')} between {before} and {after} {'is' if n == 1 else 'are'} "
            "missing: what ran then is in no answer, and threads look idle."
        )
        n_all = int(number[-1] - number[0] + 1)
        yield Damage(
            DamageKind.LOST_EVENTS, n, n_all, int(end_ns[last]), int(start_ns[last + 1]), said
        )
