"""Pipelines: what stages did in each step, where they waited, and what would help.

Actions of all ranks are one table, `frames.PIPELINE_ACTIONS`, whatever recorded them. All answers
here are functions of that table; with the order of each rank kept, it is also a simulation of the
run (`htagraph.algorithms.pipelines`).

Causes are asked in this order, each with the ones before it repaired: a slow rank among replicas of
its stage, or with all its stages slow; a slow stage; an uneven micro-batch; a single slow action; a
slow transfer. Else one slow machine would also be a stage that has too many layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.clocks import ONE_HOST_NS, Clock
from htagraph.algorithms.intervals import Cover
from htagraph.algorithms.pipelines import FORWARD, PHASES, WEIGHT, Schedule, schedule_of
from htagraph.job.pipeline_actions import RankActions
from htagraph.model.frames import PIPELINE_ACTIONS
from htagraph.model.job_answers import PIPELINE, PIPELINE_SAVINGS
from htagraph.model.schema import categorical

__all__ = ["Pipeline", "join_ranks", "with_peers"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CHANGES = ("rank", "stage", "micro-batch", "action", "transfer")
"""What may be slow, in the order in which it is asked."""

_SLOWER = 1.1
"""How many times as long as its peers something takes that is called slow.

Chosen above what equal stages differ by. Pinned by
`test_pipeline.py::test_a_stage_is_slow_from_a_tenth_on`.
"""

_PARTS = 64
"""Tensors of one action that are told apart: a limit of the numbering, above what models pass."""

MIN_SAVING = 0.03
"""Share of the step that a repair saves at least, to be called a cause.

