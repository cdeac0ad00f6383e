"""Changes that `htagraph history` finds in planted histories, and false alarms without any.

``python -m tests.benchmarks.bench_history`` prints the tables of `docs/monitoring.md`. The history:
60 runs in a git repository of 40 commits, of which three make a kernel slower, so that steps take
3, 5 and 10% longer; later the machine drifts by 5%: all times of a run are longer by one factor.
Each run also has a factor of its own (0.6%).

``record FOLDER`` (with PyTorch, on CPU) makes histories of real runs: 60 of a program that changes
so, in a repository of 40 commits, then 200 of one that does not. ``real FOLDER`` prints them.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

import htagraph as hg
from htagraph.arrays.change_points import change_points
from htagraph.comparison.run_diff import LEAST_CHANGE
from tests.comparison.profiles import slowed
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

N_RUNS, N_COMMITS = 60, 40
SLOWER = {8: 0.03, 17: 0.05, 26: 0.10}
"""By commit, the share by which it makes steps longer."""
DRIFT = (47, 53, 0.05)
"""First and last run of the drift of the machine, and its share."""
SPREAD = 0.006
"""Spread of the factor of a run: chosen, a quarter of the smallest planted change."""
KERNEL, OF_STEP = "ampere_sgemm_128x64_nn", 0.72
"""A kernel, and by how much steps are longer if it takes twice as long, as a share."""
HOUR_NS = 3600 * 10**9


def git(folder: Path, *args: str, at_ns: int) -> None:
    """Run git at a time."""
    at = f"@{at_ns // 10**9} +0000"
    named = ["-c", "user.name=n", "-c", "user.email=e@x"]
    env = os.environ | {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
    command = ["git", "-C", str(folder), *named, *args]
    subprocess.run(command, check=True, capture_output=True, env=env)


def commit_of(run: int) -> int:
    """The commit that a run is of."""
    return run * N_COMMITS // N_RUNS


def written(file: Path, run: int, begin_ns: int, source: np.random.Generator) -> None:
    """Write the trace of a run."""
    first, last, share = DRIFT
    drift = 1 + share * float(np.clip((run - first + 1) / (last - first + 1), 0, 1))
    factor = drift * float(np.exp(source.normal(0, SPREAD)))
    by = np.prod([1 + share for commit, share in SLOWER.items() if commit_of(run) >= commit])
    program = training_rank(steps=5, layers=3, seed=run)
    body = tuple(slowed(one, kernel=KERNEL, by=1 + (by - 1) / OF_STEP) for one in program.body)
    simulate(replace(program, body=body, start_ns=begin_ns)).write(file)
    document = json.loads(gzip.decompress(file.read_bytes()))
    events = document["traceEvents"]
    zero = min(event["ts"] for event in events if event.get("ph") == "X")
    for event in events:
        if "ts" in event:
            event["ts"] = zero + (event["ts"] - zero) * factor
        if "dur" in event:
            event["dur"] *= factor
    file.write_bytes(gzip.compress(json.dumps(document).encode()))


def planted(folder: Path) -> hg.History:
    """The history of the runs in a repository."""
    source, begin_ns = np.random.default_rng(3), 1_780_000_000 * 10**9
    git(folder, "init", "-q", at_ns=begin_ns)
    for commit in range(N_COMMITS):
        said = f"c{commit:02} {SLOWER.get(commit, 0):.0%} slower"
        args = ("commit", "--allow-empty", "-qm", said)
        git(folder, *args, at_ns=begin_ns + commit * HOUR_NS)
    runs = folder / "runs"
    runs.mkdir()
    for run in range(N_RUNS):
        at_ns = begin_ns + int((run + 0.9) * N_COMMITS / N_RUNS * HOUR_NS)
        at_ns = max(at_ns, begin_ns + commit_of(run) * HOUR_NS + HOUR_NS // 2)
        at_ns = min(at_ns, begin_ns + (commit_of(run) + 1) * HOUR_NS - 10**9)
        file = runs / f"run{run:02}.json.gz"
        written(file, run, at_ns, source)
        hg.KeptRuns(runs).keep(hg.report(file, write=False).summary, "report")
    return hg.history(runs)


def normal(source: np.random.Generator, n: int) -> np.ndarray:
    """Independent runs."""
    return source.normal(0, 1, n)


def heavy(source: np.random.Generator, n: int) -> np.ndarray:
    """Heavy tails."""
    return source.standard_t(3, n)


def some_slow(source: np.random.Generator, n: int) -> np.ndarray:
    """One in ten runs on a busy machine."""
    return source.normal(0, 1, n) + 5 * (source.random(n) < 0.1)


def like_before(of: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Each run like the one before it, as far as a machine remembers."""

    def drawn(source: np.random.Generator, n: int) -> np.ndarray:
        values, before = np.empty(n), 0.0
        for row, chance in enumerate(source.normal(0, np.sqrt(1 - of**2), n)):
            before = values[row] = of * before + chance
        return values

    return drawn


