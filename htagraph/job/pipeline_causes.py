"""What is slow in a pipeline, what a step would save if it were not, and the finding that says so.

Causes are asked in this order, each with the ones before it repaired: a slow rank among replicas of
its stage, or with all its stages slow; a slow stage; an uneven micro-batch; an action that is slow
in every step; transfers. Else a slow machine would be called a stage with too many layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from htagraph.findings.verdict import Finding, Fix
from htagraph.job.pipeline import STALLS, Pipeline
from htagraph.model.arrays import F64, I64
from htagraph.model.job_answers import PIPELINE_SAVINGS
from htagraph.model.kinds import Cause
from htagraph.model.schema import categorical
from htagraph.model.units import human_duration

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
    order = np.lexsort((values, group))
    first = np.flatnonzero(np.append(True, np.diff(group[order]) != 0)[: len(order)])
    size = np.diff(np.append(first, len(order)))
    medians = values[order][first + (size - 1) // 2]
    out = np.empty(len(values))
    out[order] = np.repeat(medians, size)
    return out


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
    slow = attributed_time.assign(dur_ns=excess, cause=Cause.PIPELINE)
    own = attributed_time.assign(start_ns=start + excess, dur_ns=dur - excess)
    both = pd.concat([slow, own], ignore_index=True)
    kept: pd.DataFrame = both[both["dur_ns"] > 0].sort_values(
        "start_ns", kind="stable", ignore_index=True
    )
    return kept


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
