"""The actions of all ranks as one pipeline, and the sends and receives between them, with peers.

Stages are named by annotations, or follow from the ranks that sends and receives name, or from
times: ranks are stages in the order in which they begin, if on one host no action then begins
before the one that it needs has ended. Else there are several readings, and nothing is joined or
matched.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.algorithms.gather import gather
from htagraph.algorithms.pipelines import FORWARD, GRADIENT, INPUT, PHASES
from htagraph.job.pipeline import Pipeline
from htagraph.job.pipeline_actions import RankActions
from htagraph.model.arrays import I64
from htagraph.model.frames import PIPELINE_ACTIONS
from htagraph.model.schema import categorical

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
    """Actions with stage and replica; none where some ranks name stages and others do not."""
    is_named = acts["stage"] >= 0
    if is_named.all():
        held = acts[["rank", "stage"]].drop_duplicates().sort_values(["rank", "stage"])
        own = held["stage"].astype(str).groupby(held["rank"]).agg(", ".join)
        replica = own.groupby(own).cumcount()
        return acts.assign(replica=acts["rank"].map(replica).to_numpy(np.int64))
    if is_named.any():
        return acts.iloc[:0].assign(replica=np.empty(0, dtype=np.int64))
    begun = acts[acts["phase"] == FORWARD].groupby(["step", "rank"])["begin_ns"].min()
    place = begun.groupby("step").rank().groupby("rank").median().rank(method="first") - 1
    stage = acts["rank"].map(place).fillna(-1).astype(np.int64)
    return acts.assign(stage=stage, replica=np.int64(0))


def _whole_steps(acts: pd.DataFrame) -> I64:
    """Steps in which every stage has a forward of each micro-batch, in each replica.

    And a backward of each, or none at all.
    """
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
