"""The own time of calls that waited: what calls of the same name take without a wait."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.model.arrays import I32, I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule


def held_calls(dag: Dag, edges: EdgeTable) -> Bools:
    """Whether each edge spans a runtime call that waited."""
    call = edges.event.astype(np.int64)
    held = (edges.rule == Rule.BLOCKING_CALL) & (call >= 0)
    held &= (edges.tail == 2 * call) & (edges.head == 2 * call + 1)
    runtime: Bools = held & (dag.events.kind[call] == EventKind.RUNTIME)
    return runtime


def own_times(dag: Dag, calls: I32, share: float) -> I64:
    """Quantile of the times of calls of the same name that did not wait, at most the call's own.

    If all of a name waited, calls that enqueue work take the time of a launch, others none.
    """
    events, edges = dag.events, dag.edges
    if not len(calls):
        return np.empty(0, dtype=np.int64)
    is_free = events.kind == EventKind.RUNTIME
    waited = edges.event[edges.rule == Rule.BLOCKING_CALL]
    is_free[waited[waited >= 0]] = False
    free = np.flatnonzero(is_free & np.isin(events.name, events.name[calls]))
    by_name = pd.Series(events.dur_ns[free]).groupby(events.name[free])
    usual = by_name.quantile(share, interpolation="lower")
    enqueues = np.zeros(len(events), dtype=bool)
    enqueues[dag.launch[dag.launch >= 0]] = True
    launches = events.dur_ns[enqueues & is_free]
    of_launches = float(np.quantile(launches, 0.5, method="lower")) if len(launches) else 0.0
    own = usual.reindex(events.name[calls]).to_numpy(np.float64)
    own = np.where(np.isnan(own), np.where(enqueues[calls], of_launches, 0.0), own)
    return np.minimum(own.astype(np.int64), events.dur_ns[calls])
