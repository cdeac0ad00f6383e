"""Memory over time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from htagraph.compiler.passes import compile_events
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window
from htagraph.queries.counters import memory_timeline
from htagraph.synth import timeline


def recorded_memory():
    """A graph in which two instants were recorded, one inside an operator."""
    events = timeline(
        "cpu 1 |[aten::mm ^x ]  ^y",
        names={"x": "[memory]", "y": "[memory]"},
        columns={
            "bytes": {"x": 512, "y": -512},
            "total_allocated": {"x": 512, "y": 0},
            "total_reserved": {"x": 1024, "y": 1024},
            "device_type": {"x": 1, "y": 1},
            "device_id": {"x": 0, "y": 0},
        },
    )
    is_memory = events.names() == "[memory]"
    return compile_events(
        replace(events, kind=np.where(is_memory, EventKind.INSTANT, events.kind).astype(np.int8))
    )


def test_memory_is_told_with_the_operator_that_took_it():
    """aten::mm takes 512 bytes; they are given back outside of any operator."""
    dag = recorded_memory()
    frame = memory_timeline(dag, Window(0, 100_000, "all"))

    assert frame[["ts_ns", "bytes", "allocated", "reserved", "op"]].to_numpy().tolist() == [
        [10_000, 512, 512, 1024, "aten::mm"],
        [16_000, -512, 0, 1024, ""],
    ]


def test_the_starts_of_steps_are_told():
    """Those in the window."""
    steps = "cpu 1 |{ProfilerStep#0  }{ProfilerStep#1  }"
    frame = memory_timeline(compile_events(timeline(steps)), Window(5_000, 100_000, "later"))
    assert frame.attrs["steps_ns"] == [18_000]


def test_only_the_window_is_told():
    """Half-open: an instant at the end is not in it."""
    assert memory_timeline(recorded_memory(), Window(0, 16_000, "first"))["bytes"].tolist() == [512]
