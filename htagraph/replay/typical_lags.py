"""How long launches, gaps and stream waits take where they do not bind: as long as where they do.

The lag of an edge is the least that its mechanism takes. Where an edge binds, the run shows what it
took; where it does not, in another run it may bind, and take what such edges usually take.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind
from htagraph.model.rules import Rule
from htagraph.replay.replay import Replay

__all__ = ["with_typical_lags"]

I64 = npt.NDArray[np.int64]

_RULES = (
    Rule.CORRELATION,
    Rule.GRAPH_REPLAY,
    Rule.STREAM_ORDER,
    Rule.SYNC_RECORD,
    Rule.RECORD_AND_WAIT_ORDER,
    Rule.ENDED_RIGHT_BEFORE,
)
_ENOUGH = 5
_UNMEASURED_GAP_NS = {50: 1_000, 90: 2_000}
"""Gaps between queued kernels where none was measured (A100 and H100: 0.8 to 1.5 us)."""


def with_typical_lags(dag: Dag, replay: Replay, percentile: int) -> Replay:
    """The replay with edges that did not bind as long as others of their rule that did.

    Parameters
    ----------
    replay : Replay
        Whose residuals belong to the edges that arrived last.
    percentile : int
        50 or 90: of the times of edges that bound, as far as these are usual.
    """
    elapsed = replay.ts_ns[replay.head] - replay.ts_ns[replay.tail]
    binds = replay.lag_ns + replay.extra_ns == elapsed
    into_device = dag.events.is_device[replay.node[replay.head] >> 1]
    lag = replay.lag_ns.copy()
    usual = {EdgeKind.STREAM: dag.calibration.stream_usual_ns}
    for rule in _RULES:
        mine = (replay.rule == rule) & into_device
        took = elapsed[mine & binds]
        took = took[took <= usual.get(rule.kind, dag.calibration.launch_usual_ns)]
        if len(took) >= _ENOUGH:
            typical = int(np.percentile(took, percentile, method="lower"))
        elif rule is Rule.STREAM_ORDER and not dag.calibration.stream_floor_ns:
            typical = _UNMEASURED_GAP_NS[percentile]
        else:
            continue
        rows = np.flatnonzero(mine & ~binds)
        lag[rows] = np.minimum(np.maximum(lag[rows], typical), elapsed[rows])
    return replace(replay, lag_ns=lag)