Chosen. Pinned by `test_pipeline.py::test_equal_stages_have_no_cause`.
"""


@dataclass(frozen=True)
class Pipeline:
    """The actions of a pipeline, and the steps and waits of its ranks; times are common.

    Parameters
    ----------
    actions : DataFrame, schema `frames.PIPELINE_ACTIONS`
    steps : DataFrame
        Columns ``rank``, ``step``, ``start_ns``, ``end_ns``: one row per rank and step.
    waits : DataFrame
        Columns ``rank``, ``start_ns``, ``end_ns``: where ranks were blocked in sends and receives.
    step_numbers : mapping of str to int
        The number of each step, by its name.
    """

    actions: pd.DataFrame
    steps: pd.DataFrame
    waits: pd.DataFrame
    step_numbers: Mapping[str, int] = field(default_factory=dict)

    def _column(self, name: str) -> I64:
        column = self.actions[name]
        return (column.cat.codes if name == "phase" else column).to_numpy(np.int64)

    def _numbers(self, *names: str) -> I64:
        """A number for each distinct combination of columns."""
        return self.actions.groupby(list(names), sort=True).ngroup().to_numpy(np.int64)

    @cached_property
    def schedule(self) -> Schedule:
        """What each action waits for; positions are by the ends of actions."""
        times = (self._column(name) for name in ("begin_ns", "end_ns", "waited_ns"))
        return schedule_of(
            self._numbers("rank", "step"),
            self._numbers("replica", "step"),
            *(self._column(name) for name in ("stage", "phase", "micro_batch")),
            *times,
        )

    @property
    def overlap_ns(self) -> int:
        """By how much an action began before the one that it needs had ended; 0 for none."""
        schedule = self.schedule
        since = schedule.transfer_ns[schedule.needs >= 0]
        return int(max(-since.min(initial=0), 0))

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return int(self.actions["stage"].max()) + 1

    @property
    def step_ns(self) -> I64:
        """Length of each step: from the first begin of any action to the last end."""
        steps = self.actions.groupby("step")
        return (steps["end_ns"].max() - steps["begin_ns"].min()).to_numpy(np.int64)

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
        phase = self._column("phase")[one.order]
        mean = np.bincount(phase, one.dur_ns, len(PHASES)) / np.maximum(
            np.bincount(phase, minlength=len(PHASES)), 1
        )
        dur = np.maximum(np.round(mean).astype(np.int64), 1)[phase]
        none = np.zeros(len(dur), dtype=np.int64)
        ends = one._replace(lag_ns=none, release_ns=none).ends(dur, none)
        n_ranks = self.actions["rank"].nunique()
        return float(1 - dur.sum() / (n_ranks * max(int(self.last_ends(ends).sum()), 1)))

    def within(self, windows: Mapping[int, tuple[int, int]]) -> Pipeline | None:
        """The steps of which each rank has most in its window; None if there is none."""
        steps = self.steps[self.steps["rank"].isin(windows.keys())]
        bounds = np.array([windows[rank] for rank in steps["rank"].tolist()]).reshape(-1, 2)
        part = np.minimum(steps["end_ns"], bounds[:, 1]) - np.maximum(
            steps["start_ns"], bounds[:, 0]
        )
        inside = 2 * part > steps["end_ns"] - steps["start_ns"]
        kept = inside.groupby(steps["step"]).all()
        numbers = kept.index[kept]
        if not len(numbers):
            return None
        acts, steps = (one[one["step"].isin(numbers)] for one in (self.actions, self.steps))
        return replace(self, actions=acts.reset_index(drop=True), steps=steps)

    def table(self) -> pd.DataFrame:
        """What each rank did in each step, schema `job_answers.PIPELINE`; adds up to the step."""
        acts, one = self.actions, self.schedule
        at = np.empty(len(one.order), dtype=np.int64)
        at[one.order] = np.arange(len(at))
        begin, end, waited = (self._column(n) for n in ("begin_ns", "end_ns", "waited_ns"))
        phase, dur = self._column("phase"), end - begin
        is_first = one.before[at] < 0
        transfer = np.where(one.needs[at] >= 0, np.clip(one.transfer_ns[at], 0, waited), 0)
        inside = np.where(is_first, 0, waited)
        transfer = np.where(is_first, 0, transfer)
        parts = acts[["rank", "step"]].assign(
            forward_ns=np.where(phase == FORWARD, dur, 0),
            backward_ns=np.where((phase != FORWARD) & (phase != WEIGHT), dur, 0),
            weight_ns=np.where(phase == WEIGHT, dur, 0),
            transfer_ns=transfer,
            stall_ns=inside - transfer,
        )
        keys = ["rank", "step"]
        rows = parts.groupby(keys).sum()
        by_rank = acts.groupby(keys)
        own = by_rank.agg(
            first_ns=("begin_ns", "min"), last_ns=("end_ns", "max"), replica=("replica", "first")
        )
        rows = rows.join(own).reset_index().merge(self.steps, on=keys)
        whole = acts.groupby("step").agg(begun_ns=("begin_ns", "min"), done_ns=("end_ns", "max"))
        rows = rows.join(whole, on="step")
        start, stop = rows["start_ns"], rows["end_ns"]
        begun = np.minimum(np.maximum(rows["begun_ns"], start), rows["first_ns"])
        done = np.maximum(np.minimum(rows["done_ns"], stop), rows["last_ns"])
        stop = np.maximum(stop, done)
        work = ["forward_ns", "backward_ns", "weight_ns", "transfer_ns", "stall_ns"]
        between = rows["last_ns"] - rows["first_ns"] - rows[work].sum(axis=1)
        rows = rows.assign(
            dur_ns=stop - start,
            warm_up_ns=rows["first_ns"] - begun,
            between_ns=between,
            drain_ns=done - rows["last_ns"],
            outside_ns=(begun - start) + (stop - done),
            blocked_ns=self._blocked(rows),
            stages=self._stages(rows["rank"]),
            ideal_bubble=self.ideal_bubble,
        )
        parts = [*work, "warm_up_ns", "between_ns", "drain_ns", "outside_ns"]
        assert (rows[parts].sum(axis=1) == rows["dur_ns"]).all()
        rows = rows.sort_values(["step", "replica", "stages", "rank"], ignore_index=True)
        return PIPELINE.frame({name: rows[name].to_numpy() for name in PIPELINE.columns})

    def _stages(self, ranks: pd.Series[int]) -> npt.NDArray[np.object_]:
        """The stages of each rank, in words."""
        found = self.actions.groupby("rank")["stage"].unique()
        texts = {rank: ", ".join(map(str, sorted(own.tolist()))) for rank, own in found.items()}
        return ranks.map(texts).to_numpy(object)

    def _blocked(self, rows: pd.DataFrame) -> I64:
        """How long each rank was blocked in sends and receives of each step."""
        out = np.zeros(len(rows), dtype=np.int64)
        waits = dict(tuple(self.waits.groupby("rank")))
        for rank, places in rows.groupby("rank").indices.items():
            if rank in waits:
                start, end = (waits[rank][n].to_numpy(np.int64) for n in ("start_ns", "end_ns"))
                own = rows.iloc[places]
                out[places] = Cover(start, end).within(
                    own["start_ns"].to_numpy(np.int64), own["end_ns"].to_numpy(np.int64)
                )
        return out

    def of_one_stage(self, collectives: pd.DataFrame) -> Bools:
        """Whether the members of each matched collective all are of the same stages."""
        number = self.actions.groupby("rank")["stage"].agg(lambda one: tuple(sorted(set(one))))
        codes = pd.Series(pd.factorize(number)[0], index=number.index)
        own = collectives["rank"].map(codes).fillna(-1)
        spans = own.groupby(collectives["match"])
        same: Bools = (spans.transform("min") == spans.transform("max")).to_numpy(bool)
        return same

    def savings(self) -> pd.DataFrame:
        """What would shorten a step, schema `job_answers.PIPELINE_SAVINGS`, in order of asking."""
        return self._causes.table

    @cached_property
    def _causes(self) -> _Causes:
        return _Causes(self)

    def excess_within(self, rank: int, start_ns: I64, end_ns: I64) -> I64:
        """How much shorter some stretches of a rank are without what is slow."""
        one = self._causes
        order = self.schedule.order
        mine = np.flatnonzero(self._column("rank")[order] == rank)
        mine = mine[np.argsort(self._column("begin_ns")[order][mine], kind="stable")]
        begin, end = (self._column(name)[order][mine] for name in ("begin_ns", "end_ns"))
        gone = np.cumsum(self.schedule.dur_ns[mine] - one.dur[mine])
        times = np.column_stack([begin, end]).ravel()
        sums = np.column_stack([np.append(0.0, gone[:-1]), gone]).ravel()
        before = (
            np.interp(at, times, sums) if len(times) else at * 0.0 for at in (start_ns, end_ns)
        )
        first, last = before
        return np.clip(np.floor(last - first).astype(np.int64), 0, end_ns - start_ns)


def _low_median(values: F64) -> float:
    """The median, of an even number the lower of the two: the faster of two stages."""
    return float(np.sort(values)[(len(values) - 1) // 2]) if len(values) else 1.0


def _against_others(times: F64) -> F64:
    """Each time over the usual one of all but the longest."""
    others = np.delete(times, int(times.argmax()))
    return times / max(_low_median(others), 1.0)


class _Causes:
    """The changes to a pipeline, each tried with those before it that helped."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.schedule = pipeline, pipeline.schedule
        order = self.schedule.order
        acts = pipeline.actions.iloc[order].reset_index(drop=True)
        self.cell = acts[["rank", "replica", "stage", "micro_batch", "step"]].assign(
            phase=acts["phase"].cat.codes.to_numpy(np.int64)
        )
        self.dur = self.schedule.dur_ns.astype(np.float64)
        self.transfer = self.schedule.transfer_ns
        self.ends_ns = pipeline.last_ends(self.schedule.ends())
        self.step_ns = float(pipeline.step_ns.mean())
        self.rows: list[dict[str, object]] = []
        self.table = self._asked()

    def _saved(self, dur: F64, transfer: I64 | None = None) -> float:
        ends = self.schedule.ends(
            np.round(dur).astype(np.int64), self.transfer if transfer is None else transfer
        )
        return float((self.ends_ns - self.pipeline.last_ends(ends)).mean())

    def _note(
        self, change: str, which: tuple[int, int, int], ratio: float, dur: F64, evenly: F64 | None
    ) -> None:
        """Note what a change saves, and keep it if it helps enough."""
        before = self._saved(self.dur)
        saves = self._saved(dur) - before
        spread = 0.0 if evenly is None else self._saved(evenly) - before
        is_cause = ratio >= _SLOWER and saves >= MIN_SAVING * self.step_ns
        rank, stage, micro_batch = which
        self.rows.append(
            {
                "change": CHANGES.index(change),
                "rank": rank,
                "stage": stage,
                "micro_batch": micro_batch,
                "ratio": ratio,
                "saves_ns": int(saves),
                "spread_ns": int(spread),
                "step_ns": int(self.step_ns),
                "share": saves / max(self.step_ns, 1.0),
                "is_cause": bool(is_cause),
            }
        )
        if is_cause:
            self.dur = dur

    def _work(self) -> pd.DataFrame:
        """Time of each micro-batch on each stage, all phases together."""
        keys = ["rank", "replica", "stage", "step", "micro_batch"]
        return self.cell.assign(dur=self.dur).groupby(keys, as_index=False)["dur"].sum()

    def _by_stage(self, work: pd.DataFrame) -> pd.DataFrame:
        """Usual time of a micro-batch on each stage of each rank."""
        keys = ["rank", "replica", "stage"]
        return work.groupby(keys, as_index=False)["dur"].median()

    def _ask_rank(self) -> None:
        times = self._by_stage(self._work())
        if times["replica"].max() > 0:
            usual = times.groupby("stage")["dur"].transform(lambda one: _low_median(one.to_numpy()))
        elif (times.groupby("rank")["stage"].size() > 1).all():
            usual = pd.Series(_low_median(times["dur"].to_numpy()), index=times.index)
        else:
            return
        ratio = (times["dur"] / usual).groupby(times["rank"]).min()
        rank = int(ratio.idxmax())
        slow = float(ratio.max())
        mine = self.cell["rank"].to_numpy() == rank
        self._note(
            "rank", (rank, -1, -1), slow, np.where(mine, self.dur / max(slow, 1), self.dur), None
        )

    def _ask_stage(self) -> None:
        work = self._work()
        times = work.groupby("stage")["dur"].median()
        if len(times) < 2:
            return
        ratio = _against_others(times.to_numpy(np.float64))
        stage = self.cell["stage"].to_numpy(np.int64)
        place = np.searchsorted(times.index.to_numpy(np.int64), stage)
        worst = int(ratio.argmax())
        equal = self.dur / np.where(ratio >= _SLOWER, ratio, 1.0)[place]
        spread = self.dur * (times.to_numpy().mean() / times.to_numpy())[place]
        name = int(times.index[worst])
        ranks = self.cell.loc[stage == name, "rank"].unique()
        rank = int(ranks[0]) if len(ranks) == 1 else -1
        self._note("stage", (rank, name, -1), float(ratio[worst]), equal, spread)

    def _ask_micro_batch(self) -> None:
        work = self._work()
        usual = work.groupby(["rank", "stage"])["dur"].transform("median")
        work["size"] = work["dur"] / usual.clip(lower=1.0)
        keys = ["replica", "step", "micro_batch"]
        sizes = work.groupby(keys)["size"].agg(lambda one: _low_median(one.to_numpy()))
        size = self.cell.join(sizes, on=keys)["size"].to_numpy(np.float64)
        mean = sizes.groupby(["replica", "step"]).transform("mean")
        evenly = self.cell.join((mean / sizes).rename("factor"), on=keys)["factor"].to_numpy()
        by_number = sizes.groupby("micro_batch").median()
        worst = float(sizes.max())
        # A number is named only if it is the same in most steps.
        name = int(by_number.idxmax()) if by_number.max() >= _SLOWER else -1
        equal = self.dur / np.where(size >= _SLOWER, size, 1.0)
        self._note("micro-batch", (-1, -1, name), worst, equal, self.dur * evenly)

    def _ask_action(self) -> None:
        keys = ["rank", "stage", "phase"]
        usual = self.cell.assign(dur=self.dur).groupby(keys)["dur"].transform("median").to_numpy()
        # In most steps: what is slow once is the machine's noise.
        once = self.cell.assign(ratio=self.dur / np.maximum(usual, 1.0))
        every = once.groupby([*keys, "micro_batch"])["ratio"]
        ratio = every.transform(lambda one: _low_median(one.to_numpy())).to_numpy()
        worst = int(((ratio - 1) * usual).argmax())
        which = tuple(int(self.cell[name].iloc[worst]) for name in ("rank", "stage", "micro_batch"))
        equal = np.where(ratio >= _SLOWER, np.minimum(usual, self.dur), self.dur)
        rank, stage, micro_batch = which
        self._note("action", (rank, stage, micro_batch), float(ratio[worst]), equal, None)

    def _ask_transfer(self) -> None:
        there = self.schedule.needs >= 0
        if not there.any():
            return
        usual = int(np.median(self.transfer[there]))
        worst = int(np.where(there, self.transfer, 0).argmax())
        less = np.where(there, np.minimum(self.transfer, usual), self.transfer)
        saves = self._saved(self.dur, less) - self._saved(self.dur)
        ratio = float(self.transfer[worst]) / max(usual, 1)
        rank, stage, micro_batch = (
            int(self.cell[name].iloc[worst]) for name in ("rank", "stage", "micro_batch")
        )
        self.rows.append(
            {
                "change": CHANGES.index("transfer"),
                "rank": rank,
                "stage": stage,
                "micro_batch": micro_batch,
                "ratio": ratio,
                "saves_ns": int(saves),
                "spread_ns": 0,
                "step_ns": int(self.step_ns),
                "share": saves / max(self.step_ns, 1.0),
                "is_cause": False,
            }
        )

    def _asked(self) -> pd.DataFrame:
        """The changes, in the order in which they are asked."""
        self._ask_rank()
        self._ask_stage()
        self._ask_micro_batch()
        self._ask_action()
        self._ask_transfer()
        rows = pd.DataFrame(self.rows)
        columns = {
            name: rows[name].to_numpy() for name in PIPELINE_SAVINGS.columns if name != "change"
        }
        return PIPELINE_SAVINGS.frame({**columns, "change": categorical(rows["change"], CHANGES)})


