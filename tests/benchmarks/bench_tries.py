"""Decisions of `htagraph try` against what edits did: PyTorch on a free and on a loaded machine.

``python -m tests.benchmarks.bench_tries record FOLDER [free] [loaded]`` (with PyTorch, on CPU)
trains the programs of ``tests/data/captures/scripts/pairs.py`` that `PAIRS` names: with a cause and
with that cause repaired, `N_RUNS` times, each recorded by `htagraph.profile`. On a *loaded*
machine as many processes compute meanwhile as it has cores. *free* also times both without a
profiler: the truth.

``python -m tests.benchmarks.bench_tries judge FOLDER …`` predicts each repair from a run, decides,
and prints the table of `docs/try.md`. An edit that changes nothing is another run with the cause.
*free, then loaded* has the runs before on one machine, and those after on the other.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import product, zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import htagraph as hg
from htagraph.cli.try_ import recorded
from htagraph.comparison.decision import Decision
from htagraph.reports.plan import Plan, Recorded
from tests.benchmarks.bench_intervals import PAIRS as ASKED
from tests.benchmarks.bench_intervals import Runs

SCRIPT = Path(__file__).parents[1] / "data" / "captures" / "scripts" / "pairs.py"
TABLE = Path(__file__).parents[1] / "data" / "tries.csv"
SKIP, STEPS = 3, 6
N_STEPS = SKIP + 5 * STEPS  # The last are not recorded
N_RUNS = {"before": 3, "after": 3}
N_TIMED = 5
"""Runs of each side without a profiler."""

PAIRS = {
    "loader": ("prefetch_sleep_short", "prefetch_torch_long", "prefetch_json", "thread_sleep"),
    "hook": ("hook_sleep", "hook_stats", "hook_gradients", "hook_backward_sleep"),
    "optimizer": ("clip", "ema", "adam_foreach"),
    "copies": ("hook_copy", "save_bytes", "tolist"),
    "small operators": ("small_removed", "samples_loop", "item_each", "isnan_layers"),
    "late rank": ("ddp_sleep", "ddp_python", "reduce_sleep"),
    "collectives": ("reduce_metrics", "barriers", "gather_objects"),
}
"""24 repairs by kind; the change that each is, `bench_intervals` has."""
NAMES = [name for names in zip_longest(*PAIRS.values()) for name in names if name]


def _programs() -> ModuleType:
    """The programs, as long as they have to be here."""
    spec = importlib.util.spec_from_file_location("pairs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    found.N_STEPS = N_STEPS
    return found


def _train(run: Any, folder: str) -> None:
    """Train as `Run.train` does, recorded by `htagraph.profile`; without a folder, timed."""
    model = run.wrap(run.model)
    optimizer = run.optimizer = run.make_optimizer(model.parameters())
    batches = iter(run.batches or run.loader)

    def steps() -> Iterator[None]:
        for n in range(N_STEPS):
            x, y = next(batches)
            run.before_forward(n)
            loss = run.loss(model, x, y)
            run.after_forward(n)
            loss.backward()
            run.after_backward(n)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            run.after_step(n)
            yield

    if folder.endswith(".json"):
        ends = [time.perf_counter_ns() for _ in steps()]
        if run.rank == 0:
            Path(folder).write_text(json.dumps(np.diff(ends[SKIP - 1 :]).tolist()))
        return
    with hg.profile(folder, skip=SKIP, steps=STEPS, report=False) as profiler:
        for _ in steps():
            profiler.step()
    for thread in threading.enumerate():
        if thread.name == "htagraph-capture":
            thread.join()


def _run(programs: ModuleType, name: str, side: str, out: Path) -> None:
    """One run of a side, in a process of its own for each rank."""
    planted, store = side == "before", out.with_name(f"{out.name}.store")

    def rank_of(rank: int) -> None:
        programs.dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=programs.WORLD
        )
        run = programs.Run(rank)
        programs.JOBS[name](run, planted)
        _train(run, str(out))
        programs.dist.barrier()
        programs.dist.destroy_process_group()

    def alone() -> None:
        run = programs.Run()
        programs.PAIRS[name](run, planted)
        _train(run, str(out))

    does = [alone] if name in programs.PAIRS else [lambda r=r: rank_of(r) for r in range(2)]
    if not programs.wait_for([programs.forked(one) for one in does]):
        print("failed:", name, side, out.name, flush=True)


@contextmanager
def _load(n: int) -> Iterator[None]:
    """So many processes that compute."""
    spin = [sys.executable, "-c", "while True: sum(range(100_000))"]
    busy = [subprocess.Popen(spin) for _ in range(n)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def record(folder: Path, machines: list[str]) -> None:
    """Train all programs on each machine."""
    folder = folder.absolute()
    programs = _programs()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.chdir(tempfile.mkdtemp())
    for name, machine in product(NAMES, machines):
        place = folder / machine
        place.mkdir(parents=True, exist_ok=True)
        with _load((os.cpu_count() or 1) if machine == "loaded" else 0):
            for number, side in product(range(max(N_RUNS.values())), N_RUNS):
                if number < N_RUNS[side]:
                    _run(programs, name, side, place / f"{name}.{side}.{number}")
            for number, side in product(range(N_TIMED if machine == "free" else 0), N_RUNS):
                if not (timed := place / f"{name}.{side}.{number}.json").exists():
                    _run(programs, name, side, timed)
        print(machine, name, f"{time.perf_counter():.0f}", flush=True)


class Tried(NamedTuple):
    """A decision, and what the edit did."""

    machine: str
    kind: str
    name: str
    edit: str  # ``repair``, or ``nothing``
    decision: Decision
    truth: float  # What the edit saved without a profiler, as a share

    @property
    def is_right(self) -> bool:
        """Whether what is claimed is true; *unclear* and *not comparable* claim nothing."""
        enough = self.decision.expected.saves / 2
        match self.decision.state:
            case "confirmed":
                return self.truth >= enough
            case "smaller":
                return 0 < self.truth < enough
            case "worse":
                return self.truth < 0
            case "no effect":
                return self.truth < enough
        return True

    @property
    def is_decided(self) -> bool:
        """Whether anything is claimed."""
        return self.decision.state not in ("unclear", "not comparable")


@cache
def _recorded(path: Path) -> Recorded:
    """A recorded run."""
    return recorded(path)


def _timed(folder: Path, runs: str) -> float:
    """Length of a step without a profiler: the median of the runs, of each the median."""
    every = [json.loads(file.read_text()) for file in folder.glob(runs)]
    return float(np.median([np.median(one) for one in every])) if every else math.nan


def tried(folder: Path) -> Iterator[Tried]:
    """Yield the decisions on the runs of a folder, with one recording of each side."""
    changes = {name: asked for of_kind in ASKED.values() for name, asked in of_kind.items()}
    kinds = {name: kind for kind, names in PAIRS.items() for name in names}
    machines = sorted(one.name for one in folder.iterdir())
    for name, first, other in product(NAMES, machines, machines):
        runs = [
            (folder / first / f"{name}.before.{number}", folder / other / f"{name}.after.{number}")
            for number in range(max(N_RUNS.values()))
        ]
        runs = [pair for pair in runs if all(map(_is_whole, pair))]
        again = [folder / other / f"{name}.before.{number}" for number in (1, 2, 0)]
        times = {side: _timed(folder, f"*/{name}.{side}.*.json") for side in N_RUNS}
        truth = 1 - times["after"] / times["before"]
        machine = first if first == other else f"{first}, then {other}"
        for (before, after), same in zip(runs, again, strict=False):
            files = [[*run.glob("*.gz")][:1] for run in (before, after)]
            plan = Plan(_recorded(before), (changes[name](Runs(*files)),))
            edits = [("repair", after, truth), ("nothing", same, 0.0)]
            for edit, run, saved in edits[: 1 + _is_whole(same)]:
                decision = plan.decide((_recorded(before),), (_recorded(run),))
                yield Tried(machine, kinds[name], name, edit, decision, saved)


def _is_whole(run: Path) -> bool:
    """Whether a run left its recordings."""
    return any(run.glob("*.gz"))


def row(found: Tried) -> dict[str, object]:
    """A decision as a row of the table of all."""
    low, high = found.decision.interval
    return {
        "machine": found.machine,
        "kind": found.kind,
        "name": found.name,
        "edit": found.edit,
        "state": found.decision.state,
        "is_right": found.is_right,
        "truth": found.truth,
        "predicted": found.decision.expected.saves,
        "predicted_low": found.decision.expected.low,
        "predicted_high": found.decision.expected.high,
        "saved": found.decision.saved,
        "low": low,
        "high": high,
        "clock": found.decision.clock,
        "reason": "; ".join(found.decision.not_comparable),
    }


def summary(table: pd.DataFrame) -> Iterator[str]:
    """Yield the rows of the table in `docs/try.md`."""
    yield "| machine | edit | programs | decisions | right | false *confirmed* | unclear | held |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for (machine, edit), part in table.groupby(["machine", "edit"], sort=False):
        decided = part[~part["state"].isin(("unclear", "not comparable")) & part["truth"].notna()]
        wrong = decided["state"].eq("confirmed") & ~decided["is_right"]
        holds = part["predicted_low"].le(part["saved"]) & part["saved"].le(part["predicted_high"])
        held = f"{holds.mean():.0%}" if edit == "repair" else "-"
        yield (
            f"| {machine} | {edit} | {part['name'].nunique()} | {len(part)} "
            f"| {decided['is_right'].sum()} of {len(decided)} | {wrong.sum()} "
            f"| {part['state'].isin(('unclear', 'not comparable')).mean():.0%} | {held} |"
        )


def judge(folders: Sequence[Path]) -> None:
    """Decide on all runs of some folders, write the table of all and print that by machine."""
    found = []
    for one in (decided for folder in folders for decided in tried(folder)):
        found.append(row(one))
        print(one.machine, one.name, one.edit, one.decision.verdict(), file=sys.stderr, flush=True)
    table = pd.DataFrame(found)
    table.round(4).to_csv(TABLE, index=False)
    for line in summary(table):
        print(line)


if __name__ == "__main__":
    task, where, *more = sys.argv[1:]
    if task == "record":
        record(Path(where), more or ["free", "loaded"])
    else:
        judge([Path(one) for one in (where, *more)])
