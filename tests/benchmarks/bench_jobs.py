"""Jobs of 4 to 64 ranks, through processes and through Dask: time, memory, equal answers.

``python -m tests.benchmarks.bench_jobs FOLDER [--ranks 4 16 64] [--steps 100]`` writes the traces
into FOLDER, where they are used again. Four ranks are simulated (one of them late in every step);
the others are copies of those that are not late, with a clock of their own, as members of one large
group. Each run has a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

import htagraph as hg
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

LATE, LAYERS, WORKERS = 2, 40, 2
SOURCES = [rank for rank in range(4) if rank != LATE]


def write_ranks(target: Path, n_ranks: int, steps: int, layers: int = LAYERS) -> None:
    """Write the traces of a job into a folder, unless it is there."""
    if target.is_dir():
        return
    target.mkdir(parents=True)
    job = simulate_job(training_job(ranks=4, steps=steps, layers=layers, straggler=LATE, seed=1))
    originals = [rank.to_json().decode() for rank in job.ranks]
    everybody = str(list(range(n_ranks)))
    offsets = random.Random(0)  # noqa: S311 - no secret
    for rank in range(n_ranks):
        text = originals[rank if rank < len(originals) else SOURCES[rank % len(SOURCES)]]
        text = re.sub(
            r'"rank": \d+,\s+"world_size": 4',
            f'"rank": {rank}, "world_size": {n_ranks}',
            text,
            count=1,
        )
        text = text.replace(
            '"Process Group Ranks": "[0, 1, 2, 3]"', f'"Process Group Ranks": "{everybody}"'
        )
        base = re.search(r'"baseTimeNanoseconds": (\d+)', text)
        assert base is not None
        late_ns = offsets.randint(0, 20_000_000) if rank else 0
        text = text.replace(base[0], f'"baseTimeNanoseconds": {int(base[1]) + late_ns}')
        (target / f"rank{rank:05d}.json.gz").write_bytes(
            gzip.compress(text.encode(), compresslevel=1)
        )


@contextmanager
def executor_of(kind: str) -> Iterator[Executor]:
    """Two workers."""
    if kind == "processes":
        with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
            yield pool
        return
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client.get_executor()


def digest(*frames: pd.DataFrame) -> str:
    """A number that is equal for equal answers."""
    texts = (frame.to_csv() for frame in frames)
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:12]


def measure(folder: Path, kind: str) -> dict[str, object]:
    """Times and memory of the questions about the whole job."""
    times: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = work()
        times[name] = round(time.perf_counter() - began, 2)
        return result

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with executor_of(kind) as pool:
        job = timed("load", lambda: hg.load_job(folder, executor=pool))
        collectives = timed("collectives", job.collectives)
        path = timed("path", job.critical_path)
        stragglers = timed("stragglers", job.stragglers)
        breakdown = timed("temporal_breakdown", job.temporal_breakdown)
    parent = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    n_events = sum(summary.n_events for summary in job.summaries.values())
    return {
        "ranks": len(job),
        "executor": kind,
        "events": n_events,
        "collectives": int(collectives["match"].nunique()),
        **times,
        "parent_mb": round(parent / 1e3),
        "parent_start_mb": round(before / 1e3),
        "worker_mb": round(worker / 1e3),
        "late": int(stragglers["rank"][0]),
        "rank_segments": len(path.rank_segments),
        "digest": digest(collectives, path.segments, stragglers, breakdown),
    }


def main() -> None:
    """Print a table, one row per number of ranks and executor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument(
        "--steps", type=int, default=100, help="100 are about 100,000 events a rank"
    )
    parser.add_argument("--executors", nargs="+", default=["processes", "dask"])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.folder, given.one)))
        return
    rows = []
    for n_ranks in given.ranks:
        folder = given.folder / f"{n_ranks}x{given.steps}"
        # In a process of its own: the peak memory of this one is inherited by those that are
        # measured.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as writer:
            writer.submit(write_ranks, folder, n_ranks, given.steps).result()
        for kind in given.executors:
            done = subprocess.run(
                [sys.executable, __file__, str(folder), "--one", kind],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    assert len(table[["ranks", "digest"]].drop_duplicates()) == len(given.ranks), (
        "executors give different answers"
    )
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
