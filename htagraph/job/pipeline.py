"""Pipelines: what stages did in each step, where they waited, and what of that was slow.

Actions of all ranks are one table, `frames.PIPELINE_ACTIONS`, whatever recorded them; with the
order of each rank kept, it is also a simulation of the run (`htagraph.arrays.pipelines`). Stages
are named by annotations, or follow from the ranks that sends and receives name, or from times:
ranks are stages in the order in which they begin, if on one host no action then begins before the
one that it needs has ended. Else there are several readings, and nothing is joined or matched.

What is slow is asked in this order, each with the causes before it repaired: a slow rank among
replicas of its stage, or with all its stages slow; a slow stage; an uneven micro-batch; an action
that is slow in every step; transfers. Else a slow machine would be called a stage with too many
layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from htagraph.arrays.clocks import ONE_HOST_NS, Clock
from htagraph.arrays.codes import gather, lower_medians
from htagraph.arrays.intervals import Cover, sum_by_code
from htagraph.arrays.pipelines import (
    FORWARD,
    GRADIENT,
    INPUT,
    PHASES,
    WEIGHT,
    Schedule,
    schedule_of,
)
from htagraph.explain.segment_pieces import with_part_of
from htagraph.findings.verdict import Finding, Fix
from htagraph.job.pipeline_actions import RankActions
from htagraph.model.arrays import F64, I64, Bools, Texts
from htagraph.model.frames import PIPELINE_ACTIONS
from htagraph.model.job_answers import PIPELINE, PIPELINE_SAVINGS, PIPELINE_SCHEDULE
from htagraph.model.kinds import Cause
from htagraph.model.schema import categorical
from htagraph.model.units import human_duration

STALLS = ("rank", "stage", "micro_batch", "action", "transfer", "between")
"""What stalls are due to, in the order of asking: slow parts, transfers, time between actions."""


@dataclass(frozen=True)
class Pipeline:
    """The actions of a pipeline, and the steps and waits of its ranks; times are common."""

    actions: pd.DataFrame  # Schema `frames.PIPELINE_ACTIONS`
    steps: pd.DataFrame  # ``rank``, ``step``, ``start_ns``, ``end_ns``: a row per rank and step
    waits: pd.DataFrame  # ``rank``, ``start_ns``, ``end_ns``: blocked in sends and receives
    step_numbers: Mapping[str, int] = field(default_factory=dict)  # By name

    def column(self, name: str) -> I64:
        """A column of the actions; a phase is its position in `PHASES`."""
        column = self.actions[name]
        return np.asarray(column.cat.codes if name == "phase" else column, dtype=np.int64)

    @cached_property
    def schedule(self) -> Schedule:
        """What each action waits for; positions are by the ends of actions."""
        times = (self.column(name) for name in ("begin_ns", "end_ns", "waited_ns"))
        return schedule_of(
            _groups(self.actions, ["rank", "step"]),
            _groups(self.actions, ["replica", "step"]),
            *(self.column(name) for name in ("stage", "phase", "micro_batch")),
            *times,
        )

    @cached_property
    def contradicted(self) -> I64:
        """Steps in which an action began before the one that it needs had ended, by the clocks."""
        early = self.schedule.early_ns > ONE_HOST_NS
        return np.unique(self.column("step")[self.schedule.order[early]])

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return int(self.actions["stage"].max()) + 1

    @property
    def step_ns(self) -> I64:
        """Length of each step: from the first begin of any action to the last end."""
        steps = self.actions.groupby("step")
        length = steps["end_ns"].max() - steps["begin_ns"].min()
        return np.asarray(length, dtype=np.int64)

    def last_ends(self, ends: I64) -> I64:
        """The last end of each step."""
        step = _groups(self.actions, ["step"])[self.schedule.order]
        out = np.zeros(int(step.max()) + 1, dtype=np.int64)
        np.maximum.at(out, step, ends)
        return out

    @cached_property
    def ideal_bubble(self) -> float:
        """Share of the step without work if stages and micro-batches were equal, transfers free.

        Of GPipe and 1F1B with p stages and m micro-batches this is (p - 1) / (m + p - 1); of other
        schedules it follows from their order.
        """
        one = self.schedule
        phase = self.column("phase")[one.order]
        mean = np.bincount(phase, one.dur_ns, len(PHASES)) / np.maximum(
            np.bincount(phase, minlength=len(PHASES)), 1
        )
        dur = np.maximum(np.round(mean).astype(np.int64), 1)[phase]
        none = np.zeros(len(dur), dtype=np.int64)
        ends = one._replace(lag_ns=none, release_ns=none).ends(dur, none)
        n_ranks = self.actions["rank"].nunique()
        return float(1 - dur.sum() / (n_ranks * max(int(self.last_ends(ends).sum()), 1)))

    def timetable(self) -> pd.DataFrame:
        """The actions, and which of them a step waits for: `job_answers.PIPELINE_SCHEDULE`.

        An action is critical if the step would be longer, were it any longer.
        """
        order = self.schedule.order
        last = self.actions.groupby("step")["end_ns"].transform("max").to_numpy(np.int64)
        is_critical = np.empty(len(order), dtype=bool)
        is_critical[order] = self.schedule.slack(last[order]) == 0
        rows = self.actions.assign(is_critical=is_critical)
        rows = rows.sort_values(["step", "replica", "begin_ns", "rank"], kind="stable")
        return PIPELINE_SCHEDULE.frame(
            {name: rows[name].array for name in PIPELINE_SCHEDULE.columns}
        )

    def within(self, windows: Mapping[int, tuple[int, int]]) -> Pipeline | None:
        """The steps of which each rank has most in its window; None if there is none."""
        steps = self.steps[self.steps["rank"].isin(windows.keys())]
        bounds = np.array([windows[rank] for rank in steps["rank"].tolist()]).reshape(-1, 2)
        part = np.minimum(steps["end_ns"], bounds[:, 1]) - np.maximum(
            steps["start_ns"], bounds[:, 0]
        )
        inside = 2 * part > steps["end_ns"] - steps["start_ns"]
        kept = inside.groupby(steps["step"]).all()
        return self.of_steps(kept.index[kept].to_numpy(np.int64))

    def of_steps(self, numbers: I64) -> Pipeline | None:
        """Some of the steps; None for none."""
        acts, steps = (one[one["step"].isin(numbers)] for one in (self.actions, self.steps))
        if acts.empty:
            return None
        return replace(self, actions=acts.reset_index(drop=True), steps=steps)

    def _parts(self) -> pd.DataFrame:
        """What each action adds to the row of its rank and step."""
        one, phase, waited = self.schedule, self.column("phase"), self.column("waited_ns")
        at = np.argsort(one.order)
        # What a rank waits before its first action is its warm-up.
        inside = np.where(one.before[at] >= 0, waited, 0)
        transfer = np.where(one.needs[at] >= 0, np.clip(one.transfer_ns[at], 0, inside), 0)
        dur, is_weight = one.dur_ns[at], phase == WEIGHT
        return self.actions[["rank", "step"]].assign(
            forward_ns=np.where(phase == FORWARD, dur, 0),
            backward_ns=np.where((phase != FORWARD) & ~is_weight, dur, 0),
            weight_ns=np.where(is_weight, dur, 0),
            transfer_ns=transfer,
            stall_ns=inside - transfer,
        )

    def _stalls(self, dur: I64, transfer: I64, lag: I64) -> I64:
        """How long each rank stalls in each step if its actions took other times."""
        one, worker = self.schedule, _groups(self.actions, ["rank", "step"])
        ends = one._replace(lag_ns=lag).ends(dur, transfer)
        wait = ends - dur - gather(ends, one.before, 0) - lag - np.maximum(transfer, 0)
        stall = np.where((one.before >= 0) & (one.needs >= 0), np.maximum(wait, 0), 0)
        return sum_by_code(worker[one.order], stall, int(worker.max()) + 1)

    def _stall_parts(self, stall_ns: I64, repaired: Mapping[str, I64]) -> pd.DataFrame:
        """What goes of the stalls of each rank and step with each repair in turn, and what is left.

        What a repair adds to a stall is not counted: another one may take it away again.
        """
        one, parts = self.schedule, {}
        transfer, lag = (np.minimum(ns, 0) for ns in (one.transfer_ns, one.lag_ns))
        dur = one.dur_ns
        left = np.minimum(stall_ns, self._stalls(dur, one.transfer_ns, one.lag_ns))
        for name, ns in repaired.items():
            dur, before = ns, left
            left = np.minimum(left, self._stalls(dur, one.transfer_ns, one.lag_ns))
            parts[name] = before - left
        for name, own in (("transfer", one.lag_ns), ("between", lag)):
            before, left = left, np.minimum(left, self._stalls(dur, transfer, own))
            parts[name] = before - left
        found = pd.DataFrame({f"stall_{name}_ns": parts.get(name, 0 * left) for name in STALLS})
        rest = stall_ns - found.sum(axis=1)
        assert (rest >= 0).all()
        return found.assign(stall_schedule_ns=rest)

    def table(self, repaired: Mapping[str, I64] | None = None) -> pd.DataFrame:
        """What each rank did in each step, schema `job_answers.PIPELINE`; adds up to the step.

        Stalls are split by what is `repaired`: durations of actions after each change in turn, by
        its name in `STALLS`.
        """
        keys = ["rank", "step"]
        own = self.actions.groupby(keys).agg(
            first_ns=("begin_ns", "min"), last_ns=("end_ns", "max"), replica=("replica", "first")
        )
        rows = self._parts().groupby(keys).sum().join(own).reset_index()
        rows = rows.join(self._stall_parts(rows["stall_ns"].to_numpy(np.int64), repaired or {}))
        rows = rows.merge(self.steps, on=keys).join(self._bounds(), on="step")
        first, last = rows["first_ns"], rows["last_ns"]
        inside = ["forward_ns", "backward_ns", "weight_ns", "transfer_ns", "stall_ns"]
        rows = rows.assign(
            dur_ns=rows["until_ns"] - rows["begun_ns"],
            between_ns=last - first - rows[inside].sum(axis=1),
            warm_up_ns=first - rows["begun_ns"],
            drain_ns=rows["done_ns"] - last,
            after_ns=rows["until_ns"] - rows["done_ns"],
            blocked_ns=self._blocked(rows),
            stages=self._stages(rows["rank"]),
            ideal_bubble=self.ideal_bubble,
        )
        parts = rows[[*inside, "between_ns", "warm_up_ns", "drain_ns", "after_ns"]]
        assert (parts.sum(axis=1) == rows["dur_ns"]).all()
        causes = rows[[f"stall_{name}_ns" for name in (*STALLS, "schedule")]]
        assert (causes.sum(axis=1) == rows["stall_ns"]).all()
        rows["lowest"] = rows["rank"].map(self.actions.groupby("rank")["stage"].min())
        rows = rows.sort_values(["step", "replica", "lowest", "rank"], ignore_index=True)
        return PIPELINE.frame({name: rows[name].to_numpy() for name in PIPELINE.columns})

    def _bounds(self) -> pd.DataFrame:
        """Of each step: the begin of the first action, the end of the last one, and of the step.

        A step lasts until the next one begins, at most until it ends on all ranks: ranks that are
        done early may have begun the next one.
        """
        steps = self.actions.groupby("step").agg(
            begun_ns=("begin_ns", "min"), done_ns=("end_ns", "max")
        )
        until = self.steps.groupby("step")["end_ns"].max().reindex(steps.index)
        following = steps["begun_ns"].shift(-1, fill_value=np.iinfo(np.int64).max)
        return steps.assign(until_ns=np.maximum(np.minimum(until, following), steps["done_ns"]))

    def _stages(self, ranks: pd.Series[int]) -> Texts:
        """The stages of each rank, in words."""
        own = self.actions[["rank", "stage"]].drop_duplicates().sort_values("stage")
        texts = own["stage"].astype(str).groupby(own["rank"]).agg(", ".join)
        return ranks.map(texts).to_numpy(object)

    def _blocked(self, rows: pd.DataFrame) -> I64:
        """How long each rank was blocked in sends and receives of each step."""
        out = np.zeros(len(rows), dtype=np.int64)
        start, end = (rows[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
        for rank in self.waits["rank"].unique().tolist():
            waits = self.waits[self.waits["rank"] == rank]
            mine = np.flatnonzero(rows["rank"] == rank)
            cover = Cover(*(waits[name].to_numpy(np.int64) for name in ("start_ns", "end_ns")))
            out[mine] = cover.within(start[mine], end[mine])
        return out

    def of_one_stage(self, collectives: pd.DataFrame) -> Bools:
        """Whether the members of each matched collective all are of the same stages."""
        ranks = self.actions["rank"].drop_duplicates()
        codes = pd.Series(pd.factorize(self._stages(ranks))[0], index=ranks)
        spans = collectives["rank"].map(codes).fillna(-1).groupby(collectives["match"])
        return np.asarray(spans.transform("min") == spans.transform("max"), dtype=bool)


_PARTS = 64
"""Tensors of one action that are told apart: a limit of the numbering, above what models pass."""


def with_stages(found: Mapping[int, RankActions]) -> dict[int, RankActions]:
    """The actions of all ranks; where neighbors are recorded, with the stages that they make.

    Only whole pipelines of one length are kept, from a first stage to a last one, if each stage
    lists their ranks in one order. Else no rank is.
    """
    known = {rank: one.neighbors for rank, one in found.items() if one.neighbors}
    if not known:
        return dict(found)
    chains = []
    for rank in sorted(rank for rank, (before, _) in known.items() if before < 0):
        chain, after = [rank], known[rank][1]
        while after in known and known[after][0] == chain[-1]:
            chain.append(after)
            after = known[after][1]
        if after < 0:
            chains.append(chain)
    stages = list(zip(*chains, strict=False))
    if len({len(chain) for chain in chains}) != 1 or any(list(s) != sorted(s) for s in stages):
        return {}
    return {
        rank: found[rank]._replace(actions=found[rank].actions.assign(stage=stage))
        for stage, ranks in enumerate(stages)
        for rank in ranks
    }


def join_ranks(
    found: Mapping[int, RankActions], clocks: Mapping[int, Clock], *, is_timed: bool = True
) -> Pipeline | None:
    """The pipeline of some ranks, in common time; None if they are none, or it is not clear how.

    Only steps that are whole on every rank are kept. Without `is_timed`, the clocks cannot be
    compared: then stages have to be named, and of one pipeline. Where stages are not named, all
    ranks are needed, or those next to a missing one would seem to be neighbors.
    """
    if len(found) < 2:
        return None
    names = [set(one.steps["name"].drop_duplicates(keep=False)) for one in found.values()]
    common = set.intersection(*names)
    first = next(iter(found.values())).steps["name"].tolist()
    number = {name: at for at, name in enumerate(one for one in first if one in common)}
    parts = [_in_common_time(rank, one, clocks[rank], number) for rank, one in found.items()]
    acts, steps, waits = (
        pd.concat(tables, ignore_index=True) for tables in zip(*parts, strict=True)
    )
    is_named = bool((acts["stage"] >= 0).all())
    acts = _with_stages(acts)
    acts = acts[acts["step"].isin(_whole_steps(acts))]
    if acts.empty or (not is_timed and acts["replica"].max() > 0):
        return None
    columns = {name: acts[name].to_numpy() for name in PIPELINE_ACTIONS.columns if name != "phase"}
    phase = categorical(acts["phase"], PHASES)
    actions = PIPELINE_ACTIONS.frame({**columns, "phase": phase})
    steps = steps[steps["step"].isin(actions["step"].unique())]
    whole = actions["step"].unique()
    if not is_named:
        # What was passed in a step that is not whole has no number.
        number = {name: at for name, at in number.items() if at in whole}
    pipeline = Pipeline(actions, steps, waits, number)
    if not is_timed or not len(pipeline.contradicted):
        return pipeline
    return pipeline.of_steps(np.setdiff1d(whole, pipeline.contradicted)) if is_named else None


def _in_common_time(
    rank: int, one: RankActions, clock: Clock, number: Mapping[str, int]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Actions, steps and waits of a rank, with the numbers that steps have on all ranks."""
    steps = one.steps.assign(rank=rank, own=one.steps["step"])
    steps["step"] = steps["name"].map(number).fillna(-1).astype(np.int64)
    numbers = steps["step"].to_numpy(np.int64)
    acts = one.actions.assign(
        rank=rank, step=gather(numbers, one.actions["step"].to_numpy(np.int64))
    )
    waits = pd.DataFrame(one.waits, columns=["start_ns", "end_ns"]).assign(rank=rank)
    for table in (acts, steps, waits):
        for name in {"begin_ns", "start_ns", "end_ns"} & {*table.columns}:
            table[name] = clock.to_common(table[name].to_numpy(np.int64))
    keep = ["rank", "step", "start_ns", "end_ns"]
    return acts[acts["step"] >= 0], steps.loc[steps["step"] >= 0, keep], waits


