"""A trace of viztracer, of a Python program that runs here: its slowest chain has a name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.model.rules import Rule

pytest.importorskip("viztracer")

PROGRAM = """
import queue, threading, time

ready = queue.Queue(2)

def read(item):
    time.sleep(0.001)

def decode(item):
    return sum(range(1_000_000))

def train(batch):
    time.sleep(0.002)

def produce():
    for item in range(6):
        read(item)
        ready.put(decode(item))
    ready.put(None)

def consume():
    while ready.get() is not None:
        train(1)

worker = threading.Thread(target=produce, name="producer")
worker.start()
consume()
worker.join()
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> hg.TraceGraph:
    """The graph of a program whose producer is slower than its consumer: it decodes too long."""
    folder: Path = tmp_path_factory.mktemp("viztracer")
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "viztracer", "-o", "trace.json", "program.py"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return hg.load(folder / "trace.json").compile()


def test_the_path_tiles_the_run_and_is_explained(graph: hg.TraceGraph):
    path = graph.critical_path()

    assert path.segments["dur_ns"].sum() == graph.interval.dur_ns
    assert (path.segments["bound"] != "unexplained").all()


def test_the_slowest_chain_is_that_of_the_function_planted_slow(graph: hg.TraceGraph):
    """Most of the path is what the producer decodes, though the consumer's thread ends last."""
    segments = graph.critical_path().segments
    longest = segments.groupby(["track", "name"], observed=True)["dur_ns"].sum().idxmax()

    tracks = segments["track"].astype(str)
    assert longest[1] == "builtins.sum"
    assert str(longest[0]) != tracks.iloc[-1]


def test_hand_overs_between_threads_are_marked_as_inferred(graph: hg.TraceGraph):
    rules = graph.dag.edges.rule

    assert (rules == Rule.THREAD_STARTED).sum() == 1
    assert (rules == Rule.LOCK_RELEASED).sum() >= 3
    assert "inferred: lock released" in set(graph.quality()["check"])
