"""How well replays predict a trace: each step from the graph of another one.

A step is replayed with its own durations of work and host code, but with the edges, launch delays,
gaps and returns of the step before it. What it misses by is how far structure and delays of one
step hold for another: the least error that a prediction about other runs has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.retime import retime
from htagraph.lookup.steady_steps import steady_steps
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind
from htagraph.model.rules import Rule
from htagraph.replay.replay import Replay

__all__ = ["HOLD_OUT_LIMIT", "HoldOut", "hold_out"]

Bools = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]

HOLD_OUT_LIMIT = 0.2
"""Error above which nothing is predicted."""

_MOST_PAIRS = 12


@dataclass(frozen=True)
class HoldOut:
    """Errors of steps that were predicted from the one before.

    Parameters
    ----------
    errors : tuple of float
        Of each pair, as a share of the step: positive where it is predicted too long.
    spread : float
        By how much alike steps differ in length, at the median: no prediction of another run is
        better than that. 0 of fewer than two.
    """

    errors: tuple[float, ...]
    spread: float = 0.0

    @property
    def error(self) -> float | None:
        """Median size of the errors; None without a pair of steps that do the same."""
        return float(np.median(np.abs(self.errors))) if self.errors else None

    def __str__(self) -> str:
        """Say it in a sentence."""
        if self.error is None:
            return "no two steps do the same, so that no step was predicted from another"
        return (
            f"each step predicted from the one before: {self.error:.1%} off at the median, "
            f"{max(map(abs, self.errors)):.1%} at worst, of {len(self.errors)}; alike steps differ "
            f"by {self.spread:.1%}"
        )

    @property
    def is_too_large(self) -> bool:
        """Whether nothing should be predicted from this trace."""
        return self.error is not None and self.error > HOLD_OUT_LIMIT


def hold_out(dag: Dag, replay: Replay) -> HoldOut:
    """Errors of the steps of a trace, each predicted from the one before.

    Parameters
    ----------
    replay : Replay
        As the first reading gives it.

    Returns
    -------
    HoldOut
        Of steps that do the same, however long they take: only those of a length would be too kind.
        Without errors where no two neighbouring steps run the same events in the same order.
    """
    steps = steady_steps(dag)
    found = []
    for first in range(len(steps.is_steady) - 1)[-_MOST_PAIRS:]:
        rows = [steps.parts.event[steps.parts.part >> 1 == first + place] for place in (0, 1)]
        mapped = _same(dag, rows[0], rows[1])
        if mapped is not None:
            found.append(_error(replay, *mapped))
    alike = steps.compared_ns[steps.is_steady]
    middle = float(np.median(alike)) if len(alike) > 1 else 0.0
    spread = float(np.median(np.abs(alike - middle))) / middle if middle else 0.0
    return HoldOut(tuple(found), spread)


def _same(dag: Dag, first: I64, second: I64) -> tuple[I64, I64] | None:
    """Events of two steps in the same order; None where they are not the same."""
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
    weight = np.where(own, elapsed, replay.weight_ns[edges])
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
    edges = np.flatnonzero((local[replay.head] >= 0) & (local[replay.tail] >= 0))
    return edges, local[replay.tail[edges]], local[replay.head[edges]]


def _carried(replay: Replay, nodes: I64, first_ns: int) -> tuple[I64, Bools]:
    """When what a step finds as it begins lets each of its nodes happen, and which it leads to."""
    local = _local(replay, nodes)
    edges = np.flatnonzero((local[replay.head] >= 0) & (local[replay.tail] < 0))
    release = np.full(len(nodes), first_ns, dtype=np.int64)
    arrival = replay.ts_ns[replay.tail[edges]] + replay.weight_ns[edges]
    np.maximum.at(release, local[replay.head[edges]], arrival)
    is_carried = np.zeros(len(nodes), dtype=bool)
    is_carried[local[replay.head[edges]]] = True
    return release, is_carried