def _with_stages(acts: pd.DataFrame) -> pd.DataFrame:
    """Actions with stage and replica; none where only some ranks name stages, or begin in turn."""
    is_named = acts["stage"] >= 0
    if is_named.all():
        held = acts[["rank", "stage"]].drop_duplicates().sort_values(["rank", "stage"])
        own = held["stage"].astype(str).groupby(held["rank"]).agg(", ".join)
        replica = own.groupby(own).cumcount()
        return acts.assign(replica=acts["rank"].map(replica).to_numpy(np.int64))
    none = acts.iloc[:0].assign(replica=np.empty(0, dtype=np.int64))
    if is_named.any():
        return none
    begun = acts[acts["phase"] == FORWARD].groupby(["step", "rank"])["begin_ns"].min()
    usual = begun.groupby("step").rank().groupby("rank").median()
    if usual.duplicated().any():  # ranks that take turns are no stages
        return none
    place = usual.rank() - 1
    stage = acts["rank"].map(place).fillna(-1).astype(np.int64)
    return acts.assign(stage=stage, replica=np.int64(0))


def _whole_steps(acts: pd.DataFrame) -> I64:
    """Steps in which every stage has a forward of each micro-batch, and all backwards or none."""
    n_stages = int(acts["stage"].max()) + 1 if len(acts) else 0
    n_runs, phase = n_stages * acts["replica"].nunique(), acts["phase"]
    key = ["step", "replica", "stage", "micro_batch"]
    parts = {}
    for name, own in (("forward", phase == FORWARD), ("backward", phase.isin((GRADIENT, INPUT)))):
        parts[name] = acts[own].groupby("step").size()
        parts[f"{name}_once"] = acts[own].drop_duplicates(key).groupby("step").size()
    parts["batches"] = acts.groupby("step")["micro_batch"].nunique()
    steps = pd.DataFrame(parts).fillna(0)
    whole = (steps["forward"] == n_runs * steps["batches"]) & (n_stages > 1)
    whole &= steps["forward"] == steps["forward_once"]
    whole &= steps["backward"].isin((0,)) | (steps["backward"] == steps["forward"])
    whole &= steps["backward"] == steps["backward_once"]
    return steps.index[whole].to_numpy(np.int64)


