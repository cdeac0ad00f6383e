"""Pipelines: what stages did in each step, and where they waited.

Actions of all ranks are one table, `frames.PIPELINE_ACTIONS`, whatever recorded them; with the
order of each rank kept, it is also a simulation of the run (`htagraph.arrays.pipelines`). Stages
are named by annotations, or follow from the ranks that sends and receives name, or from times:
ranks are stages in the order in which they begin, if on one host no action then begins before the
one that it needs has ended. Else there are several readings, and nothing is joined or matched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from htagraph.arrays.clocks import ONE_HOST_NS, Clock
from htagraph.arrays.codes import gather
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
from htagraph.job.pipeline_actions import RankActions
from htagraph.model.arrays import I64, Bools, Texts
from htagraph.model.frames import PIPELINE_ACTIONS
from htagraph.model.job_answers import PIPELINE, PIPELINE_SCHEDULE
from htagraph.model.schema import categorical

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

    def _numbers(self, *names: str) -> I64:
        """A number for each distinct combination of columns."""
        return np.asarray(self.actions.groupby(list(names)).ngroup(), dtype=np.int64)

    @cached_property
    def schedule(self) -> Schedule:
        """What each action waits for; positions are by the ends of actions."""
        times = (self.column(name) for name in ("begin_ns", "end_ns", "waited_ns"))
        return schedule_of(
            self._numbers("rank", "step"),
            self._numbers("replica", "step"),
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
        step = self._numbers("step")[self.schedule.order]
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
        one, worker = self.schedule, self._numbers("rank", "step")
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
            waits, mine = (
                self.waits[self.waits["rank"] == rank],
                np.flatnonzero(rows["rank"] == rank),
            )
            cover = Cover(*(waits[name].to_numpy(np.int64) for name in ("start_ns", "end_ns")))
            out[mine] = cover.within(start[mine], end[mine])
        return out

    def of_one_stage(self, collectives: pd.DataFrame) -> Bools:
        """Whether the members of each matched collective all are of the same stages."""
        ranks = self.actions["rank"].drop_duplicates()
        codes = pd.Series(pd.factorize(self._stages(ranks))[0], index=ranks)
        spans = collectives["rank"].map(codes).fillna(-1).groupby(collectives["match"])
        same: Bools = np.asarray(spans.transform("min") == spans.transform("max"), dtype=bool)
        return same


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
    found: I64 = steps.index[whole].to_numpy(np.int64)
    return found


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