def join_ranks(
    found: Mapping[int, RankActions], clocks: Mapping[int, Clock], *, is_timed: bool = True
) -> Pipeline | None:
    """The pipeline of some ranks, in common time; None if they are none, or it is not clear how.

    Ranks without recorded stages are stages in the order in which they begin; this has to agree
    with all times: no action begins before the one that it needs has ended. Without `is_timed`,
    clocks are not those of one host, and stages are recorded.
    """
    if len(found) < 2:
        return None
    actions, steps, waits = [], [], []
    for rank, one in sorted(found.items()):
        clock = clocks[rank]
        names = one.steps["name"].to_numpy(object)
        own = one.actions.assign(rank=rank, name=names[one.actions["step"].to_numpy(np.int64)])
        for column in ("begin_ns", "end_ns"):
            own[column] = clock.to_common(own[column].to_numpy(np.int64))
        actions.append(own)
        start, end = (
            clock.to_common(one.steps[n].to_numpy(np.int64)) for n in ("start_ns", "end_ns")
        )
        steps.append(pd.DataFrame({"rank": rank, "name": names, "start_ns": start, "end_ns": end}))
        held = clock.to_common(one.waits.reshape(-1)).reshape(-1, 2)
        waits.append(pd.DataFrame({"rank": rank, "start_ns": held[:, 0], "end_ns": held[:, 1]}))
    table, bounds = pd.concat(actions, ignore_index=True), pd.concat(steps, ignore_index=True)
    everywhere = table.groupby("name")["rank"].nunique() == len(found)
    once = bounds.groupby(["rank", "name"]).size().groupby("name").max() == 1
    kept = bounds["name"][bounds["name"].isin(everywhere[everywhere].index)].drop_duplicates()
    kept = kept[kept.isin(once[once].index)]
    number = {name: at for at, name in enumerate(kept.tolist())}
    table = table[table["name"].isin(number)]
    bounds = bounds[bounds["name"].isin(number)]
    if table.empty:
        return None
    table = table.assign(step=table["name"].map(number).to_numpy(np.int64))
    bounds = bounds.assign(step=bounds["name"].map(number).to_numpy(np.int64)).drop(columns="name")
    table = _with_stages(table)
    if table is None or not _is_whole(table):
        return None
    columns = {name: table[name].to_numpy() for name in PIPELINE_ACTIONS.columns if name != "phase"}
    phases = categorical(table["phase"], PHASES)
    frame = PIPELINE_ACTIONS.frame({**columns, "phase": phases})
    pipeline = Pipeline(frame, bounds, pd.concat(waits, ignore_index=True), number)
    return pipeline if not is_timed or pipeline.overlap_ns <= ONE_HOST_NS else None


