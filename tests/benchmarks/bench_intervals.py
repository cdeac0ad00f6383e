"""Intervals against real pairs: how often what a repair saved lies in what was predicted.

``python -m tests.benchmarks.bench_intervals`` prints the table of `docs/accuracy.md`, from
``tests/data/real_pairs.csv``. ``python -m tests.benchmarks.bench_intervals FOLDER …`` predicts the
pairs that ``tests/data/captures/scripts/pairs.py`` left in the folders, and writes that file. A
folder is named after its machine: ``free`` had a core or two to spare, on ``busy`` other programs
used all cores, and runs were pinned to two of them.

A pair is a short run of PyTorch with a cause, and the next run, with that cause repaired. One run
predicts; what is measured is the difference between the median steps of all runs with the cause
and of all without (*usual*), or between this run and the next one (*next*). Of a job, it is the
whole window. Constants were chosen on the kinds of `FIT`; the others set nothing.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

import htagraph as hg
from htagraph.replay.changes import Change
from htagraph.replay.rehearsal import Rehearsed, Saving, run_to_run_ns

TABLE = Path(__file__).parents[1] / "data" / "real_pairs.csv"
FIT = (
    "a process loads ahead",
    "loader faster",
    "hook removed",
    "values read for logging",
    "small operators",
    "late rank",
)
"""Kinds on which constants were chosen."""
_LOADERS = "enumerate(DataLoader)*"


class Runs(NamedTuple):
    """The runs of a pair, with its cause and without."""

    before: Sequence[Path]
    after: Sequence[Path]

    def ratio(self, name: str) -> float:
        """How long the median range of a name lasts without the cause, as a share of with it."""
        after, before = (
            statistics.median(ns for run in runs for ns in _ranges(run, name))
            for runs in (self.after, self.before)
        )
        return after / before


def _ranges(run: Path, name: str) -> list[int]:
    """Durations of the ranges of a name; of a job, on its last rank."""
    graph = hg.load(max(run.glob("*.gz"), default=run)).compile()
    found: list[int] = graph.dag.events.dur_ns[graph.select(name=name).rows].tolist()
    return found


Asked = Callable[[Runs], Change]


def _removed(name: str, *, rank: int = -1) -> Asked:
    change = hg.remove(name)
    return lambda _: change if rank < 0 else change.on_rank(rank)


def _scaled(name: str, *, rank: int = -1) -> Asked:
    """As much faster as it was without the cause: how it gets there is not predicted."""

    def change(runs: Runs) -> Change:
        scaled = hg.scale(name, by=runs.ratio(name))
        return scaled if rank < 0 else scaled.on_rank(rank)

    return change


def _prefetched(_: Runs) -> Change:
    return hg.prefetch()


def _equalised(_: Runs) -> Change:
    return hg.equalise()


def _code_gone(_: Runs) -> Change:
    return hg.remove(hg.code("after Optimizer.zero_grad*"))


def _each(asked: Asked, *names: str) -> dict[str, Asked]:
    return dict.fromkeys(names, asked)


_WORK = ("sleep_short", "sleep_long", "torch_short", "torch_long", "python", "json", "big", "items")
_HOOKS = ("sleep", "stats", "copy", "python", "gradients", "backward_sleep")
_LOGS = ("item_each", "item_parameters", "mask", "tolist", "accuracy")
_SLEEPS = ("ddp_sleep", "ddp_alternate", "reduce_sleep", "reduce_async_sleep")
PAIRS: dict[str, dict[str, Asked]] = {
    "a process loads ahead": _each(_prefetched, *(f"prefetch_{name}" for name in _WORK)),
    "a thread loads ahead": _each(_prefetched, "thread_sleep", "thread_torch", "thread_python"),
    "loader faster": _each(_scaled(_LOADERS), "cheaper_sleep", "cheaper_torch", "cheaper_python"),
    "hook removed": _each(_removed("hook"), *(f"hook_{name}" for name in _HOOKS)),
    "values read for logging": {
        **_each(_removed("log"), *_LOGS),
        "isnan_layers": _removed("check"),
    },
    "optimizer": {
        **_each(_scaled("Optimizer.step#*"), "adam_foreach", "adam_fused", "adam_sgd"),
        "clip": _removed("clip"),
        "ema": _removed("ema"),
    },
    "small operators": {
        "small_removed": _removed("small"),
        "small_halved": _scaled("small"),
        "norm_by_hand": _scaled("norm"),
        "samples_loop": _removed("each"),
    },
    "code of the loop": {
        **_each(_code_gone, "sleep_after", "python_loop"),
        "sleep_middle": _removed("wait"),
        "json_forward": _removed("parse"),
        "hash_each": _removed("hash"),
        "gc_each": _removed("collect"),
        "lists": _removed("lists"),
    },
    "files": {
        **_each(_removed("save"), "save_each", "save_bytes"),
        "read_each": _removed("read file"),
        "log_lines": _removed("write"),
    },
    "work of the model": {
        "layers_removed": _removed("teacher"),
        "matmul_halved": _scaled("mix"),
        "augment": _removed("augment"),
        "slow_backward": _removed("SlowBackward"),
    },
    "late rank": {
        **_each(_equalised, *_SLEEPS),
        "ddp_sleep_forward": _removed("hook", rank=1),
        "ddp_python": _removed("parse", rank=1),
        "ddp_work": _removed("more", rank=1),
        "ddp_loader": _scaled(_LOADERS, rank=1),
    },
    "collectives removed": {
        **_each(_removed("log"), "ddp_log_both", "reduce_metrics"),
        "barriers": _removed("barriers"),
        "gather_objects": _removed("gather"),
    },
}
"""By kind of cause, the pairs and the change that repairs each."""


def predicted(folder: Path) -> Iterator[dict[str, object]]:
    """Yield a row for each pair of runs in a folder; times in ms."""
    for kind, pairs in PAIRS.items():
        for name, asked in pairs.items():
            before = sorted(one for one in folder.glob(f"{name}.before.*") if _other(one).exists())
            if not before:
                continue
            runs = Runs(before, [_other(run) for run in before])
            change = asked(runs)
            for one, other in zip(*runs, strict=True):
                times = _of_job(one, other, change) if one.is_dir() else _of_run(one, other, change)
                yield {"machine": folder.name, "kind": kind, "pair": name} | times


def _other(run: Path) -> Path:
    """The run without the cause."""
    return run.with_name(run.name.replace(".before.", ".after."))


def _of_run(before: Path, after: Path, change: Change) -> dict[str, float]:
    """A row of two runs of one process: steps, or all of a run if its steps are not alike."""
    graph, other = (hg.load(file).compile() for file in (before, after))
    scenario = hg.what_if(graph, change)
    rehearsal = scenario.rehearsal
    is_step = rehearsal.window != graph.interval
    lengths = [
        float(one.step_times()["dur_ns"].median()) if is_step else one.dur_ns
        for one in (graph, other)
    ]
    return _row(rehearsal, rehearsal.saving(scenario.changes), scenario.hold_out.spread, lengths)


def _of_job(before: Path, after: Path, change: Change) -> dict[str, float]:
    """A row of two jobs."""
    job, other = hg.load_job(before), hg.load_job(after)
    rehearsal = job.rehearsal
    lengths = [rehearsal.window.dur_ns, other.rehearsal.window.dur_ns]
    return _row(rehearsal, rehearsal.saving((change,)), rehearsal.spread, lengths)


def _row(
    rehearsal: Rehearsed, saving: Saving, spread: float, lengths_ns: Sequence[float]
) -> dict[str, float]:
    read = [ns for _, ns in saving.readings]
    times = {
        "window": rehearsal.window.dur_ns,
        "low": min(read),
        "expected": saving.expected_ns,
        "high": max(read),
        "before": lengths_ns[0],
        "after": lengths_ns[1],
    }
    return {name: round(ns / 1e6, 2) for name, ns in times.items()} | {"spread": round(spread, 3)}


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """The pairs with their intervals, and whether these hold what was saved."""
    error = [
        run_to_run_ns(spread, round(window * 1e6)) / 1e6
        for spread, window in zip(table["spread"], table["window"], strict=True)
    ]
    least, most = table["low"] - error, table["high"] + error
    usual = table.groupby(["machine", "pair"])[["before", "after"]].transform("median")
    saved = pd.DataFrame(
        {"usual": usual["before"] - usual["after"], "next": table["window"] - table["after"]}
    )
    holds = {name: (least <= ms) & (ms <= most) for name, ms in saved.items()}
    return table.assign(
        least=least,
        most=most,
        holds_usual=holds["usual"],
        holds_next=holds["next"],
        width=(most - least) / table["window"],
        error=(table["expected"] - saved["usual"]).abs() / table["window"],
    )


def rows(table: pd.DataFrame) -> Iterator[str]:
    """Yield the rows of the table: kinds on the free machine, and all of both parts on each."""
    found = judged(table)
    is_fit, is_free = found["kind"].isin(FIT), found["machine"] == "free"
    for kind in sorted(PAIRS, key=lambda kind: kind not in FIT):
        yield _row_of(kind, found[is_free & (found["kind"] == kind)])
    for machine in ("free", "busy"):
        for part, mask in (("fit", is_fit), ("hold-out", ~is_fit)):
            yield _row_of(f"all of {part}, {machine}", found[mask & (found["machine"] == machine)])


def _row_of(name: str, part: pd.DataFrame) -> str:
    """A row of the table."""
    return (
        f"| {name} | {'fit' if part['kind'].isin(FIT).all() else 'hold-out'} "
        f"| {part['pair'].nunique()} | {len(part)} | {part['holds_next'].mean():.0%} "
        f"| {part['holds_usual'].mean():.0%} | {part['width'].median():.0%} "
        f"| {part['error'].median():.1%} |"
    )


def main() -> None:
    """Predict the pairs of folders, if some are named, and print the table."""
    if folders := [Path(name) for name in sys.argv[1:]]:
        found = pd.DataFrame(row for folder in folders for row in predicted(folder))
        found.to_csv(TABLE, index=False)
    print("| repaired | part | pairs | runs | next run held | usual held | width | error |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows(pd.read_csv(TABLE)):
        print(row)


if __name__ == "__main__":
    main()