def with_peers(
    tables: Mapping[int, pd.DataFrame], found: Mapping[int, RankActions], pipeline: Pipeline
) -> dict[int, pd.DataFrame]:
    """Collectives of ranks, `answers.COLLECTIVES`, with peers and numbers of sends and receives.

    A number is that of what is passed: its step, direction, receiving stage and micro-batch.
    """
    held = pipeline.actions[["replica", "stage", "rank"]].drop_duplicates()
    return {
        rank: table
        if rank not in found
        else _named(table, _passed(found[rank], held[held["rank"] == rank], held, pipeline))
        for rank, table in tables.items()
    }


def _passed(
    one: RankActions, own: pd.DataFrame, held: pd.DataFrame, pipeline: Pipeline
) -> pd.DataFrame:
    """Columns ``event``, ``peer`` and ``seq`` of the sends and receives of a rank."""
    told = one.messages
    if told.empty or own.empty:
        return pd.DataFrame({"event": [], "peer": [], "seq": []}, dtype=np.int64)
    stage, phase, number, step = (
        told[name].to_numpy(np.int64) for name in ("stage", "phase", "micro_batch", "step")
    )
    # A rank that names no stage has one.
    stage = np.where(stage >= 0, stage, own["stage"].iloc[0])
    sends, forward = told["sends"].to_numpy(bool), phase == FORWARD
    other = np.where(forward == sends, stage + 1, stage - 1)
    peers = held[held["replica"] == own["replica"].iloc[0]].set_index("stage")["rank"]
    peer = peers.reindex(other).fillna(-1).to_numpy(np.int64)
    names = one.steps["name"].map(pipeline.step_numbers).fillna(-1).to_numpy(np.int64)
    step = gather(names, step)
    most = int(pipeline.actions["micro_batch"].max()) + 1
    code = (step * 2 + forward) * (pipeline.n_stages + 1) + np.where(sends, other, stage)
    code = code * most + np.minimum(number, most - 1)
    part = pd.Series(code).groupby([code, sends]).cumcount().to_numpy(np.int64)
    passed = told[["event"]].assign(peer=peer, seq=code * _PARTS + part)
    return pd.DataFrame(passed[(peer >= 0) & (step >= 0) & (part < _PARTS) & (number < most)])


