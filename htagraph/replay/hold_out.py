"""Hold-out test: how well each step of a trace is predicted from the step before.

A step is replayed with its own durations of work and host code, but with the edges, launch delays,
gaps and returns of the step before it. The error is the least that a prediction of another run has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htagraph.algorithms.retime import retime
from htagraph.lookup.steady_steps import SteadySteps, steady_steps
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind
from htagraph.model.rules import Rule
from htagraph.replay.replay import Replay

HOLD_OUT_LIMIT = 0.2
"""Median error above which nothing is predicted. Chosen: test_hold_out has 15% and 25%."""
_MOST_PAIRS = 12
"""Last pairs of steps to replay. Chosen: enough for a median; test_hold_out has 15 pairs."""
_MOST_NS = 2**60
"""A limit, so that intervals stay in 64 bits. Pinned by
`test_hold_out.py::test_runs_of_damaged_times_differ_by_what_fits`."""
_DEVIATIONS = 3
"""Standard deviations of steps by which a saving may differ in another run. Measured on the fit
pairs of `bench_intervals`: 92% of intervals hold, with 2 it is 87%; ``test_intervals`` compares."""


@dataclass(frozen=True)
class HoldOut:
    """Errors of steps predicted from the step before.

    Parameters
    ----------
    errors : tuple of float
        Of each pair, as a share of the step; positive if predicted too long.
    spread : float
        How much typical steps differ, see `step_spread`: no prediction of another run is better.
    """

    errors: tuple[float, ...]
    spread: float = 0.0

    @property
    def error(self) -> float | None:
        """Median absolute error; None without two steps that do the same."""
        return float(np.median(np.abs(self.errors))) if self.errors else None

    def __str__(self) -> str:
        """Describe the test in a sentence."""
        if self.error is None:
            return "no two steps do the same, so no step was predicted from another"
        worst = max(map(abs, self.errors))
        return (
            f"steps predict each other within {self.error:.1%} (worst {worst:.1%}, of "
            f"{len(self.errors)}); typical steps differ by {self.spread:.1%}"
        )

    @property
    def is_too_large(self) -> bool:
        """Whether predictions from this trace are withheld."""
        return self.error is not None and self.error > HOLD_OUT_LIMIT


def hold_out(dag: Dag, replay: Replay) -> HoldOut:
    """Errors of neighboring steps that run the same events in the same order.

    They may differ in length: to compare only steps of one length would flatter the prediction.
    """
    steps = steady_steps(dag)
    found = []
    for first in range(len(steps.is_steady) - 1)[-_MOST_PAIRS:]:
        rows = [steps.parts.event[steps.parts.part >> 1 == first + place] for place in (0, 1)]
        mapped = _same(dag, rows[0], rows[1])
        if mapped is not None:
            found.append(_error(replay, *mapped))
    return HoldOut(tuple(found), step_spread(steps))


def step_spread(steps: SteadySteps) -> float:
    """Standard deviation of the lengths of steps of the same work, as a share of their mean.

    0 of fewer than two. Long ones count: they show what may happen in another run.
    """
    alike = steps.compared_ns[steps.is_same_work]
    return float(alike.std(ddof=1) / max(alike.mean(), 1)) if len(alike) > 1 else 0.0


def run_to_run_ns(spread: float, window_ns: int) -> int:
    """By how much what a window takes may differ in another run."""
    # Steps of damaged times differ by centuries.
    return min(round(_DEVIATIONS * spread * window_ns), _MOST_NS)


def _same(dag: Dag, first: I64, second: I64) -> tuple[I64, I64] | None:
    """Events of two steps in the same order; None if they differ."""
    events = dag.events
    if not len(first) or len(first) != len(second):
        return None
    both = []
    for rows in (first, second):
        order = np.lexsort(
            (-events.dur_ns[rows], events.ts_ns[rows], events.stream[rows], events.lane[rows])
        )
        both.append(rows[order])
    first, second = both
    same = (events.name[first] == events.name[second]) & (events.lane[first] == events.lane[second])
    return (first, second) if same.all() else None


def _error(replay: Replay, first: I64, second: I64) -> float:
    """Error of the second step, predicted from the first, as a share of its length."""
    places = replay.places
    mine, other = (
        np.concatenate([places[2 * rows], places[2 * rows + 1]]) for rows in (first, second)
    )
    order = np.argsort(mine)
    mine, other = mine[order], other[order]
    ts_ns = replay.ts_ns[other]
    edges, tail, head = _inside(replay, mine)
    release, is_carried = _carried(replay, other, int(ts_ns.min()))
    is_entered = is_carried.copy()
    is_entered[head] = True
    release[~is_entered] = ts_ns[~is_entered]
    own = np.isin(replay.kind[edges], (EdgeKind.SPAN,)) | (replay.rule[edges] == Rule.PROGRAM_ORDER)
    elapsed = ts_ns[head] - ts_ns[tail]
    weight = np.where(own, elapsed, replay.lag_ns[edges] + replay.extra_ns[edges])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(head, minlength=len(mine)))])
    times = retime(offsets.astype(np.int64), tail.astype(np.int32), weight, release)
    length = int(ts_ns.max() - ts_ns.min())
    return float(times.max() - ts_ns.max()) / max(length, 1)


def _local(replay: Replay, nodes: I64) -> I64:
    """Number of each position among those of a step, -1 for others."""
    found = np.full(len(replay.node), -1, dtype=np.int64)
    found[nodes] = np.arange(len(nodes))
    return found


def _inside(replay: Replay, nodes: I64) -> tuple[I64, I64, I64]:
    """Edges within a step, with the numbers of their tails and heads."""
    local = _local(replay, nodes)
    edges = replay.rows_at(nodes)
    edges = edges[local[replay.tail[edges]] >= 0]
    return edges, local[replay.tail[edges]], local[replay.head[edges]]


def _carried(replay: Replay, nodes: I64, first_ns: int) -> tuple[I64, Bools]:
    """Earliest times that edges from before a step allow its nodes, and which nodes have any."""
    local = _local(replay, nodes)
    edges = replay.rows_at(nodes)
    edges = edges[local[replay.tail[edges]] < 0]
    release = np.full(len(nodes), first_ns, dtype=np.int64)
    arrival = replay.ts_ns[replay.tail[edges]] + replay.lag_ns[edges] + replay.extra_ns[edges]
    np.maximum.at(release, local[replay.head[edges]], arrival)
    is_carried = np.zeros(len(nodes), dtype=bool)
    is_carried[local[replay.head[edges]]] = True
    return release, is_carried
