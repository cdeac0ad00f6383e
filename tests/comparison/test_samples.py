"""Which steps are compared, and how long each lasts."""

from __future__ import annotations

import numpy as np
import pytest

import htagraph as hg
from htagraph.comparison.profiling import graph_profile
from htagraph.comparison.samples import DoneSteps, compared, graph_samples
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
    assert (four.left_out[-1], four.n_odd) == ("step 0, the first of the trace", 0)
    assert three.rows.tolist() == [0, 1, 2]


def test_a_step_that_does_other_work_is_named():
    """With what it does besides."""
    found = graph_profile(
        _graph("""
            us    |0         10        20        30        40        50        60        70
            cpu 1 |{ProfilerStep#0  }{ProfilerStep#1}{ProfilerStep#2 [save   ]}{ProfilerStep#3 }
        """)
    )

    assert (found.usual.n_compared, found.usual.n_odd) == (3, 1)
    assert found.usual.left_out[0].startswith("ProfilerStep#2: 1 event more than usual (+1 save)")


@pytest.mark.parametrize(("n_odd", "more"), [(6, 0), (8, 2)])
def test_six_outlier_steps_are_named(n_odd: int, more: int):
    """The rest are counted."""
    n = 20 + n_odd
    end_ns = np.cumsum([100_000] * 20 + [300_000] * n_odd)
    same, every = np.zeros(n, dtype=np.int64), np.ones(n, dtype=bool)
    names = np.array([f"step {number}" for number in range(n)], dtype=object)
    steps = DoneSteps(names, np.append(0, end_ns[:-1]), end_ns, same, same - 1)
    found = compared(steps, every, every, lambda: [""] * n)

    assert found.n_odd == n_odd
    assert sum("longer than usual" in line for line in found.left_out) == 6
    assert found.left_out[-1].startswith("… and ") is (more > 0)


def test_a_profile_is_small():
    """It keeps the longest names, cut to 240 characters, and the lengths of 200 steps."""
    steps = "".join(f"{{ProfilerStep#{number:<5}}}" for number in range(210))
    ops = "".join(f"[aten::op{number:<5}]" for number in range(210))
    many = graph_profile(_graph(f"cpu 1 |{ops}"))
    named = [sum(one.part == part for one in many.parts) for part in ("op", "name", "operator")]
    long = graph_profile(_graph(f"cpu 1 |[{'x' * 300}]"))

    assert named == [101, 101, 151]  # the last one is all others
    assert len(graph_profile(_graph(f"cpu 1 |{steps}")).steps_ns) == 200
    assert max(len(one.name) for one in long.parts) == 240


def test_a_trace_without_steps_is_one_window():
    """All of it."""
    found = graph_samples(_graph("cpu 1 |[aten::mm      ][aten::relu]"))

    assert (found.unit, found.n_steps, len(found.rows)) == ("window", 0, 0)
    assert np.array_equal(found.frame["dur_ns"], [28_000])