def _named(table: pd.DataFrame, passed: pd.DataFrame) -> pd.DataFrame:
    """Collectives with the peers and numbers that are known."""
    known = table[["event"]].merge(passed, on="event", how="left").set_index(table.index)
    has = known["peer"].notna()
    return table.assign(
        peer=known["peer"].where(has, table["peer"]).astype(np.int64),
        seq=known["seq"].where(has, table["seq"]).astype(np.int64),
    )


CHANGES = ("rank", "stage", "micro-batch", "action", "transfer")
"""What may be slow, in the order in which it is asked."""

_SLOWER = 1.1
"""How many times as long as its peers something takes that is called slow. Chosen above what equal
stages differ by. Pinned by test_pipeline."""

_MIN_SAVING = 0.03
"""Share of the step that a repair saves at least, to be called a cause. Chosen:
test_pipeline."""

_LEAST = 1e-3
"""Least size of a micro-batch or stage relative to others: nothing is divided by less. Chosen."""


def _low_median(values: F64, group: I64) -> F64:
    """The median of each value's group; of an even number the lower of two: the faster stage."""
    return values[lower_medians(group, values)]


def _groups(table: pd.DataFrame, keys: list[str]) -> I64:
    """A number for each distinct combination of columns."""
    return np.asarray(table.groupby(keys).ngroup(), dtype=np.int64)


