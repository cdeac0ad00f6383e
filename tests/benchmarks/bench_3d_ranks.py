"""Verdicts on jobs of tensor x data x pipeline parallel ranks: time, memory, what is named first.

``python -m tests.benchmarks.bench_3d_ranks FOLDER [--ranks 64 256 1024]`` simulates every rank of
each job into FOLDER, where the traces are used again: 4 tensor-parallel ranks, 4 stages, the rest
data parallel, one late in every step. Jobs of 64 ranks with a slow stage and with a hot expert come
last. Each job is loaded in a process of its own; memory is its peak, and that of the largest of its
workers.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas as pd

from htagraph.job.loading import load_job
from tests.benchmarks.bench_many_ranks import cpu_s_of, peak_mb, tree
from tests.job.test_experts import experts
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

TENSOR = PIPELINE = 4
DELAY_NS = 8_000_000
SLOW, HOT, N_FEW = 2, 41, 64


def write_training(folder: Path, n_ranks: int, late: int) -> None:
    """Write the traces of a job with a late rank, or else a slow stage, unless they are there."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True)
    has_slow_stage = late < 0
    program = training_job(
        ranks=n_ranks, steps=2, layers=2, tensor=TENSOR, pipeline=PIPELINE,
        straggler=late, delay_ns=DELAY_NS, slow_stage=SLOW if has_slow_stage else -1,
        micro_batches=PIPELINE if has_slow_stage else 1, max_offset_ns=20_000_000, seed=1,
    )  # fmt: skip
    for rank, simulated in enumerate(simulate_job(program).ranks):
        text = gzip.compress(simulated.to_json(), compresslevel=1)
        (folder / f"rank{rank:05d}.json.gz").write_bytes(text)


def write_experts(folder: Path) -> None:
    """Write the traces of a job in which one rank gets four times the tokens of others."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True)
    tokens = [100] * N_FEW
    tokens[HOT] *= 4
    experts(folder, [[(tokens, [3 * one for one in tokens])] * 2] * 3)


def measure(folder: Path) -> dict[str, object]:
    """Load a job and ask what limits it."""
    began = time.perf_counter()
    job = load_job(folder)
    loaded = time.perf_counter()
    found = job.verdict().findings
    ended = time.perf_counter()
    own, *workers = tree(os.getpid())
    return {
        "ranks": len(job),
        "load_s": round(loaded - began, 1),
        "verdict_s": round(ended - loaded, 1),
        "cpu_s": round(sum(map(cpu_s_of, (own, *workers))), 1),
        "mb": round(peak_mb(own)),
        "worker_mb": round(max(map(peak_mb, workers), default=0.0)),
        "first": found[0].title if found else "",
    }


def main() -> None:
    """Print a row per job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    given = parser.parse_args()
    rows = []
    jobs = [
        *((f"late rank {n * 5 // 8 + 1}", given.folder / f"3d-{n}", n) for n in given.ranks),
        (f"slow stage {SLOW}", given.folder / "stage", N_FEW),
        (f"hot expert {HOT}", given.folder / "experts", 0),
    ]
    for planted, folder, n_ranks in jobs:
        with ProcessPoolExecutor(
            1, mp_context=get_context("spawn"), max_tasks_per_child=1
        ) as process:
            if n_ranks:
                late = n_ranks * 5 // 8 + 1 if planted.startswith("late") else -1
                process.submit(write_training, folder, n_ranks, late).result()
            else:
                process.submit(write_experts, folder).result()
            rows.append({"planted": planted, **process.submit(measure, folder).result()})
        print(rows[-1], flush=True)
    print(pd.DataFrame(rows).to_string(index=False))


if __name__ == "__main__":
    main()