def with_peers(
    tables: Mapping[int, pd.DataFrame], found: Mapping[int, RankActions], pipeline: Pipeline
) -> dict[int, pd.DataFrame]:
    """Collectives of ranks, `answers.COLLECTIVES`, with peers and numbers of sends and receives.

    A number is that of what is passed: its step, direction, receiving stage and micro-batch.
    """
    acts = pipeline.actions
    most = int(acts["micro_batch"].max()) + 1
    held = acts[["replica", "stage", "rank"]].drop_duplicates().set_index(["replica", "stage"])
    replica = acts.groupby("rank")["replica"].first()
    alone = acts.groupby("rank")["stage"].agg(["first", "nunique"])
    out = dict(tables)
    for rank, one in found.items():
        told, table = one.messages, tables[rank]
        stage = told["stage"].to_numpy(np.int64)
        stage = np.where(stage >= 0, stage, alone.loc[rank, "first"])
        forward = told["phase"].to_numpy(np.int64) == FORWARD
        sends = told["sends"].to_numpy(bool)
        other = np.where(forward == sends, stage + 1, stage - 1)
        keys = pd.MultiIndex.from_arrays([np.full(len(told), replica[rank]), other])
        peer = held["rank"].reindex(keys).to_numpy(np.float64)
        receiver = np.where(sends, other, stage)
        names = one.steps["name"].to_numpy(object)[told["step"].to_numpy(np.int64)]
        step = pd.Series(names).map(pipeline.step_numbers).to_numpy(np.float64)
        code = ((step * 2 + forward) * (pipeline.n_stages + 1) + receiver) * most
        code += told["micro_batch"].to_numpy(np.int64)
        parts = pd.Series(code).groupby([code, sends]).cumcount().to_numpy(np.int64)
        known = ~np.isnan(peer) & ~np.isnan(step) & (parts < _PARTS)
        events = told["event"].to_numpy(np.int64)[known]
        order = np.argsort(events)
        place = np.searchsorted(events[order], table["event"].to_numpy(np.int64))
        place = order[np.minimum(place, len(order) - 1)] if len(order) else place
        hit = events[place] == table["event"] if len(order) else np.zeros(len(table), dtype=bool)
        values = {
            "peer": peer[known].astype(np.int64),
            "seq": (code[known] * _PARTS + parts[known]).astype(np.int64),
        }
        if len(order):
            out[rank] = table.assign(
                **{name: np.where(hit, own[place], table[name]) for name, own in values.items()}
            )
    return out


