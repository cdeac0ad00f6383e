"""What a collective of a rank costs the client of a job: memory and CPU time, without any worker.

``python -m tests.benchmarks.bench_collectives [--ranks 128 512] [--steps 100]`` simulates four
ranks, takes what a job knows of them as that of many, and does what a report does with it: match
collectives, fit clocks, find the path across ranks and what is to be compared. The last line is a
fit through the jobs.
"""

from __future__ import annotations

import argparse
import pickle
import re
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import htagraph as hg
from htagraph.job.executors import Workers
from htagraph.job.job import Job
from htagraph.job.ranks import RankGraphs, RankSummary
from htagraph.job.timeline import Timeline
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

LATE = 2
SOURCES = [rank for rank in range(4) if rank != LATE]


def summaries(folder: Path, steps: int) -> Mapping[int, RankSummary]:
    """What is known of four simulated ranks, one of which is late in every step."""
    job = training_job(ranks=4, steps=steps, layers=10, straggler=LATE)
    simulate_job(job).write(folder)
    return hg.load_job(folder).summaries


def peak_mb() -> float:
    """The largest memory that this process had so far."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1e3


def measure(four: Mapping[int, RankSummary], n_ranks: int) -> tuple[int, float, float]:
    """Collectives of a job of copies, and the MB and seconds of CPU that they took."""
    before = peak_mb()
    texts = {rank: pickle.dumps(one) for rank, one in four.items()}
    like = [rank if rank in four else SOURCES[rank % len(SOURCES)] for rank in range(n_ranks)]
    many = {
        rank: replace(pickle.loads(texts[source]), rank=rank)  # noqa: S301 - its own
        for rank, source in enumerate(like)
    }
    began = time.process_time()
    job = Job(Timeline(RankGraphs(many, Workers())))
    assert job._route.rank_segments
    assert len(job.timeline.compared)
    assert len(job.timeline.compared_waits.waits)
    took = time.process_time() - began
    return sum(len(one.collectives) for one in many.values()), peak_mb() - before, took


def main() -> None:
    """Print a row per job, each of a process of its own, then the fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        four = summaries(Path(folder), given.steps)
    rows = []
    for n_ranks in given.ranks:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            rows.append(pool.submit(measure, four, n_ranks).result())
        n_collectives, mb, seconds = rows[-1]
        print(f"{n_ranks} ranks, {n_collectives:,} collectives: {mb:.0f} MB, {seconds:.1f} s")
    n_collectives, mb, seconds = (np.array(column) for column in zip(*rows, strict=True))
    each_kb, each_us = (np.polyfit(n_collectives, cost, 1)[0] for cost in (mb * 1e3, seconds * 1e6))
    print(f"each: {each_kb:.2f} kB, {each_us:.1f} us")


if __name__ == "__main__":
    main()