class PipelineCauses:
    """The changes to a pipeline, each tried with those before it that are causes."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.schedule = pipeline, pipeline.schedule
        self._cells = pipeline.actions.iloc[self.schedule.order].reset_index(drop=True)
        self._cells["phase"] = pipeline.column("phase")[self.schedule.order]
        self._dur = self.schedule.dur_ns.astype(np.float64)
        self._ends = pipeline.last_ends(self.schedule.ends())
        self._step_ns = float(pipeline.step_ns.mean())
        self._rows: list[dict[str, object]] = []
        self.repaired: dict[str, I64] = {}
        """Durations of actions, by position, after each change that is asked, in `STALLS`."""
        asked = (self._ask_rank, self._ask_stage, self._ask_micro_batch, self._ask_action)
        for name, ask in zip(STALLS, asked, strict=False):
            ask()
            self.repaired[name] = np.round(self._dur).astype(np.int64)
        self._ask_transfer()

    @cached_property
    def table(self) -> pd.DataFrame:
        """What each change saves, schema `job_answers.PIPELINE_SAVINGS`, in the order of asking."""
        rows = pd.DataFrame(self._rows)
        change = categorical(rows["change"].map(CHANGES.index), CHANGES)
        columns = {name: rows[name].to_numpy() for name in PIPELINE_SAVINGS.columns}
        return PIPELINE_SAVINGS.frame({**columns, "change": change})

    def excess_within(self, rank: int, start_ns: I64, end_ns: I64) -> I64:
        """How much shorter some stretches of a rank would be without its causes."""
        own = self._cells.assign(gone=self.schedule.dur_ns - self._dur)
        own = own[own["rank"] == rank].sort_values("begin_ns", kind="stable")
        if own.empty:
            return np.zeros(len(start_ns), dtype=np.int64)
        times = own[["begin_ns", "end_ns"]].to_numpy(np.int64).ravel()
        gone = own["gone"].cumsum().to_numpy()
        sums = np.column_stack([np.append(0.0, gone[:-1]), gone]).ravel()
        first, last = np.interp(start_ns, times, sums), np.interp(end_ns, times, sums)
        excess: I64 = np.clip((last - first).astype(np.int64), 0, end_ns - start_ns)
        return excess

    def _saved(self, dur: F64, transfer: I64 | None = None) -> float:
        """How much shorter a step is than it was recorded, on average."""
        ends = self.schedule.ends(np.round(dur).astype(np.int64), transfer)
        return float((self._ends - self.pipeline.last_ends(ends)).mean())

    def _note(
        self,
        change: str,
        ratio: float,
        saves_ns: float,
        *,
        spread_ns: float = 0.0,
        rank: int = -1,
        stage: int = -1,
        micro_batch: int = -1,
    ) -> bool:
        """Note what a change saves beyond those before; return whether it is a cause."""
        share = saves_ns / max(self._step_ns, 1.0)
        is_cause = ratio >= _SLOWER and share >= _MIN_SAVING and change != "transfer"
        row = {"change": change, "rank": rank, "stage": stage, "micro_batch": micro_batch}
        row |= {"ratio": ratio, "saves_ns": int(saves_ns), "spread_ns": int(spread_ns)}
        row |= {"step_ns": int(self._step_ns), "share": share, "is_cause": is_cause}
        self._rows.append(row)
        return is_cause

    def _work(self) -> pd.DataFrame:
        """Time of each micro-batch on each stage, all phases together."""
        keys = ["rank", "replica", "stage", "step", "micro_batch"]
        return pd.DataFrame(
            self._cells.assign(dur=self._dur).groupby(keys, as_index=False)["dur"].sum()
        )

    def _place(self, at: int) -> tuple[int, int, int]:
        """Rank, stage and micro-batch of an action."""
        rank, stage, number = self._cells[["rank", "stage", "micro_batch"]].iloc[at].tolist()
        return rank, stage, number

    def _ask_rank(self) -> None:
        """A rank slower than its peers on all of its stages."""
        keys = ["rank", "replica", "stage"]
        times = pd.DataFrame(self._work().groupby(keys, as_index=False)["dur"].median())
        is_replicated = times["replica"].max() > 0
        if not is_replicated and (times.groupby("rank")["stage"].size() == 1).any():
            return  # a rank with one stage that nothing else runs: that is asked of stages
        dur, stage = times["dur"].to_numpy(np.float64), times["stage"].to_numpy(np.int64)
        usual = _low_median(dur, stage if is_replicated else np.zeros_like(stage))
        ratios = times.assign(ratio=dur / np.maximum(usual, 1.0)).groupby("rank")["ratio"].min()
        rank, ratio = ratios.index.tolist()[int(ratios.to_numpy().argmax())], float(ratios.max())
        equal = np.where(self._cells["rank"] == rank, self._dur / max(ratio, 1.0), self._dur)
        if self._note("rank", ratio, self._saved(equal), rank=rank):
            self._dur = equal

    def _ask_stage(self) -> None:
        """Stages slower than the others, micro-batch by micro-batch, which may be uneven."""
        work = self._work()
        dur = work["dur"].to_numpy(np.float64)
        usual = _low_median(dur, _groups(work, ["replica", "step", "micro_batch"]))
        times = work.assign(dur=dur / np.maximum(usual, 1.0)).groupby("stage")["dur"].median()
        dur = np.maximum(times.to_numpy(np.float64), _LEAST)
        slowest = int(dur.argmax())
        others = np.sort(np.delete(dur, slowest))
        ratio = dur / others[(len(others) - 1) // 2]
        stages = self._cells["stage"].to_numpy(np.int64)
        place = np.searchsorted(times.index.to_numpy(np.int64), stages)
        equal = self._dur / np.where(ratio >= _SLOWER, ratio, 1.0)[place]
        evenly = self._dur * (dur.mean() / dur)[place]
        stage, before = times.index.tolist()[slowest], self._saved(self._dur)
        ranks = self._cells.loc[stages == stage, "rank"].unique().tolist()
        if self._note(
            "stage",
            float(ratio[slowest]),
            self._saved(equal) - before,
            spread_ns=self._saved(evenly) - before,
            rank=ranks[0] if len(ranks) == 1 else -1,
            stage=stage,
        ):
            self._dur = equal

    def _ask_micro_batch(self) -> None:
        """Micro-batches that take longer on every stage."""
        work = self._work()
        usual = work.groupby(["rank", "stage"])["dur"].transform("median").clip(lower=1.0)
        keys = ["replica", "step", "micro_batch"]
        size = np.maximum((work["dur"] / usual).to_numpy(np.float64), _LEAST)
        work["size"] = _low_median(size, _groups(work, keys))
        sizes = work.groupby(keys)["size"].first()
        mean = sizes.groupby(["replica", "step"]).transform("mean")
        factors = pd.DataFrame({"size": sizes, "evenly": mean / sizes})
        factors = self._cells[keys].join(factors, on=keys)
        size = factors["size"].to_numpy(np.float64)
        equal = self._dur / np.where(size >= _SLOWER, size, 1.0)
        # A number is named if it is slow in most steps.
        usually = sizes.groupby("micro_batch").median()
        number = usually.index.tolist()[int(usually.to_numpy().argmax())]
        before = self._saved(self._dur)
        if self._note(
            "micro-batch",
            float(sizes.max()),
            self._saved(equal) - before,
            spread_ns=self._saved(self._dur * factors["evenly"].to_numpy(np.float64)) - before,
            micro_batch=number if usually.max() >= _SLOWER else -1,
        ):
            self._dur = equal

    def _ask_action(self) -> None:
        """The action that takes longer in most steps: what is slow once is the machine's noise."""
        keys = ["rank", "stage", "phase"]
        cells = self._cells.assign(dur=self._dur)
        usual = np.maximum(cells.groupby(keys)["dur"].transform("median").to_numpy(), 1.0)
        cell = _groups(cells, [*keys, "micro_batch"])
        ratio = _low_median(self._dur / usual, cell)
        worst = int(((ratio - 1) * usual).argmax())
        equal = np.where(cell == cell[worst], self._dur / np.maximum(ratio, 1.0), self._dur)
        rank, stage, number = self._place(worst)
        saves_ns = self._saved(equal) - self._saved(self._dur)
        if self._note(
            "action", float(ratio[worst]), saves_ns, rank=rank, stage=stage, micro_batch=number
        ):
            self._dur = equal

    def _ask_transfer(self) -> None:
        """Transfers that take longer than most."""
        rows = np.flatnonzero(self.schedule.needs >= 0)
        if not len(rows):
            return  # all actions are shorter than the clocks are uncertain
        transfer = self.schedule.transfer_ns
        usual = int(np.median(transfer[rows]))
        worst = rows[int(transfer[rows].argmax())]
        less = transfer.copy()
        less[rows] = np.minimum(transfer[rows], usual)
        rank, stage, number = self._place(worst)
        saves_ns = self._saved(self._dur, less) - self._saved(self._dur)
        ratio = float(transfer[worst]) / max(usual, 1)
        self._note("transfer", ratio, saves_ns, rank=rank, stage=stage, micro_batch=number)