def _with_stages(table: pd.DataFrame) -> pd.DataFrame | None:
    """Actions with stage and replica; None where some ranks recorded stages and others did not."""
    recorded = table["stage"] >= 0
    if not recorded.any():
        first = table[table["phase"] == FORWARD].groupby(["step", "rank"])["begin_ns"].min()
        order = first.groupby("step").rank().groupby("rank").median().sort_values(kind="stable")
        stage = {rank: at for at, rank in enumerate(order.index.tolist())}
        if len(stage) < table["rank"].nunique():
            return None
        return table.assign(stage=table["rank"].map(stage).to_numpy(np.int64), replica=0)
    if not recorded.all():
        return None
    own = table.groupby("rank")["stage"].agg(lambda one: tuple(sorted(set(one.tolist()))))
    replica = own.groupby(own).cumcount()
    return table.assign(replica=table["rank"].map(replica).to_numpy(np.int64))


def _is_whole(table: pd.DataFrame) -> bool:
    """Whether every stage has a forward of each micro-batch of every step, in each replica."""
    forward = table[table["phase"] == FORWARD]
    if forward.duplicated(["replica", "stage", "step", "micro_batch"]).any():
        return False
    size = forward.groupby(["replica", "step"]).agg(
        n=("stage", "size"), stages=("stage", "nunique"), batches=("micro_batch", "nunique")
    )
    n_stages = int(table["stage"].max()) + 1
    return bool(
        n_stages > 1
        and (size["stages"] == n_stages).all()
        and (size["n"] == size["stages"] * size["batches"]).all()
        and len(size) == table["replica"].nunique() * table["step"].nunique()
    )
