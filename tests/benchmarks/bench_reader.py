"""The reader beside other ways to read.

``python -m tests.benchmarks.bench_reader FOLDER 20 100 500 1400``: megabytes of raw JSON. Each
reading is a process of its own (its peak memory counts from its start), after one that warms the
caches. Files are tiled by `tests.benchmarks.tiles`. ``--hta PYTHON`` adds Holistic Trace Analysis
with the interpreter it is installed in.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.tiles import write_tiled

READ = """
import json, resource, sys, time
path, way = sys.argv[1:]
{setup}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started, cpu = time.perf_counter(), time.process_time()
{read}
seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([seconds, cpu_seconds, peak * 1024, (peak - before) * 1024, n]))
"""
OURS = """
from htagraph.readers.kineto.reader import read_kineto
from htagraph.readers.event_filter import EventFilter
from htagraph.readers.kineto.reader import load_file
SMALL = b'[{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "pid": 0, "tid": 7}]'
load_file(SMALL, EventFilter())
"""
UNPACK = """
import gc, gzip, importlib
from isal import igzip
gc.disable()
"""
WAYS = {
    "htagraph, 2 threads": (
        OURS,
        "n = len(load_file(path, EventFilter(n_threads=2)).events)",
    ),
    "htagraph, 1 thread": (
        OURS,
        "n = len(load_file(path, EventFilter(n_threads=1)).events)",
    ),
    "htagraph, stacks": (
        OURS,
        "n = len(load_file(path, EventFilter(stacks=True)).events)",
    ),
    "msgspec": (
        UNPACK + "import msgspec",
        "n = len(msgspec.json.decode(igzip.open(path).read())['traceEvents'])",
    ),
    "orjson": (
        UNPACK + "import orjson",
        "n = len(orjson.loads(igzip.open(path).read())['traceEvents'])",
    ),
    "json": (UNPACK, "n = len(json.loads(igzip.open(path).read())['traceEvents'])"),
}
HTA = (
    "import logging; logging.disable(logging.CRITICAL)\nfrom hta.common.trace import Trace",
    """
t = Trace(trace_files={0: path}, trace_dir='')
t.parse_traces(max_ranks=1, use_multiprocessing=False)
n = len(t.get_trace(0))
""",
)


def measured(
    python: str, path: Path, way: str, code: tuple[str, str], repeats: int
) -> list[float] | str:
    """The fastest of some readings: seconds, CPU seconds, peak bytes, added bytes, events."""
    script = READ.format(setup=code[0], read=code[1])
    runs = []
    for _ in range(repeats):
        done = subprocess.run(
            [python, "-c", script, str(path), way], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return (
                done.stderr.strip().splitlines()[-1][:90]
                if done.stderr
                else f"exit code {done.returncode}"
            )
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return min(runs)


def line(way: str, megabytes: float, result: list[float] | str) -> str:
    """One line of the table."""
    if isinstance(result, str):
        return f"| {megabytes:,.0f} | {way} | {result} | | | | | |"
    seconds, cpu, peak, more, n = result
    rate, per_event = megabytes / seconds, f"{seconds / n * 1e9:,.0f} | {more / n:,.0f}"
    times = f"{seconds:.2f} | {cpu:.2f} | {rate:,.0f} | {per_event}"
    return f"| {megabytes:,.0f} | {way} | {times} | {peak / 1e6:,.0f} | {n:,} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("megabytes", type=int, nargs="+")
    parser.add_argument("--hta", help="Python interpreter with HTA")
    parser.add_argument("--ways", nargs="*", default=list(WAYS))
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    print(
        "| raw MB | way | s | CPU s | MB/s | ns/event | bytes/event | peak MB | events |\n|"
        + "---|" * 9
    )
    for size in asked.megabytes:
        path = write_tiled(asked.folder, size)
        listed = subprocess.run(
            ["gzip", "-l", path], capture_output=True, text=True, check=True
        ).stdout
        n_raw = int(listed.splitlines()[1].split()[1]) / 1e6
        for way in asked.ways:
            print(
                line(way, n_raw, measured(sys.executable, path, way, WAYS[way], asked.repeats)),
                flush=True,
            )
        if asked.hta:
            print(line("HTA", n_raw, measured(asked.hta, path, "HTA", HTA, 1)), flush=True)


if __name__ == "__main__":
    main()
