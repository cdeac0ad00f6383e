"""Pipelines: which action needs which, and when all end if some take other times.

An action is one phase of one micro-batch on one stage. Each worker keeps the order of its actions.
The forward of a stage needs that of the stage before it, the backward that of the stage after it,
and weights need the gradient of their own stage's input::

    stage 0  [F0][F1]            [B0]
    stage 1      [F0][B0][F1][B1]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.arrays.binding import topological_order
from htagraph.arrays.codes import gather
from htagraph.arrays.matching import match_keys
from htagraph.arrays.retime import latest_times, retime
from htagraph.model.arrays import I32, I64, Bools

PHASES = ("F", "B", "I", "W")
"""Phases of an action: forward; backward, or its two parts: gradients of the input, of weights."""

FORWARD, GRADIENT, INPUT, WEIGHT = range(len(PHASES))


class Schedule(NamedTuple):
    """Actions by their ends, with what each waits for; arrays have one entry per action."""

    order: I64  # Row of each action in the table that the schedule was made of
    # before, needs: position of the previous action of the worker, and of the action whose result
    # it needs; -1 for none
    before: I64
    needs: I64
    # dur_ns, lag_ns, transfer_ns: what it takes; the worker's own time between the previous action
    # and it; the time from the end of the action that it needs until it could begin
    dur_ns: I64
    lag_ns: I64
    transfer_ns: I64
    release_ns: I64  # Earliest begin: that recorded for the first action of each worker
    # How long it began before the end of the action whose result it needs, by the clocks
    early_ns: I64

    def ends(self, dur_ns: I64 | None = None, transfer_ns: I64 | None = None) -> I64:
        """When each action ends, by position, if actions or transfers took other times.

        Without changes these are the recorded ends.
        """
        dur = self.dur_ns if dur_ns is None else dur_ns
        offsets, tail, weight = self._edges(
            dur, self.transfer_ns if transfer_ns is None else transfer_ns
        )
        return retime(offsets, tail, weight, self.release_ns + dur)

    def slack(self, deadline_ns: I64) -> I64:
        """How much later each action could have ended, if each has to end by some time."""
        ends = self.ends()
        return latest_times(*self._edges(self.dur_ns, self.transfer_ns), deadline_ns) - ends

    def _edges(self, dur: I64, transfer: I64) -> tuple[I64, I32, I64]:
        """Offsets, tails and weights of what each action waits for, as for `retime`."""
        tails = np.column_stack([self.before, self.needs])
        weights = np.column_stack([self.lag_ns + dur, transfer + dur])
        there = tails >= 0
        offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        return offsets, tails[there].astype(np.int32), weights[there]


def _needed(run: I64, stage: I64, phase: I64, micro_batch: I64) -> I64:
    """Position of the action that each one needs, -1 for none.

    `run` numbers steps and replicas, between which nothing is passed.
    """
    last, most = int(stage.max()) + 2, int(micro_batch.max()) + 1

    def keys(stage: I64, kind: I64) -> I64:
        return ((run * (last + 1) + stage + 1) * len(PHASES) + kind) * most + micro_batch

    forward, weight = phase == FORWARD, phase == WEIGHT
    kind = np.where(phase == INPUT, GRADIENT, phase)
    there = np.where(forward, stage - 1, np.where(weight, stage, stage + 1))
    return match_keys(keys(there, np.where(weight, GRADIENT, kind)), keys(stage, kind))


def schedule_of(
    worker: I64,
    run: I64,
    stage: I64,
    phase: I64,
    micro_batch: I64,
    begin_ns: I64,
    end_ns: I64,
    waited_ns: I64,
) -> Schedule:
    """What each action waits for, and how long after it the action could begin.

    `worker`: number of the worker and step: its actions run one after another. `run`: number of the
    replica and step: its actions are passed on from stage to stage. `phase`: positions in `PHASES`.
    `waited_ns`: how long the worker did nothing but wait before the action, since its previous one.
    """
    order = np.lexsort((begin_ns, end_ns))
    columns = (worker, run, stage, phase, micro_batch, begin_ns, end_ns, waited_ns)
    worker, run, stage, phase, micro_batch, begin, end, waited = (one[order] for one in columns)
    place = np.arange(len(order))
    if not len(order):
        return Schedule(order, place, place, *[begin] * 5)
    by_worker = np.lexsort((place, worker))
    before = np.full(len(order), -1, dtype=np.int64)
    follows = np.diff(worker[by_worker]) == 0
    before[by_worker[1:][follows]] = by_worker[:-1][follows]
    needs = _needed(run, stage, phase, micro_batch)
    early = np.where(needs >= 0, np.maximum(gather(end, needs, 0) - begin, 0), 0)
    needs = np.where(needs < place, needs, -1)
    since = begin - gather(end, needs, 0)
    # An input that was there before the worker waited is not what it waited for.
    is_input = (needs >= 0) & (since <= waited)
    # Before its input had ended: the clocks are wrong there, and say nothing of other transfers.
    usual = np.maximum(_usual_transfer(stage * len(PHASES) + phase, since, is_input), 0)
    transfer = np.where(is_input, since, np.minimum(since, usual))
    waited = np.where(is_input, waited, 0)
    lag = np.where(before >= 0, begin - gather(end, before, 0) - waited, 0)
    release = np.where(before >= 0, begin.min(), begin - waited)
    return Schedule(order, before, needs, end - begin, lag, transfer, release, early)


def planned(worker: I64, stage: I64, phase: I64, micro_batch: I64) -> Schedule | None:
    """A schedule that was not recorded, all times 0; None if its actions wait for each other.

    `worker`: number of the worker, ascending; its actions run in the order of the rows.
    """
    place = np.arange(len(worker))
    before = np.where(np.diff(worker, prepend=-1) == 0, place - 1, -1)
    needs = _needed(np.zeros_like(worker), stage, phase, micro_batch)
    tails = np.concatenate([before, needs])
    there = tails >= 0
    tail, head = tails[there].astype(np.int32), np.tile(place, 2)[there].astype(np.int32)
    order, cyclic = topological_order(tail, head, np.zeros_like(worker))
    if cyclic.any():
        return None
    at = np.full(len(order) + 1, -1, dtype=np.int64)
    at[order] = place
    none = np.zeros_like(place)
    return Schedule(order.astype(np.int64), at[before[order]], at[needs[order]], *[none] * 5)


def _usual_transfer(kind: I64, since: I64, is_known: Bools) -> I64:
    """Median of what is known of each kind of action, else of all; 0 if nothing is."""
    if not is_known.any():
        return np.zeros(len(kind), dtype=np.int64)
    out = np.full(len(kind), int(np.median(since[is_known])), dtype=np.int64)
    for one in np.unique(kind[is_known]).tolist():
        out[kind == one] = int(np.median(since[is_known & (kind == one)]))
    return out
