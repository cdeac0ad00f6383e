"""Workers: a job whose workers are in one timeline, what it loses, and what would help.

The recorded run is replayed with its order and its meetings, and compared with an ideal one: every
compute takes the mean of its kind over all steps, stages and ranks, every transfer the median. What
explains the difference is asked in this order, each with the causes before it repaired: a slow
worker among those of its stage, a slow replica, a heavy stage, uneven micro-batches. Else one slow
worker would also be a stage that has too many layers. (Lin et al., "Understanding Stragglers in
Large Model Training Using What-if Analysis", 2025, ask the same.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.rendezvous import Rendezvous
from htagraph.errors import QueryError, TraceFormatError, one_of
from htagraph.job.worker_schedule import COMPUTES, scheduled
from htagraph.model.arrays import F64, I64, Bools
from htagraph.model.frames import WORKER_SAVINGS, WORKER_SLOWDOWNS, WORKER_STAGES
from htagraph.model.units import human_count, human_duration
from htagraph.readers.storage import path_of
from htagraph.readers.worker_timeline.reader import (
    COMPUTE,
    is_worker_timeline,
    read_worker_timeline,
)
from htagraph.writers.answering import answers

__all__ = ["Workers", "load_workers"]

_MIN_SHARE = 0.03
"""Share of the step that a repair saves at least, to be called a cause. Chosen. Pinned by
`test_what_saves_less_than_3_percent_is_no_cause`."""
_SLOWER = 1.05
"""How many times as long as its peers a worker or stage takes that is called slow. Chosen, above
what equal ones differ by. Pinned by `test_a_worker_is_slow_from_a_twentieth_on`."""
_OWN_PART = 0.6
"""Share of a replica's excess that one worker has at least; else the replica is slow.

