"""A trace of viztracer, of a Python program that runs here: its waits have names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import htagraph as hg

pytest.importorskip("viztracer")

PROGRAM = """
import queue, threading, time

ready = queue.Queue(2)

def read(item):
    time.sleep(0.001)

def decode(item):
    time.sleep(0.03)
    return item

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
    """The graph of a program whose producer decodes longer than its consumer trains."""
    folder: Path = tmp_path_factory.mktemp("viztracer")
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "viztracer", "-o", "trace.json", "program.py"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return hg.load(folder / "trace.json").compile()


def test_the_path_tiles_the_run_and_is_explained(graph: hg.TraceGraph):
    path = graph.critical_path()

    assert path.segments["dur_ns"].sum() == graph.interval.dur_ns
    assert (path.segments["bound"] != "unknown_waits").all()


def test_a_wait_for_another_thread_is_time_of_the_call_that_waits(graph: hg.TraceGraph):
    """The main thread ends last; most of the run it waits for what the producer decodes."""
    segments = graph.critical_path().segments
    longest = segments.groupby("name", observed=True)["dur_ns"].sum().idxmax()

    assert segments["track"].nunique() == 1
    assert "acquire" in longest
    assert not segments["is_inferred"].any()