NOISE = {
    "normal": normal,
    "heavy tails (t, 3)": heavy,
    "one run in ten slow": some_slow,
    "like the run before (0.3)": like_before(0.3),
    "like the run before (0.5)": like_before(0.5),
}


def shown(values: np.ndarray) -> int:
    """Changes that a history would show: those of at least 1%."""
    found = change_points(values)
    parts = np.split(values, found)
    levels = [float(np.median(part)) for part in parts]
    return sum(abs(after / before - 1) >= LEAST_CHANGE for before, after in pairwise(levels))


def false_alarms(n_histories: int, n_runs: int) -> None:
    """Print how many histories without a change show one, by noise and spread."""
    source = np.random.default_rng(11)
    print(f"| {n_runs} runs without a change | spread 0.6% | 1% | 2% |\n| --- | --- | --- | --- |")
    for name, drawn in NOISE.items():
        shares = []
        for spread in (0.006, 0.01, 0.02):
            series = (1 + spread * drawn(source, n_runs) for _ in range(n_histories))
            shares.append(sum(shown(one) > 0 for one in series) / n_histories)
        print(f"| {name} | {' | '.join(f'{share:.1%}' for share in shares)} |", flush=True)


PROGRAM = """
import sys, torch, htagraph
torch.set_num_threads(1)
weight = torch.randn(256, 256) / 16
with htagraph.profile(sys.argv[1], skip=3, steps=8, report=False) as profiler:
    for _ in range(12):
        product = weight
        for _ in range(int(sys.argv[2])):
            product = product @ weight
        profiler.step()
"""
"""A step of so many products."""
N_PRODUCTS = 100


def recorded_run(place: Path, n_products: int) -> None:
    """Record a run of the program."""
    command = [sys.executable, "-c", PROGRAM, str(place), str(n_products)]
    subprocess.run(command, check=True, capture_output=True)


def record(folder: Path) -> None:
    """Record both histories, the commits between the runs."""
    runs = folder / "planted"
    (runs / "runs").mkdir(parents=True)
    git(runs, "init", "-q", at_ns=time.time_ns())
    commit, n_products = -1, float(N_PRODUCTS)
    for run in range(N_RUNS):
        if commit_of(run) > commit:
            commit = commit_of(run)
            n_products *= 1 + SLOWER.get(commit, 0)
            said = f"c{commit:02} {SLOWER.get(commit, 0):.0%} slower"
            git(runs, "commit", "--allow-empty", "-qm", said, at_ns=time.time_ns())
            time.sleep(1.1)  # git counts seconds
        recorded_run(runs / "runs" / f"run{run:03}", round(n_products))
    for run in range(200):
        recorded_run(folder / "same" / f"run{run:03}", N_PRODUCTS)


def real(folder: Path) -> Iterator[hg.History]:
    """Yield the history of each folder of runs."""
    for runs in (folder / "planted" / "runs", folder / "same"):
        for run in sorted(one for one in runs.iterdir() if one.is_dir()):
            if run.name.startswith("run"):
                hg.KeptRuns(runs).keep(hg.report(run, write=False).summary, "report")
        yield hg.history(runs)


def noise_of(found: hg.History) -> str:
    """Spread of the typical steps from run to run, and how much each is like the one before."""
    each = np.log(found.runs["typical_step_ns"].to_numpy(float))
    low, high = np.exp(np.quantile(each - np.median(each), (0.16, 0.84))) - 1
    like = np.corrcoef(each[:-1], each[1:])[0, 1]
    return f"{len(each)} runs: {low:.1%} to {high:+.1%}, like the run before: {like:.2f}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        record(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["real"]:
        for told in real(Path(sys.argv[2])):
            print(noise_of(told), told, sep="\n")
    if "alarms" in sys.argv[1:] or len(sys.argv) == 1:
        false_alarms(1_000, 200)
    if len(sys.argv) == 1 or "planted" in sys.argv[1:]:
        place = (
            Path(tempfile.mkdtemp(prefix="history-")) if len(sys.argv) < 3 else Path(sys.argv[2])
        )
        place.mkdir(exist_ok=True)
        found = planted(place)
        print(place, found, sep="\n")
        columns = ["name", "change_share", "cause", "by", "n_commits", "commits", "said"]
        print(found.changes[columns].plain.to_markdown(index=False))
        found.figure().write_html(place / "history.html")
