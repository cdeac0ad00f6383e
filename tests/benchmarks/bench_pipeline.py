"""Load, compile and find the path of every real trace.

``python -m tests.benchmarks.bench_pipeline [PATH]...`` prints a Markdown table. Times are of one
run each, after a first one that loads what is compiled once per machine.

With ``--cost`` the table shows what inference costs: time and memory per event of a compilation
with it and without it. Times are medians of first compilations, each in a process of its own; the
ways take turns. ``--against CHECKOUT`` compares with another state of the package as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

import htagraph as hg
from htagraph.model.kinds import EventKind
from htagraph.reports.markdown import markdown_table
from tests.public_traces import FOLDER
from tests.real_traces import CAPTURES, traces_in

HERE = Path(__file__).resolve().parents[2]

_COST = """
import inspect, json, sys, time, tracemalloc
import htagraph as hg
trace = hg.load(sys.argv[1])
takes = "infer" in inspect.signature(trace.compile).parameters
flags = {"infer": sys.argv[2] == "True"} if takes else {}
began = time.perf_counter()
trace.compile(**flags)
seconds = time.perf_counter() - began
tracemalloc.start()
trace.compile(**flags)
peak = tracemalloc.get_traced_memory()[1]
print(json.dumps([len(trace.recording.events), seconds, peak]))
"""
"""Seconds of the first compilation; peak of the second, when all code is loaded."""


def measured(file: Path) -> dict[str, object]:
    """One row of the table."""
    times = [time.perf_counter()]
    trace = hg.load(file)
    times.append(time.perf_counter())
    graph = trace.compile()
    times.append(time.perf_counter())
    path = graph.critical_path()
    assert path.segments["dur_ns"].sum() == path.dur_ns
    times.append(time.perf_counter())
    top = path.breakdown()["share"].head(3).items()
    load, compiling, walking = np.diff(times)
    return {
        "events": f"{len(trace.recording.events):,}",
        "kernels": f"{np.count_nonzero(trace.recording.events.kind == EventKind.KERNEL):,}",
        "edges": f"{len(graph.dag.edges):,}",
        "load s": f"{load:.2f}",
        "compile s": f"{compiling:.2f}",
        "path s": f"{walking:.3f}",
        "top three bounds": ", ".join(
            f"{name.replace('_', ' ')} {share:.0%}" for name, share in top
        ),
        "unknown_waits": f"{path.unknown_share:.1%}",
    }


def cost(file: Path, checkout: Path, *, infer: bool) -> tuple[int, float, float]:
    """Events, seconds and peak bytes of a compilation, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", _COST, str(file), str(infer)],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    n_events, seconds, peak_bytes = json.loads(ran.stdout.splitlines()[-1])
    return n_events, seconds, peak_bytes


def costs(file: Path, against: Path | None, repeats: int) -> dict[str, object]:
    """One row of the table of costs."""
    ways = {"on": (HERE, True), "off": (HERE, False)}
    if against is not None:
        ways["other"] = (against, True)
    runs: dict[str, list[tuple[int, float, float]]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, (checkout, infer) in ways.items():
            runs[way].append(cost(file, checkout, infer=infer))
    found = {way: np.median(np.array(rows), axis=0) for way, rows in runs.items()}
    n_events = max(found["on"][0], 1)
    row: dict[str, object] = {"events": f"{int(n_events):,}"}
    for column, what, unit in ((1, "us", 1e6), (2, "bytes", 1)):
        for way, numbers in found.items():
            row[f"{what} per event, {way}"] = f"{unit * numbers[column] / n_events:,.2f}"
        for way in list(ways)[1:]:
            row[f"{what}, on to {way}"] = f"{found['on'][column] / found[way][column]:.2f}"
    return row


def main() -> None:
    """Print the table of all traces that are given, or are below a folder that is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", type=Path, nargs="*", default=[CAPTURES, FOLDER], metavar="PATH")
    parser.add_argument("--cost", action="store_true", help="what inference costs")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    files = [
        file for path in asked.paths for file in (traces_in(path) if path.is_dir() else [path])
    ]
    measured(files[0])
    rows = [
        {
            "file": f"{file.parent.name}/{file.name}"[:48],
            **(costs(file, asked.against, asked.repeats) if asked.cost else measured(file)),
        }
        for file in files
    ]
    print(markdown_table(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()