Chosen: two equally slow stages have half each. Pinned by
`test_a_slow_replica_of_two_stages_is_no_slow_worker`.
"""
_MOST_WORKERS = 8
"""Workers, those with most excess, of which each is replayed as its peers. A limit of time."""
_WORKER = ["dp", "pp", "tp"]
_KEYS = ["name", "stage", *_WORKER]
_GROUPS = {"stage": ["pp"], "replica": ["dp"], "kind": ["name"], "worker": _WORKER}
"""What slices are grouped by, by the name of the option."""


@dataclass(frozen=True, repr=False)
class Workers:
    """A job of workers; made by `load_workers`. Times of steps are those of the replay.

    Parameters
    ----------
    table : DataFrame
        Slices of the steps that are whole.
    schedule : Rendezvous
    n_left_out : int
        Steps that lack slices, or contradict themselves.
    n_lost : int
        Events that could not be read.
    """

    table: pd.DataFrame
    schedule: Rendezvous
    n_left_out: int = 0
    n_lost: int = 0

    @property
    def n_workers(self) -> int:
        """Number of workers."""
        return len(self.table[_WORKER].drop_duplicates())

    @property
    def facts(self) -> str:
        """What the job is, in a line."""
        sizes = [human_count(self.table[name].nunique(), "rank") for name in ("dp", "pp", "tp")]
        kinds = ("data-parallel", "pipeline", "tensor-parallel")
        named = [f"{size.split()[0]} {kind}" for size, kind in zip(sizes, kinds, strict=True)]
        steps = human_count(self.table["step"].nunique(), "step")
        return f"{human_count(self.n_workers, 'worker')} ({' x '.join(named)}) · {steps}"

    @cached_property
    def _dur(self) -> I64:
        return self.table["dur_ns"].to_numpy(np.int64)

    @cached_property
    def _is_batch(self) -> Bools:
        """Slices that compute a micro-batch."""
        return self.table["name"].isin(COMPUTES).to_numpy()

    @cached_property
    def _is_compute(self) -> Bools:
        kinds = self.table["kind"].isin([COMPUTE, "misc"]).to_numpy()
        return kinds | self._is_batch

    def _steps(self, dur: I64) -> F64:
        """How long each step takes if slices take these times."""
        ends = self.schedule.starts(dur) + dur
        return pd.Series(ends).groupby(self.table["step"]).max().to_numpy(np.float64)

    def _step_ns(self, dur: I64) -> float:
        return float(self._steps(dur).mean())

    @cached_property
    def step_ns(self) -> float:
        """Mean length of a step, as recorded."""
        return self._step_ns(self._dur)

    @cached_property
    def ideal_step_ns(self) -> float:
        """Mean length of a step if all compute of a kind, and all its transfers, took as long."""
        return self._step_ns(self._ideal)

    @cached_property
    def _ideal(self) -> I64:
        names = self.table.groupby("name")["dur_ns"]
        means, medians = names.transform("mean"), names.transform("median")
        return _whole(np.where(self._is_compute, means, medians))

    @property
    def slowdown(self) -> float:
        """How many times as long as the ideal a step takes."""
        return self.step_ns / max(self.ideal_step_ns, 1.0)

    @answers(WORKER_STAGES)
    def stages(self) -> pd.DataFrame:
        """What each pipeline rank does in a step: means over steps and replicas.

        Returns
        -------
        DataFrame, schema `frames.WORKER_STAGES`
            Rows add up to the step.
        """
        table = self.table.assign(start_ns=self.schedule.starts(self._dur))
        table["end_ns"] = table["start_ns"] + table["dur_ns"]
        batch, replica = table[self._is_batch], ["step", "dp", "tp"]
        rows = batch.groupby(["step", *_WORKER]).agg(
            first_ns=("start_ns", "min"), last_ns=("end_ns", "max"), busy_ns=("dur_ns", "sum")
        )
        forward = batch[batch["name"] == COMPUTES[0]].groupby(["step", *_WORKER])["dur_ns"].sum()
        rows["forward_ns"] = forward.reindex(rows.index, fill_value=0)
        rows = rows.reset_index()
        first = rows[["step", *_WORKER, "first_ns"]]
        before = table.merge(first, on=["step", *_WORKER], how="left")
        opening = before[before["end_ns"] <= before["first_ns"]]
        opening = opening[~opening["name"].str.endswith(("-send", "-recv"))]
        gathered = opening.groupby(["step", *_WORKER])["end_ns"].max()
        key = pd.MultiIndex.from_frame(rows[["step", *_WORKER]])
        rows["gather_ns"] = gathered.reindex(key, fill_value=0).to_numpy()
        done = rows.groupby(replica)["last_ns"].transform("max")
        end = rows["step"].map(table.groupby("step")["end_ns"].max())
        rows = rows.assign(
            backward_ns=rows["busy_ns"] - rows["forward_ns"],
            warm_up_ns=rows["first_ns"] - rows["gather_ns"],
            stall_ns=rows["last_ns"] - rows["first_ns"] - rows["busy_ns"],
            drain_ns=done - rows["last_ns"],
            after_ns=end - done,
            dur_ns=end,
        )
        names = [name for name in WORKER_STAGES.columns if name.endswith("_ns")]
        means = rows.groupby("pp")[names].mean().reset_index()
        return WORKER_STAGES.frame({name: means[name] for name in WORKER_STAGES.columns})

    @answers(WORKER_SLOWDOWNS)
    def slowdowns(self, *, by: str = "stage") -> pd.DataFrame:
        """How much each group of slices slows the job down, as the paper asks it.

        Parameters
        ----------
        by : {"stage", "replica", "kind", "worker"}, default="stage"
            Groups: pipeline ranks, data-parallel ranks, kinds of slices, or workers.

        Returns
        -------
        DataFrame, schema `frames.WORKER_SLOWDOWNS`
            The largest slowdown first. A group is as recorded in an ideal run (`slowdown`), or
            ideal in the recorded run (`share`).
        """
        if by not in _GROUPS:
            raise QueryError(f"unknown groups {by!r}.", hint=one_of(by, _GROUPS))
        group = self.table[_GROUPS[by]].astype(str).agg("-".join, axis=1).to_numpy(object)
        recorded, ideal = self._dur, self._ideal
        lost_ns = max(self.step_ns - self.ideal_step_ns, 1.0)
        rows = []
        for one in sorted(set(group.tolist())):
            mine = group == one
            alone = self._step_ns(np.where(mine, recorded, ideal)) / max(self.ideal_step_ns, 1.0)
            without = self._step_ns(np.where(mine, ideal, recorded))
            rows.append((one, alone, (self.step_ns - without) / lost_ns))
        data = {name: [row[at] for row in rows] for at, name in enumerate(WORKER_SLOWDOWNS.columns)}
        frame = WORKER_SLOWDOWNS.frame(data)
        return frame.sort_values("slowdown", ascending=False, kind="stable", ignore_index=True)

    @answers(WORKER_SAVINGS)
    def savings(self) -> pd.DataFrame:
        """What each repair would save of a step: of workers, stages, micro-batches, transfers.

        Returns
        -------
        DataFrame, schema `frames.WORKER_SAVINGS`
            In the order of asking: `saves_ns` is with the causes before it repaired, `alone_ns`
            without.
        """
        recorded, base = self._dur, self.step_ns
        dur, rows = recorded, list[tuple[Any, ...]]()
        for change, repair in _REPAIRS.items():
            for _ in range(_MOST_WORKERS if change == "worker" else 1):
                one = repair(self, dur)
                if one is None:
                    break
                saves = self._step_ns(dur) - self._step_ns(one.dur_ns)
                alone = base - self._step_ns(self._alone(change, one.dur_ns, dur))
                share = saves / base if base else 0.0
                is_cause = one.is_asked and share >= _MIN_SHARE and one.ratio >= _SLOWER
                if is_cause or not rows or rows[-1][0] != change:
                    rows.append((change, *one.place, one.ratio, saves, alone, share, is_cause))
                if not is_cause:
                    break
                dur = one.dur_ns
        data = {name: [row[at] for row in rows] for at, name in enumerate(WORKER_SAVINGS.columns)}
        return WORKER_SAVINGS.frame(data)

    def _alone(self, change: str, after: I64, before: I64) -> I64:
        """Recorded durations with one repair only."""
        if change == "worker":
            return np.where(after == before, self._dur, after)
        one = _REPAIRS[change](self, self._dur)
        return self._dur if one is None else one.dur_ns

    def causes(self) -> pd.DataFrame:
        """Rows of `savings` that are causes, the largest saving first."""
        found = self.savings().query("is_cause")
        return found.sort_values("saves_ns", ascending=False, kind="stable", ignore_index=True)

    def verdict(self) -> str:
        """What the job loses and to what, in a few lines."""
        step = f"{human_duration(self.step_ns)} a step"
        lines = [self._in_words(row, step) for row in self.causes().to_dict("records")]
        lost = self.step_ns - self.ideal_step_ns
        even = f"{human_duration(self.ideal_step_ns)} if all compute and transfers were even"
        lines = lines or ["No worker, stage, micro-batch or transfer costs 3% of a step."]
        lines.append(
            f"Steps take {human_duration(self.step_ns)}, and {even}: "
            f"slowdown {self.slowdown:.3f}, {human_duration(lost)} a step."
        )
        if self.n_left_out:
            lines.append(f"Left out: {human_count(self.n_left_out, 'step')} that lack slices.")
        if self.n_lost:
            lines.append(f"{human_count(self.n_lost, 'event')} could not be read.")
        return "\n".join(lines)

    def _in_words(self, row: Mapping[Any, Any], step: str) -> str:
        """A cause as a sentence."""
        saves = f"saves {human_duration(row['saves_ns'])} ({row['share']:.1%}) of {step}"
        times = f"{row['ratio']:.2f} times as long as"
        match row["change"]:
            case "worker":
                who = f"DP rank {row['dp']}, PP rank {row['pp']}, TP rank {row['tp']}"
                return f"Worker {who} takes {times} its peers: as fast as they, it {saves}."
            case "replica":
                return (
                    f"DP rank {row['dp']} takes {times} the others on all stages: equal, {saves}."
                )
            case "stage":
                last = ", the last stage," if row["stage"] == self._n_stages - 1 else ""
                return (
                    f"Stage {row['stage']}{last} takes {times} the others: moving layers so "
                    f"that stages are equal {saves}."
                )
            case "micro-batch":
                return (
                    f"Micro-batches are uneven, the longest {times} the mean of its worker: equal "
                    f"ones (packing) {saves}."
                )
            case _:
                return f"Transfers vary, {times} their medians: at the medians {saves}."

    @property
    def _n_stages(self) -> int:
        return int(self.table.loc[self._is_batch, "stage"].max()) + 1

    def __repr__(self) -> str:
        """Summarise the job in a line."""
        n_steps = human_count(self.table["step"].nunique(), "step")
        return f"Workers({human_count(self.n_workers, 'worker')}, {n_steps})"


class _Repair(NamedTuple):
    """A change of durations: where, how many times as long as its peers, and what they become."""

    place: tuple[int, int, int, int]
    ratio: float
    dur_ns: I64
    is_asked: bool = True


def _whole(dur: npt.NDArray[Any]) -> I64:
    return np.round(dur).astype(np.int64)


def _batches(workers: Workers, dur: I64) -> pd.DataFrame:
    """Slices of micro-batches with these durations."""
    return workers.table.assign(dur_ns=dur)[workers._is_batch]  # noqa: SLF001  one module


def _with_peers(workers: Workers, dur: I64) -> pd.DataFrame:
    """Each worker's mean by kind and stage, the median of its peers', and how much it computes."""
    own = _batches(workers, dur).groupby(_KEYS)["dur_ns"].agg(["mean", "sum"]).reset_index()
    peers = own.groupby(["name", "stage"])["mean"]
    own["peers"] = peers.transform(_medians_of_others)
    own["excess"] = own["sum"] * np.maximum(1 - own["peers"] / own["mean"].clip(lower=1), 0)
    return own


def _medians_of_others(values: pd.Series[float]) -> F64:
    """The median of all others, for each; itself if there is no other.

    Examples
    --------
    >>> _medians_of_others(pd.Series([1.0, 2.0, 9.0])).tolist()
    [5.5, 5.0, 1.5]
    """
    given: F64 = np.asarray(values, dtype=np.float64)
    if len(given) == 1:
        return given
    order = np.argsort(given, kind="stable")
    place = np.argsort(order)
    ranked, n = given[order], len(given) - 1
    low, high = (ranked[at + (place <= at)] for at in ((n - 1) // 2, n // 2))
    return np.asarray((low + high) / 2)


def _scaled(workers: Workers, dur: I64, own: pd.DataFrame, factor: npt.ArrayLike) -> I64:
    """Durations with a factor for each kind, stage and worker of a frame."""
    rows = _batches(workers, dur)
    factors = pd.Series(np.asarray(factor), index=pd.MultiIndex.from_frame(own[_KEYS]))
    out = dur.astype(np.float64)
    out[rows.index] *= factors.reindex(pd.MultiIndex.from_frame(rows[_KEYS])).to_numpy()
    return _whole(out)


def _ratio(own: pd.DataFrame) -> float:
    return float(own["sum"].sum() / max((own["sum"] - own["excess"]).sum(), 1))


def _slow_of(workers: Workers, dur: I64, by: list[str]) -> _Repair | None:
    """The worker, or all workers of a rank, whose repair to its peers saves most."""
    own = _with_peers(workers, dur)
    excess = own.groupby(by)["excess"].sum().sort_values(ascending=False, kind="stable")
    best = None
    for key in excess.index[excess > 0][:_MOST_WORKERS]:
        place = dict(zip(by, key if isinstance(key, tuple) else (key,), strict=True))
        mine = np.logical_and.reduce([own[name] == value for name, value in place.items()])
        factor = np.where(mine, 1 - own["excess"] / own["sum"].clip(lower=1), 1.0)
        after = _scaled(workers, dur, own, factor)
        step_ns = workers._step_ns(after)  # noqa: SLF001
        if best is None or step_ns < best[0]:
            stage = int(own.loc[mine, "stage"].iloc[0]) if "pp" in by else -1
            dp, pp, tp = (int(place.get(name, -1)) for name in _WORKER)
            whole = own.loc[own["dp"] == dp, "excess"].sum()
            is_asked = own.loc[mine, "excess"].sum() >= _OWN_PART * whole
            best = step_ns, _Repair((stage, dp, pp, tp), _ratio(own[mine]), after, is_asked)
    return best[1] if best else None


def _slow_replica(workers: Workers, dur: I64) -> _Repair | None:
    return _slow_of(workers, dur, ["dp"]) if workers._n_stages > 1 else None  # noqa: SLF001


def _as_medians(workers: Workers, dur: I64) -> _Repair | None:
    """Each worker as the median of its stage."""
    own = _with_peers(workers, dur)
    median = own.groupby(["name", "stage"])["mean"].transform("median")
    factor = median / own["mean"].clip(lower=1)
    after = _scaled(workers, dur, own, factor)
    return _Repair(_NOWHERE, float((1 / factor).max()), after, is_asked=False)


def _equal_stages(workers: Workers, dur: I64) -> _Repair | None:
    """All stages with the same mean of each kind of compute: layers moved."""
    rows = _batches(workers, dur)
    if rows["stage"].nunique() < 2:
        return None
    kind, stage = rows.groupby("name")["dur_ns"], rows.groupby(["name", "stage"])["dur_ns"]
    out = dur.astype(np.float64)
    out[rows.index] *= (kind.transform("mean") / stage.transform("mean").clip(lower=1)).to_numpy()
    by_stage = stage.mean().groupby("stage").sum()
    heavy = int(by_stage.index[int(by_stage.argmax())])
    ratio = by_stage[heavy] / max(by_stage.drop(heavy).mean(), 1)
    pp = int(rows.loc[rows["stage"] == heavy, "pp"].iloc[0])
    return _Repair((heavy, -1, pp, -1), float(ratio), _whole(out))


def _even_batches(workers: Workers, dur: I64) -> _Repair | None:
    """All micro-batches of a worker as their mean."""
    rows = _batches(workers, dur)
    out = dur.astype(np.float64)
    mean = rows.groupby(_KEYS)["dur_ns"].transform("mean")
    out[rows.index] = mean.to_numpy()
    longest = rows["dur_ns"].groupby([rows[key] for key in ["step", *_KEYS]]).max()
    usual = mean.groupby([rows[key] for key in ["step", *_KEYS]]).mean()
    return _Repair(_NOWHERE, float(longest.sum() / max(usual.sum(), 1)), _whole(out))


def _median_transfers(workers: Workers, dur: I64) -> _Repair | None:
    """All transfers of a kind at their median."""
    names = workers.table.assign(dur_ns=dur).groupby("name")["dur_ns"]
    is_transfer = ~workers._is_compute  # noqa: SLF001
    after = _whole(np.where(is_transfer, names.transform("median"), dur))
    ratio = dur[is_transfer].sum() / max(int(after[is_transfer].sum()), 1)
    return _Repair(_NOWHERE, float(ratio), after)


def _no_transfers(workers: Workers, dur: I64) -> _Repair | None:
    """All transfers without time: what communication costs."""
    after = np.where(workers._is_compute, dur, 0)  # noqa: SLF001
    return _Repair(_NOWHERE, np.nan, after, is_asked=False)


_NOWHERE = (-1, -1, -1, -1)
_REPAIRS: dict[str, Callable[[Workers, I64], _Repair | None]] = {
    "worker": partial(_slow_of, by=_WORKER),
    "workers": _as_medians,
    "replica": _slow_replica,
    "stage": _equal_stages,
    "micro-batch": _even_batches,
    "transfer": _median_transfers,
    "no transfer": _no_transfers,
}
"""What is asked, in this order."""


def load_workers(source: str | Path | bytes, *, steps: Collection[int] | None = None) -> Workers:
    """The workers of a job from one timeline, as ByteDance's StragglerAnalysis publishes them.

    Parameters
    ----------
    source : str, Path or bytes
        The file, plain or gzip, or its content.
    steps : collection of int, optional
        Only these, by their numbers in the file.

    Returns
    -------
    Workers

    Raises
    ------
    TraceFormatError
        If it is no such timeline, is damaged, or has no whole step.
    """
    source = source if isinstance(source, bytes) else path_of(source)
    path = None if isinstance(source, bytes) else source
    if not is_worker_timeline(source):
        raise TraceFormatError(
            "this is no timeline of workers.",
            path=path,
            hint="threads are named 'PP rank 0, TP rank 0, compute'; `hg.load` reads other traces.",
        )
    slices, n_lost = read_worker_timeline(source)
    if steps is not None:
        slices = slices[slices["step"].isin(list(steps))].reset_index(drop=True)
    table, schedule = scheduled(slices)
    if table.empty or not table["name"].isin(COMPUTES).any():
        raise TraceFormatError("the timeline has no such step that is whole.", path=path)
    n_left_out = int(slices["step"].nunique() - table["step"].nunique())
    return Workers(table, schedule, n_left_out, n_lost)
