"""Which steps are compared, and how long each lasts."""

from __future__ import annotations

import numpy as np

import htagraph as hg
from htagraph.comparison.samples import graph_samples
from tests.comparison.profiles import simulated


def _graph(drawing: str):
    return hg.Trace.from_events(hg.synth.timeline(drawing)).compile()


def test_steps_last_until_the_device_has_done_them():
    """The host runs ahead: its ranges take 16 us each, the device 19."""
    found = graph_samples(
        _graph("""
            us       |0         10        20        30        40        50        60        70
            cpu 1    |{ProfilerStep#0}{ProfilerStep#1}{ProfilerStep#2}
            cpu 1    | [launch >a]     [launch >b]     [launch >c]
            stream 7 |          [gemm <a          ][gemm <b          ][gemm <c          ]
        """)
    )

    assert found.frame["dur_ns"].tolist() == [29_000, 19_000, 19_000]
    assert found.n_steps == 3


def test_the_first_step_of_a_trace_is_left_out_where_three_others_are_alike():
    """And it says so; it is not odd."""
    four, three = (
        graph_samples(hg.Trace.from_events(simulated(1, steps=n).events).compile()) for n in (4, 3)
    )

    assert four.rows.tolist() == [1, 2, 3]
    assert (four.left_out, four.n_odd) == (("ProfilerStep#0: the first of the trace",), 0)
    assert three.rows.tolist() == [0, 1, 2]


def test_a_step_that_does_other_work_is_named():
    """With what it does besides."""
    found = graph_samples(
        _graph("""
            us    |0         10        20        30        40        50        60        70
            cpu 1 |{ProfilerStep#0  }{ProfilerStep#1}{ProfilerStep#2 [save   ]}{ProfilerStep#3 }
        """)
    )

    assert found.rows.tolist() == [0, 1, 3]
    assert found.n_odd == 1
    assert "ProfilerStep#2: 1 event more than usual (+1 save)" in found.left_out[0]


def test_a_trace_without_steps_is_one_window():
    """All of it."""
    found = graph_samples(_graph("cpu 1 |[aten::mm      ][aten::relu]"))

    assert (found.unit, found.n_steps, len(found.rows)) == ("window", 0, 0)
    assert np.array_equal(found.frame["dur_ns"], [28_000])
