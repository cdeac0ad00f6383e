"""Intervals against real pairs: how often what was saved lies in what was predicted.

``python -m tests.benchmarks.bench_intervals``: the table of `docs/accuracy.md`, from the pairs in
``tests/data/real_pairs.csv``. ``python -m tests.benchmarks.bench_intervals FOLDER`` predicts the
pairs that ``tests/data/captures/scripts/pairs.py`` left in FOLDER, and writes that file.

A pair is a short run with a cause, and the run after it with that cause repaired. What the first
run predicts is compared with the second: its median step if one step was predicted, else all of it.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import htagraph as hg
from htagraph.replay.changes import Change

TABLE = Path(__file__).parents[1] / "data" / "real_pairs.csv"
_LOADERS, _AFTER_STEP = "enumerate(DataLoader)*", "after Optimizer.zero_grad*"
_OPTIMIZER = "Optimizer.step#*"

Asked = Callable[["Measured"], Change]


class Measured(NamedTuple):
    """All runs of a pair."""

    before: Sequence[Path]
    after: Sequence[Path]

    def ratio(self, name: str) -> float:
        """How long the median range of a name lasts after, as a share of before."""
        after, before = (
            statistics.median(ns for run in runs for ns in _ranges(run, name))
            for runs in (self.after, self.before)
        )
        return after / before


def _ranges(run: Path, name: str) -> list[int]:
    graphs = [hg.load(file).compile() for file in (sorted(run.glob("*.gz")) or [run])]
    return [ns for one in graphs[-1:] for ns in one.dag.events.dur_ns[one.select(name=name).rows]]


def _remove(name: str) -> Asked:
    return lambda _: hg.remove(name)


def _remove_on_1(name: str) -> Asked:
    return lambda _: hg.remove(name).on_rank(1)


def _scaled(name: str) -> Asked:
    return lambda measured: hg.scale(name, by=measured.ratio(name))


PREFETCH: Asked = lambda _: hg.prefetch()
EQUALISE: Asked = lambda _: hg.equalise()
AFTER_STEP: Asked = lambda _: hg.remove(hg.code(_AFTER_STEP))

KINDS: dict[str, dict[str, Asked]] = {
    "a process loads ahead": dict.fromkeys(
        (f"prefetch_{name}" for name in (
            "sleep_short", "sleep_long", "torch_short", "torch_long", "python", "json", "big", "items"
        )), PREFETCH),
    "a thread loads ahead": dict.fromkeys(("thread_sleep", "thread_torch", "thread_python"), PREFETCH),
    "loader faster": dict.fromkeys(("cheaper_sleep", "cheaper_torch", "cheaper_python"), _scaled(_LOADERS)),
    "hook removed": dict.fromkeys(
        ("hook_sleep", "hook_stats", "hook_copy", "hook_python", "hook_gradients", "hook_backward_sleep"),
        _remove("hook")),
    "values read for logging": {
        **dict.fromkeys(("item_each", "item_parameters", "mask", "tolist", "accuracy"), _remove("log")),
        "isnan_layers": _remove("check")},
    "optimizer": {
        **dict.fromkeys(("adam_foreach", "adam_fused", "adam_sgd"), _scaled(_OPTIMIZER)),
        "clip": _remove("clip"), "ema": _remove("ema")},
    "small operators": {
        "small_removed": _remove("small"), "small_halved": _scaled("small"),
        "norm_by_hand": _scaled("norm"), "samples_loop": _remove("each")},
    "code of the loop": {
        "sleep_after": AFTER_STEP, "sleep_middle": _remove("wait"), "json_forward": _remove("parse"),
        "python_loop": AFTER_STEP, "hash_each": _remove("hash"), "gc_each": _remove("collect"),
        "lists": _remove("lists")},
    "files": {"save_each": _remove("save"), "save_bytes": _remove("save"),
              "read_each": _remove("read file"), "log_lines": _remove("write")},
    "work of the model": {"layers_removed": _remove("teacher"), "matmul_halved": _scaled("mix"),
                          "augment": _remove("augment"), "slow_backward": _remove("SlowBackward")},
    "late rank": {
        **dict.fromkeys(("ddp_sleep", "ddp_alternate", "reduce_sleep", "reduce_async_sleep"), EQUALISE),
        "ddp_sleep_forward": _remove_on_1("hook"), "ddp_python": _remove_on_1("parse"),
        "ddp_work": _remove_on_1("more"),
        "ddp_loader": lambda measured: hg.scale(_LOADERS, by=measured.ratio(_LOADERS)).on_rank(1)},
    "collectives removed": {
        "ddp_log_both": _remove("log"), "reduce_metrics": _remove("log"),
        "barriers": _remove("barriers"), "gather_objects": _remove("gather")},
}


def rows(folder: Path, only=()) -> Iterator[dict[str, object]]:
    for kind, pairs in KINDS.items():
        for name, asked in pairs.items():
            if only and name not in only: continue
            before = sorted(folder.glob(f"{name}.before.*"))
            measured = Measured(before, [one.with_name(one.name.replace(".before.", ".after.")) for one in before])
            if not before: continue
            change = asked(measured)
            for n, (one, other) in enumerate(zip(*measured)):
                yield {"kind": kind, "pair": name, "repeat": n, "change": str(change)} | judged(one, other, change)


def judged(before: Path, after: Path, change: Change) -> dict[str, object]:
    if before.is_dir():
        job = hg.load_job(before)
        scenario = hg.what_if(job, change)
        other = hg.load_job(after)
        window_ns, after_ns = scenario.rehearsal.window.dur_ns, other.critical_path().dur_ns
        spread, error, step = np.nan, np.nan, False
        t = [job.step_times(), other.step_times()]
        steps = [x.groupby("step")["dur_ns"].max().tolist() for x in t]
        spread = max(s for s in (_spread(g["dur_ns"].to_numpy()) for _, g in t[0].groupby("rank")))
    else:
        graph, other = (hg.load(one).compile() for one in (before, after))
        scenario = hg.what_if(graph, change)
        window_ns = scenario.before.dur_ns
        steps = [one.step_times()["dur_ns"].tolist() for one in (graph, other)]
        step = scenario.before.interval.name.startswith("ProfilerStep")
        after_ns = statistics.median(steps[1]) if step else other.dur_ns
        spread, error = scenario.hold_out.spread, scenario.hold_out.error
    said = scenario.rehearsal.saving(scenario.changes)
    return {
        "withheld": scenario.withheld[:40], "is_step": step, "window_ns": window_ns, "low_ns": said.low_ns, "expected_ns": said.expected_ns,
        "high_ns": said.high_ns, "after_ns": int(after_ns), "spread": spread, "error": error, "steps": " ".join(f"{x/1e6:.1f}" for x in steps[0]), "after_steps": " ".join(f"{x/1e6:.1f}" for x in steps[1]),
    }

def _spread(x):
    m = np.median(x); return np.median(np.abs(x-m))/m


if __name__ == "__main__":
    out = []
    for row in rows(Path(sys.argv[1]), sys.argv[3:]):
        out.append(row)
        s = row
        print(f"{s['pair']:20s} {s['repeat']} {s['change'][:40]:40s} {s['window_ns']/1e6:7.1f} -{s['expected_ns']/1e6:6.1f} [{s['low_ns']/1e6:6.1f},{s['high_ns']/1e6:6.1f}] true {(s['window_ns']-s['after_ns'])/1e6:6.1f} spread {s['spread']:.2f} {s['withheld']}", flush=True)
    pd.DataFrame(out).to_csv(sys.argv[2], index=False)
