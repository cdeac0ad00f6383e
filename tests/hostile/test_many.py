"""Thousands of what a trace has few of cost as much as their number, not as its square."""

from __future__ import annotations

import json
import time
import tracemalloc

import htagraph as hg
from htagraph.writers.labels import name_label


def test_thousands_of_threads_are_not_each_compared_with_all() -> None:
    """3,000 that each did one thing took 0.9 GB; of 40,000 the process was killed."""
    rows = [
        {
            "ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": thread,
            "ts": 1_700_000_000_000_000 + 10 * thread, "dur": 5,
        }
        for thread in range(3_000)
    ]  # fmt: skip
    trace = hg.load(json.dumps({"traceEvents": rows}).encode())
    tracemalloc.start()
    graph = trace.compile()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert graph.critical_path().n_segments > 0
    assert peak < 400e6


def seconds_of(n_brackets: int) -> float:
    """Time of a process for the short form of a long name, the least of three."""
    name, taken = "a(" * n_brackets, []
    for _ in range(3):
        start = time.process_time()
        assert name_label(name) == f"{name[:32]}…{name[-15:]}"
        taken.append(time.process_time() - start)
    return min(taken)


def test_a_long_name_of_brackets_is_read_once() -> None:
    """Ten times the brackets took a hundred times as long: half a second for each use."""
    assert seconds_of(100_000) < 50 * seconds_of(10_000)
