"""Idle time by cause."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.errors import QueryError
from htagraph.explain import idle_parts
from htagraph.model.kinds import EventKind
from htagraph.queries.idle import idle_intervals, idle_time
from htagraph.synth import timeline


def test_causes_are_summed_by_operator_and_name():
    """Two gaps, each with part of the same operator."""
    dag = compile_events(
        timeline("""
            us       |0         10        20        30        40        50        60
            cpu 1    |[launch >a][aten::slow [launch >b]     [launch >c]  ]
            stream 7 |      [a <a ]                [b <b ]          [c <c    ]
        """)
    )
    frame = idle_time(dag, dag.span)
    slow = frame[frame["name"] == "aten::slow"]

    assert slow[["op", "n_gaps", "idle_ns"]].to_numpy().tolist() == [["aten::slow", 2, 13_000]]


def test_an_unknown_grouping_is_an_error_that_says_what_there_is():
    """A mistyped option is no silent default."""
    dag = compile_events(timeline("stream 7 |[k]"))

    with pytest.raises(QueryError, match="use 'device' or 'stream'"):
        idle_time(dag, dag.span, per="lane")


def test_host_time_names_its_python_frame_where_frames_were_recorded():
    """The host was in load_batch while the device waited."""
    events = timeline("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a][load_batch ][launch >b]
        stream 7 |      [a <a ]                [b <b]
    """)
    is_frame = events.names() == "load_batch"
    dag = compile_events(
        replace(events, kind=np.where(is_frame, EventKind.PYTHON, events.kind).astype(np.int8))
    )
    frame = idle_time(dag, dag.span).set_index("cause")

    assert frame.loc["untraced_code", ["frame", "idle_ns"]].tolist() == ["load_batch", 11_000]


def test_blocks_of_intervals_change_nothing(monkeypatch: pytest.MonkeyPatch):
    """Of one interval each: a name that is in both counts twice, and parts keep their interval."""
    dag = compile_events(
        timeline("""
            us       |0         10        20        30        40        50        60
            cpu 1    |[launch >a][aten::slow [launch >b]     [launch >c]  ]
            stream 7 |      [a <a ]                [b <b ]          [c <c    ]
        """)
    )
    whole, intervals = idle_time(dag, dag.span), idle_intervals(dag, dag.span)
    monkeypatch.setattr(idle_parts, "_AT_ONCE", 1)

    assert idle_time(dag, dag.span).equals(whole)
    assert idle_intervals(dag, dag.span).equals(intervals)
    assert whole["n_gaps"].max() == 2