_ADVICE = {
    "rank": (
        "Compare the device, host and cores of this rank with those of its peers.",
        "if it were as fast as the other ranks",
    ),
    "stage": (
        "Move layers to the other stages; if stages are equal, check the rank that runs it.",
        "if it were as fast as the other stages",
    ),
    "micro-batch": (
        "Pack samples into micro-batches of equal length.",
        "if it were as fast as the other micro-batches",
    ),
    "action": (
        "Compare what it runs there with other micro-batches: look for code that runs once a step.",
        "if it were as fast as the other micro-batches",
    ),
}
"""What to do about it, and the condition of the run without it, by what is slow."""


def charge_pipeline(attributed_time: pd.DataFrame, pipeline: PipelineCauses) -> pd.DataFrame:
    """Charge to the pipeline what parts of it take longer than their peers.

    As before, the attributed time of the job (`frames.JOB_ATTRIBUTED_TIME`) tiles the path.
    """
    if not pipeline.table["is_cause"].any():
        return attributed_time
    start, dur = (attributed_time[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
    rank = attributed_time["rank"].to_numpy(np.int64)
    excess = np.zeros(len(attributed_time), dtype=np.int64)
    for one in np.unique(rank).tolist():
        mine = np.flatnonzero(rank == one)
        excess[mine] = pipeline.excess_within(one, start[mine], start[mine] + dur[mine])
    return with_part_of(attributed_time, excess, cause=Cause.PIPELINE)


def slow_part(finding: Finding, pipeline: PipelineCauses) -> Finding:
    """The finding on the pipeline, in words: what is slow, and what that costs."""
    asked = pipeline.table[pipeline.table["is_cause"]]
    causes = [{str(name): row[name] for name in row} for row in asked.to_dict("records")]
    first = max(causes, key=lambda row: row["saves_ns"])
    cost_ns = sum(row["saves_ns"] for row in causes) * len(pipeline.pipeline.step_ns)
    do, if_gone = _ADVICE[first["change"]]
    said = [
        f"{_who(row)}, {row['ratio']:.1f} times: {human_duration(row['saves_ns'])} more"
        for row in causes
        if row is not first
    ]
    if first["spread_ns"] > 0:  # the sum rarely gets less
        said.insert(0, f"the same work spread evenly: {human_duration(first['spread_ns'])}")
    return replace(
        finding,
        title=f"{_who(first)} takes {first['ratio']:.1f} times as long as its peers",
        detail="; ".join(said),
        fix=Fix(do),
        cost_ns=min(cost_ns, finding.path_ns),
        if_gone=if_gone,
    )


def _who(row: Mapping[str, Any]) -> str:
    """What is slow."""
    if row["change"] == "rank":
        return f"Rank {row['rank']}"
    if row["change"] == "stage":
        return f"Stage {row['stage']}"
    if row["change"] == "micro-batch":
        return f"Micro-batch {row['micro_batch']}" if row["micro_batch"] >= 0 else "A micro-batch"
    return f"Micro-batch {row['micro_batch']} of stage {row['stage']}"
