"""Counts of a report on a job: graph files, pools of processes, rounds of work, seconds.

``python -m tests.benchmarks.bench_visits FOLDER [--processes]`` runs ``htagraph report FOLDER`` in
this process and counts. Small jobs are worked on in this process, so that every file is seen to be
opened; with ``--processes`` the job counts as large, and pools are seen to be started.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import io
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from htagraph.cli.report import report
from htagraph.job import executors

COUNTED: Counter[str] = Counter()


def count_opened(event: str, args: tuple[Any, ...]) -> None:
    """Count the compiled graphs that are opened to be read."""
    if event == "open" and str(args[0]).endswith(".npz") and "r" in str(args[1] or ""):
        COUNTED["graph files opened"] += 1


def counted(kind: type, name: str, what: str) -> None:
    """Count how often a method is called."""
    original = getattr(kind, name)

    def call(self: object, *args: Any, **kwargs: Any) -> Any:
        COUNTED[what] += 1
        return original(self, *args, **kwargs)

    setattr(kind, name, call)


def main() -> None:
    """Print the counts of one report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--processes", action="store_true")
    given = parser.parse_args()
    if given.processes:
        executors.SMALL_BYTES = 0
    sys.addaudithook(count_opened)
    counted(executors.Workers, "run", "rounds of work")
    counted(concurrent.futures.ProcessPoolExecutor, "__init__", "processes started")
    with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
        began = time.perf_counter()
        report(given.folder, out=Path(out) / "report", quiet=True)
        seconds = time.perf_counter() - began
    for what, n in sorted(COUNTED.items()):
        print(f"{n:5,} {what}")
    print(f"{seconds:5.2f} seconds")


if __name__ == "__main__":
    main()
