"""How long a step of a pipeline would take with another schedule, or other micro-batches.

The recorded times of actions are put in the order of the schedule that is asked for. Stages and
micro-batches of another number share the recorded work in its order::

    recorded     [ stage 0       ][ stage 1       ]
    two chunks   [   0  ][   1   ][   2  ][   3   ]

All schedules have one shape: forwards ahead, then a forward and a backward in turn, then the
backwards that are left. They differ in how many forwards are ahead, of two stages::

    gpipe  rank 0  [F0][F1][F2]        [B0][B1][B2]
           rank 1      [F0][F1][F2][B0][B1][B2]
    1f1b   rank 0  [F0][F1]    [B0][F2][B1]    [B2]
           rank 1      [F0][B0][F1][B1][F2][B2]

Interleaved: each rank holds several stages (chunks), and runs as many micro-batches as there are
ranks on one of them, then on the next. Zero bubble: gradients of weights run later than those of
inputs, where a rank would wait. Huang et al., "GPipe", 2019; Narayanan et al., "Efficient
large-scale language model training", 2021; Qi et al., "Zero bubble pipeline parallelism", 2023.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.pipelines import FORWARD, GRADIENT, INPUT, PHASES, WEIGHT, planned
from htagraph.errors import QueryError
from htagraph.job.pipeline import Pipeline
from htagraph.model.arrays import F64, I64
from htagraph.model.job_answers import PIPELINE_WHAT_IF
from htagraph.model.schema import categorical

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble")
"""Schedules that have an order here."""


class Order(NamedTuple):
    """Actions, rank by rank and in the order of each; arrays have one entry per action.

    Stage s is on rank s modulo the number of ranks; a phase is its position in `PHASES`.
    """

    rank: I64
    stage: I64
    phase: I64
    micro_batch: I64


def round_of(n_ranks: int, n_batches: int) -> int:
    """Micro-batches that run on one stage before the rank's next one; 0 if rounds are uneven."""
    n_rounds = max(1, n_batches // n_ranks)
    return 0 if n_batches % n_rounds else n_batches // n_rounds


def order_of(schedule: str, n_ranks: int, n_batches: int, chunks: int = 1) -> Order:
    """The order of a schedule, one of `SCHEDULES`.

    `chunks`: stages of each rank; if several, `round_of` must not be 0.
    """
    n, size = n_batches * chunks, round_of(n_ranks, n_batches) if chunks > 1 else n_batches
    rank, place = np.divmod(np.arange(n_ranks * n, dtype=np.int64), n)
    if schedule == "gpipe":
        ahead = np.full_like(rank, n)
    else:
        hops = 2 if schedule == "interleaved" else 1
        ahead = np.minimum((chunks - 1) * size + hops * (n_ranks - 1 - rank), n)
    chunk = place // size % chunks
    number = place // (size * chunks) * size + place % size
    forth, back = (each * n_ranks + rank for each in (chunk, chunks - 1 - chunk))
    is_split = schedule == "zero_bubble"
    # When each action's turn is; of one turn, a forward is first, then a backward, then weights.
    turns = [(FORWARD, forth, place), (INPUT if is_split else GRADIENT, back, place + ahead)]
    if is_split:
        turns.append((WEIGHT, back, place + ahead + rank))
    ranks, batches = np.tile(rank, len(turns)), np.tile(number, len(turns))
    phase = np.repeat([one[0] for one in turns], len(rank))
    stage, turn = (np.concatenate([one[at] for one in turns]) for at in (1, 2))
    order = np.lexsort((phase, turn, ranks))
    return Order(ranks[order], stage[order], phase[order], batches[order])


_HINT = "without options, it tries every schedule that it can."

_MOST_ACTIONS = 4_000_000
"""Actions of all steps up to which a plan is tried. A limit of memory, chosen. Pinned by
test_pipeline_kernels."""


class Plan(NamedTuple):
    """A schedule, stages of each rank, and micro-batches of a step."""

    schedule: str
    chunks: int
    n_batches: int


def _divided(values: F64, n_new: int, axis: int) -> F64:
    """Values of another number of parts, which divide the same whole evenly, in its order.

    >>> _divided(np.array([4.0, 8.0]), 4, 0).tolist(), _divided(np.array([4.0, 8.0]), 1, 0).tolist()
    ([2.0, 2.0, 4.0, 4.0], [12.0])
    """
    parts = np.moveaxis(values, axis, -1)
    n_old = parts.shape[-1]
    whole, rest = np.divmod(np.arange(n_new + 1) * n_old, n_new)
    sums = np.cumsum(parts, axis=-1)
    before = np.concatenate([np.zeros_like(sums[..., :1]), sums], axis=-1)[..., whole]
    reached = before + parts[..., np.minimum(whole, n_old - 1)] * (rest / n_new)
    return np.asarray(np.moveaxis(np.diff(reached, axis=-1), -1, axis), dtype=np.float64)


class _Recorded:
    """A recorded pipeline, whose times can be put in another order."""

    def __init__(self, pipeline: Pipeline) -> None:
        acts = pipeline.actions
        self.pipeline, self.n_stages = pipeline, pipeline.n_stages
        self.n_ranks = int(acts.groupby("replica")["rank"].nunique().max())
        self.chunks, self._rest = divmod(self.n_stages, self.n_ranks)
        self.n_batches = int(acts["micro_batch"].max()) + 1
        lowest = acts.groupby(["replica", "rank"])["stage"].min()
        place = lowest.groupby("replica").rank(method="first").droplevel("replica") - 1
        cells = acts.assign(
            run=acts.groupby(["step", "replica"]).ngroup(),
            worker=acts["rank"].map(place).astype(np.int64),
            phase=pipeline.column("phase"),
        )
        self.cells = cells.iloc[pipeline.schedule.order].reset_index(drop=True)

    @property
    def is_whole(self) -> bool:
        """Whether ranks hold as many stages, and each step has all backwards and micro-batches."""
        n_of = self._n_of_phase
        numbers = self.cells.groupby("run")["micro_batch"].nunique()
        is_trained = n_of[GRADIENT] + n_of[INPUT] == n_of[FORWARD]
        return bool(not self._rest and is_trained and (numbers == self.n_batches).all())

    @cached_property
    def _n_of_phase(self) -> I64:
        return np.bincount(self.cells["phase"], minlength=len(PHASES))

    def lacks(self, plan: Plan) -> str:
        """What makes it impossible to try a plan; empty if nothing does."""
        n_of = self._n_of_phase
        is_split = n_of[INPUT] == n_of[WEIGHT] == n_of[FORWARD]
        if plan.schedule == "zero_bubble" and not is_split:
            return "gradients of weights were not recorded apart from those of inputs"
        if plan.schedule in ("gpipe", "1f1b") and plan.chunks > 1:
            return f"{plan.schedule} has one chunk"
        if plan.schedule == "interleaved" and plan.chunks == 1:
            return "interleaved has several chunks"
        n_actions = len(PHASES) * self.n_ranks * plan.chunks * plan.n_batches
        if n_actions * self.cells["run"].nunique() > _MOST_ACTIONS:
            return f"{plan.n_batches:,} micro-batches in {plan.chunks:,} chunks are too many"
        if plan.chunks > 1 and not round_of(self.n_ranks, plan.n_batches):
            return f"{plan.n_batches} micro-batches are no equal rounds of {self.n_ranks} ranks"
        return ""

    def order_of(self, plan: Plan) -> Order:
        """The actions of a plan."""
        return order_of(plan.schedule, self.n_ranks, plan.n_batches, plan.chunks)

    @cached_property
    def plan(self) -> Plan:
        """What was recorded; the schedule is empty if it is none of `SCHEDULES`."""
        did = self.cells[self.cells["run"] == 0].sort_values("worker", kind="stable")
        names = ["worker", "stage", "phase", "micro_batch"]
        columns = tuple(did[name].to_numpy(np.int64) for name in names)
        for schedule in SCHEDULES:
            plan = Plan(schedule, self.chunks, self.n_batches)
            if not self.lacks(plan) and np.array_equal(self.order_of(plan), columns):
                return plan
        return Plan("", self.chunks, self.n_batches)

    def _by_action(self, values: F64) -> F64:
        """Values of actions by run, phase, stage and micro-batch; nan if there is no such action.

        A backward whose parts were recorded apart has a place of its own, which is empty.
        """
        keys = ("run", "phase", "stage", "micro_batch")
        place = tuple(self.cells[key].to_numpy(np.int64) for key in keys)
        sizes = (int(place[0].max()) + 1, len(PHASES), self.n_stages, self.n_batches)
        out = np.full(sizes, np.nan)
        out[place] = values
        return out

    def _taken(self, values: F64) -> F64:
        """Time of each action; a backward takes as long as its parts."""
        out = np.nan_to_num(self._by_action(values))
        out[:, GRADIENT] += out[:, INPUT] + out[:, WEIGHT]
        return out

    @cached_property
    def _times(self) -> F64:
        """Recorded time of each action."""
        return self._taken(self.pipeline.schedule.dur_ns.astype(np.float64))

    @cached_property
    def _python(self) -> F64:
        """The part of it in which no operator ran."""
        python = self.cells["python_ns"].to_numpy(np.float64)
        return self._taken(np.minimum(python, self.pipeline.schedule.dur_ns))

    @cached_property
    def _waits(self) -> F64:
        """Own time of the rank before each action, and the transfer to it.

        As usual for its phase if not known: nothing is before the first action of a rank, and
        nothing is passed to the first stage.
        """
        one = self.pipeline.schedule
        found = []
        for values, is_known in ((one.lag_ns, one.before >= 0), (one.transfer_ns, one.needs >= 0)):
            out = self._by_action(np.where(is_known, values, np.nan))
            out[:, GRADIENT] = np.where(np.isnan(out[:, GRADIENT]), out[:, INPUT], out[:, GRADIENT])
            for phase in range(len(PHASES)):
                known = out[:, phase][~np.isnan(out[:, phase])]
                usual = np.median(known) if len(known) else 0.0
                out[:, phase] = np.nan_to_num(out[:, phase], nan=usual)
            found.append(out)
        return np.stack(found)

    @cached_property
    def _release(self) -> I64:
        """When each worker of each run could begin, since its step began."""
        first = self.pipeline.schedule.before < 0
        cells = self.cells[first].assign(release=self.pipeline.schedule.release_ns[first])
        begun = self.cells.groupby("step")["begin_ns"].min()
        since = cells["release"] - cells["step"].map(begun)
        out = np.zeros((int(self.cells["run"].max()) + 1, self.n_ranks), dtype=np.int64)
        out[cells["run"], cells["worker"]] = since
        return out

    def bubble(self, plan: Plan) -> float:
        """Share of a step without work if stages and micro-batches were equal, transfers free."""
        order = self.order_of(plan)
        one = planned(*order)
        if one is None:
            return np.nan
        n_of = np.bincount(order.phase, minlength=len(PHASES))
        mean = self._times.sum(axis=(0, 2, 3)) / len(self._times) / np.maximum(n_of, 1)
        dur = np.maximum(np.round(mean), 1).astype(np.int64)[order.phase[one.order]]
        return float(1 - dur.sum() / (self.n_ranks * one.ends(dur).max()))

    def step_ns(self, plan: Plan, *, is_proportional: bool) -> float:
        """How long a step would take on average; nan if its actions wait for each other.

        Proportional: transfers, the time between actions, and that in Python are split with the
        work, else they stay as they are.
        """
        order = self.order_of(plan)
        n_stages = plan.chunks * self.n_ranks
        more_stages, more_batches = n_stages / self.n_stages, plan.n_batches / self.n_batches

        def divided(values: F64) -> F64:
            parts = _divided(_divided(values, n_stages, -2), plan.n_batches, -1)
            return parts[:, order.phase, order.stage, order.micro_batch]

        dur, lag, transfer = (divided(one) for one in (self._times, *self._waits))
        transfer *= more_stages
        if not is_proportional:
            more = more_stages * more_batches
            dur += divided(self._python) * (more - 1)
            lag, transfer = lag * more, transfer * more_batches
        times = [np.round(one).astype(np.int64) for one in (dur, lag, transfer)]
        one = planned(*order)
        if one is None:
            return np.nan
        steps = self.cells.groupby("run")["step"].first().to_numpy(np.int64)
        bounds = []
        for run, release in enumerate(self._release):
            own, before, passed = (each[run, one.order] for each in times)
            run_of = one._replace(lag_ns=before, release_ns=release[order.rank[one.order]])
            ends = run_of.ends(own, passed)
            bounds.append(((ends - own).min(), ends.max()))
        spans = pd.DataFrame(bounds, columns=["begin", "end"]).groupby(steps)
        return float((spans["end"].max() - spans["begin"].min()).mean())


def pipeline_what_if(
    pipeline: Pipeline, schedule: str, chunks: int, n_micro_batches: int
) -> pd.DataFrame:
    """Steps with other schedules, schema `job_answers.PIPELINE_WHAT_IF`; the shortest first."""
    one = _Recorded(pipeline)
    if not one.is_whole:
        return PIPELINE_WHAT_IF.empty()
    number = n_micro_batches or one.n_batches
    usual = {"interleaved": max(one.chunks, 2), "zero_bubble": one.chunks}
    plans = [Plan(name, chunks or usual.get(name, 1), number) for name in SCHEDULES]
    plans = [plan for plan in plans if schedule in ("all", plan.schedule)]
    lacks = [one.lacks(plan) for plan in plans]
    if all(lacks):
        reasons = "; ".join(dict.fromkeys(lacks))
        raise QueryError(f"pipeline_what_if: {reasons}.", hint=_HINT)
    step_ns = int(pipeline.step_ns.mean())
    rows = []
    for plan in (plan for plan, lack in zip(plans, lacks, strict=True) if not lack):
        ends = [one.step_ns(plan, is_proportional=each) for each in (True, False)]
        if not np.isnan(ends).any():
            least_ns, most_ns = int(min(ends)), int(max(ends))
            rows.append((*plan, plan == one.plan, step_ns, least_ns, most_ns, one.bubble(plan)))
    table = pd.DataFrame(rows, columns=[*PIPELINE_WHAT_IF.columns])
    table = table.sort_values(["most_ns", "least_ns"], kind="stable", ignore_index=True)
    names = categorical(table["schedule"].map(SCHEDULES.index).astype(np.int64), SCHEDULES)
    columns = {name: table[name].to_numpy() for name in PIPELINE_WHAT_IF.columns}
    return PIPELINE_WHAT_IF.frame({**columns, "schedule": names})
