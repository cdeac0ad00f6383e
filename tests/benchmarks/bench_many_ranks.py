"""Reports on jobs of 64 to 1,024 small ranks, through processes and Dask: time, memory, per rank.

``python -m tests.benchmarks.bench_many_ranks FOLDER [--ranks 64 256 1024] [--layers 2]`` writes
the traces into FOLDER, where they are used again, and runs ``htagraph report`` on each job.
Scheduler, workers and client are processes of this machine; their peak memory is read from
``/proc``, and so is CPU time, which says more than seconds where others use the machine. The last
lines are fits through all jobs (least squares): what a job costs, and each rank of it.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd

from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

WORKERS = 2
LATE = 2
SOURCES = [rank for rank in range(4) if rank != LATE]
FITTED = ("client_cpu_s", "workers_cpu_s", "client_mb", "scheduler_mb")
CPU = (("client", "client"), ("scheduler", "scheduler"), ("workers", "worker"))
EVERY_S = 0.5


def write_ranks(target: Path, n_ranks: int, steps: int, layers: int) -> None:
    """Write the traces of a job into a folder, unless it is there.

    Four ranks are simulated, of which one is late in every step. The others are copies of the
    punctual ones, each with a clock of its own, as members of one large group.
    """
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
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process of Dask, while it is needed."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def address_of(scheduler: subprocess.Popen[str]) -> str:
    """The address that a scheduler prints."""
    assert scheduler.stderr is not None
    for line in scheduler.stderr:
        if found := re.search(r"Scheduler at:\s+(tcp://\S+)", line):
            return found[1]
    raise RuntimeError("the scheduler did not start")


def tree(pid: int) -> list[int]:
    """A process and all that it started."""
    by_thread = Path(f"/proc/{pid}/task").glob("*/children")
    try:
        children = [child for one in by_thread for child in one.read_text().split()]
    except OSError:
        return []
    return [pid, *(one for child in children for one in tree(int(child)))]


def peak_mb(pid: int) -> float:
    """The largest memory that a process had so far."""
    try:
        said = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s+(\d+) kB", said)
    return int(found[1]) / 1e3 if found else 0.0


def cpu_s_of(pid: int) -> float:
    """CPU time of a process itself, not of what it started."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(folder: Path, kind: str) -> dict[str, object]:
    """Time and memory of one report."""
    peaks: dict[str, float] = {"client": 0.0, "scheduler": 0.0, "worker": 0.0}
    with ExitStack() as open_, tempfile.TemporaryDirectory() as out:
        command = ["htagraph", "report", str(folder), "--out", f"{out}/report", "--quiet"]
        of_dask: dict[str, int] = {}
        if kind == "processes":
            command += ["--workers", str(WORKERS)]
        if kind == "dask":
            scheduler = open_.enter_context(
                started("distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard")
            )
            address = address_of(scheduler)
            for _ in range(WORKERS):
                flags = ("--nthreads", "1", "--no-dashboard")
                worker = open_.enter_context(
                    started("distributed.cli.dask_worker", address, *flags)
                )
                of_dask[f"worker {worker.pid}"] = worker.pid
            of_dask["scheduler"] = scheduler.pid
            command += ["--dask", address]
        began = time.perf_counter()
        client = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.DEVNULL)
        cpu_s: dict[str, dict[int, float]] = {what: {} for what in peaks}
        while client.poll() is None:
            cpu_s["client"][client.pid] = cpu_s_of(client.pid)
            peaks["client"] = max(peaks["client"], peak_mb(client.pid))
            started_here = [pid for pid in tree(client.pid) if pid != client.pid]
            for what, pids in (
                ("worker", started_here),
                *((name.split()[0], tree(pid)) for name, pid in of_dask.items()),
            ):
                peaks[what] = max([peaks[what], *map(peak_mb, pids)])
                cpu_s[what] |= {pid: max(cpu_s_of(pid), cpu_s[what].get(pid, 0.0)) for pid in pids}
            time.sleep(EVERY_S)
        took = time.perf_counter() - began
        assert client.returncode == 0, f"{folder}: exit code {client.returncode}"
        page = Path(out, "report", "report.html")
        page_mb = page.stat().st_size / 1e6 if page.exists() else 0.0
    return {
        "ranks": len(list(folder.iterdir())),
        "executor": kind,
        "seconds": round(took, 1),
        **{f"{what}_cpu_s": round(sum(cpu_s[of].values()), 1) for what, of in CPU},
        **{f"{what}_mb": round(peak) for what, peak in peaks.items()},
        "page_mb": round(page_mb, 1),
    }


def fit(rows: pd.DataFrame) -> str:
    """What a job costs, and each rank of it: a line through all jobs."""
    lines = {name: np.polyfit(rows["ranks"], rows[name], 1) for name in FITTED}
    return "; ".join(
        f"{name}: {line[1]:.1f} + {line[0]:.4f} * ranks" for name, line in lines.items()
    )


def main() -> None:
    """Print a row per job and executor, then the fits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--executors", nargs="+", default=["processes", "dask"])
    given = parser.parse_args()
    rows = []
    for n_ranks in given.ranks:
        folder = given.folder / f"{n_ranks}x{given.steps}x{given.layers}"
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as writer:
            writer.submit(write_ranks, folder, n_ranks, given.steps, given.layers).result()
        for kind in given.executors:
            rows.append(measure(folder, kind))
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    if len(given.ranks) > 1:
        for kind, own in table.groupby("executor"):
            print(f"{kind}: {fit(own)}")


if __name__ == "__main__":
    main()
