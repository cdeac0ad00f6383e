"""Idle time in HTA's three categories."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.queries.idle import idle_categories
from htagraph.synth import timeline


def test_categories_are_host_wait_kernel_wait_and_other():
    """B was launched late; c is close behind; d was launched in time, but began late."""
    dag = compile_events(
        timeline("""
            us       |0         10        20        30        40        50        60
            cpu 1    |[launch >a]     [launch >b][launch >c][launch >d]
            stream 7 |    [a <a]               [b <b               ] [c <c]          [d <d]
        """)
    )
    frame = idle_categories(dag, dag.span, kernel_wait_ns=5_000)

    assert frame[["category", "n_gaps", "idle_ns"]].to_numpy().tolist() == [
        ["host_wait", 1, 15_000],
        ["kernel_wait", 1, 1_000],
        ["other", 1, 10_000],
    ]


def test_the_gaps_of_a_category_are_described():
    """Gaps of 1, 3 and 11 us between work that no launch is known of: HTA's table of intervals."""
    dag = compile_events(timeline("stream 7 |[a ] [b ]   [c ]           [d ]"))
    found = idle_categories(dag, dag.span, kernel_wait_ns=5_000).set_index("category")

    described = ["n_gaps", "mean_ns", "std_ns", "min_ns", "p50_ns", "max_ns"]
    spread_ns = 2**0.5 * 1_000
    assert found.loc["kernel_wait", described].tolist() == [
        2,
        2_000,
        pytest.approx(spread_ns),
        1_000,
        1_000,
        3_000,
    ]
    assert found.loc["other", described].tolist() == [1, 11_000, 0, 11_000, 11_000, 11_000]
    assert found.loc["host_wait", described].tolist() == [0, 0, 0, 0, 0, 0]
